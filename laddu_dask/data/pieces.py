"""Rows of many fragments as they are decoded, without copies.

Fragments that lie one after the other in a file are read in one go: opening a file and beginning a
row group cost as much as decoding thousands of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from laddu_dask.data.fragment import Floats, Fragment
from laddu_dask.errors import DataError

__all__ = ["Consecutive", "Piece", "RawPiece", "is_in_memory", "read_pieces", "read_raw"]


class RawPiece(Protocol):
    """Some consecutive rows that were read, but not looked at.

    Attributes
    ----------
    rows
        How many.
    """

    @property
    def rows(self) -> int: ...

    def cut(self, start: int, stop: int) -> RawPiece:
        """The rows [start, stop)."""
        ...

    def decoded(self) -> Iterable[Piece]:
        """The rows as numbers; DataError after those that come before one that is none."""
        ...


class Piece(NamedTuple):
    """Some consecutive rows, decoded; the arrays may be views that nobody may write to.

    Parameters
    ----------
    rows
        How many.
    columns
        Floats of any width, each of shape (rows,), in the order that was asked for.
    weights
        float64, shape (rows,), all finite; None if every row has the weight one.
    """

    rows: int
    columns: Sequence[NDArray[Any]]
    weights: Floats | None

    def cut(self, start: int, stop: int) -> Piece:
        """The rows [start, stop)."""
        if start == 0 and stop == self.rows:
            return self
        weights = None if self.weights is None else self.weights[start:stop]
        return Piece(stop - start, [column[start:stop] for column in self.columns], weights)

    def decoded(self) -> Iterable[Piece]:
        """Itself; see `RawPiece`."""
        return (self,)

    def every_weight(self) -> Floats:
        """The weights, ones if there are none."""
        return np.ones(self.rows) if self.weights is None else self.weights


@runtime_checkable
class Consecutive(Protocol):
    """What a fragment offers if it can be read in one go with those that follow it."""

    def continues(self, previous: Fragment) -> bool:
        """Whether its rows follow those of `previous` in the same source."""
        ...

    def read_run(
        self, run: Sequence[Fragment], columns: Sequence[str], batch_rows: int
    ) -> Iterator[RawPiece]:
        """The rows of a run of fragments, about `batch_rows` at a time.

        It begins with this one, and each continues the one before. Errors are those of
        `Fragment.read`.
        """
        ...


def read_pieces(
    fragments: Iterable[Fragment], columns: Sequence[str], batch_rows: int
) -> Iterator[Piece]:
    """All rows of fragments, in order, about `batch_rows` at a time.

    Raises as `read_raw` and `RawPiece.decoded` do.
    """
    for raw in read_raw(fragments, columns, batch_rows):
        yield from raw.decoded()


def read_raw(
    fragments: Iterable[Fragment], columns: Sequence[str], batch_rows: int
) -> Iterator[RawPiece]:
    """The same as it is read; whoever uses a piece decodes it.

    Raises
    ------
    DataError
        As reading the fragments does, after the rows that were decoded before; and for a fragment
        that gives more or fewer rows than it promises.
    """
    for run in _runs(fragments):
        first = run[0]
        if isinstance(first, Consecutive):
            yield from first.read_run(run, columns, batch_rows)
        else:
            yield from _read(first, columns, batch_rows)


def is_in_memory(fragment: Fragment) -> bool:
    """Whether reading a fragment only copies memory; those that do not say so take time to read."""
    return bool(getattr(fragment, "in_memory", False))


def _runs(fragments: Iterable[Fragment]) -> Iterator[list[Fragment]]:
    run: list[Fragment] = []
    for fragment in fragments:
        if run and not (isinstance(fragment, Consecutive) and fragment.continues(run[-1])):
            yield run
            run = []
        run.append(fragment)
    if run:
        yield run


def _read(fragment: Fragment, columns: Sequence[str], batch_rows: int) -> Iterator[Piece]:
    rows = 0
    for batch in fragment.read(columns, batch_rows):
        rows += len(batch.weights)
        yield Piece(len(batch.weights), list(batch.values), batch.weights)
    if rows != fragment.rows:
        raise DataError(
            f"{fragment.label} gave {rows} events where its description promised {fragment.rows}; "
            "it changed while it was in use, open it again",
            file=fragment.file,
        )
