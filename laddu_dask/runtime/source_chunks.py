"""Source columns as they are read, in chunks of one size and without copies."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from laddu_dask.data import Fragment
from laddu_dask.data.pieces import Piece, RawPiece, is_in_memory, read_pieces, read_raw
from laddu_dask.errors import DataError


class SourceChunk(NamedTuple):
    """Consecutive events as they were read, but not looked at.

    Attributes
    ----------
    start
        Number of events before it in what is read.
    events
        Number of events.
    pieces
        The events, in order.
    """

    start: int
    events: int
    pieces: list[RawPiece]


@dataclass(frozen=True)
class Source:
    """Some columns of consecutive fragments.

    Attributes
    ----------
    fragments
        Where the events are read, in order.
    columns
        Which columns.
    chunk_events
        Events of a chunk.
    label
        Names in errors the data set of which term is read.
    """

    fragments: Sequence[Fragment]
    columns: Sequence[str]
    chunk_events: int
    label: str

    @property
    def takes_time(self) -> bool:
        """Whether there is something to read ahead, and more than memory to read it from."""
        events = sum(fragment.rows for fragment in self.fragments)
        return events > self.chunk_events and not all(map(is_in_memory, self.fragments))

    def pieces(self) -> Iterator[Piece]:
        """The events in order, as numbers."""
        try:
            yield from read_pieces(self.fragments, self.columns, self.chunk_events)
        except DataError as error:
            raise labelled(error, self.label) from error

    def chunks(self) -> Generator[SourceChunk, None, None]:
        """Chunks of `chunk_events`, the last one shorter; fragments do not show in them.

        Events that were read before an error are delivered before it.
        """
        start, room, pieces = 0, self.chunk_events, list[RawPiece]()
        failure = None
        for piece in _until_error(read_raw(self.fragments, self.columns, self.chunk_events)):
            if isinstance(piece, DataError):
                failure = piece
                break
            taken = 0
            while taken < piece.rows:
                step = min(piece.rows - taken, room)
                pieces.append(piece.cut(taken, taken + step))
                taken, room = taken + step, room - step
                if room == 0:
                    yield SourceChunk(start, self.chunk_events, pieces)
                    start, room, pieces = start + self.chunk_events, self.chunk_events, []
        if pieces:
            yield SourceChunk(start, self.chunk_events - room, pieces)
        if failure is not None:
            raise labelled(failure, self.label) from failure


def labelled(error: DataError, label: str) -> DataError:
    """The error, with the data set of which term was read."""
    return DataError(f"{label}: {error}", **{**error.context, "label": label})


def _until_error(pieces: Iterator[RawPiece]) -> Iterable[RawPiece | DataError]:
    """The pieces, and the error instead of those that it keeps from being read."""
    try:
        yield from pieces
    except DataError as error:
        yield error
