"""Cached columns of the events of a chunk, and what their values say about assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import EventPrograms, Precision
from laddu_dask.data.pieces import Piece
from laddu_dask.errors import DataError
from laddu_dask.kernels import padded
from laddu_dask.kernels.backend import Backend, Rows, Sources
from laddu_dask.runtime.array_pool import ArrayPool
from laddu_dask.runtime.source_chunks import SourceChunk, labelled

Array = npt.NDArray[np.float64]

#: Numbers in cached columns.
NUMBERS: dict[Precision, type] = {"f64": np.float64, "f32": np.float32}


class PreparedChunk(NamedTuple):
    """A chunk that was prepared, or a part of it.

    Attributes
    ----------
    start, events
        Number of events before it in what is read, and in it.
    columns
        Cached columns by rows, shape (n_cached, padded events); or of all chunks, see `into` of
        `ChunkPreparation`.
    findings
        What the events leave of the assumptions that they contradict, by digest.
    weights
        Weights, shape (padded events,), zero in the padding; 1.0 if all events count the same. Of
        all chunks in one place, without padding; see `into` of `ChunkPreparation`.
    failure
        What is wrong with the event behind the last one; then nothing follows.
    """

    start: int
    events: int
    columns: Rows
    findings: dict[str, str]
    weights: Array | float
    failure: DataError | None


class Place(NamedTuple):
    """Room for all prepared events of a partition.

    Attributes
    ----------
    columns
        For the cached columns.
    weights
        For the weights, shape (padded events,); untouched by events that all count the same.
    """

    columns: Rows
    weights: Array


class ChunkPreparation:
    """Prepares chunks of one data set; may be called from several threads.

    Parameters
    ----------
    programs
        The event programs.
    backend
        Makes the kernel.
    label
        Names in errors the data set of which term is prepared.
    pool
        Gives memory for chunks.
    into
        Receives the columns and the weights of all chunks, each where its events begin; None: each
        has its own.
    part_events
        Most events prepared at once, whole tiles; None: all of a chunk.
    """

    def __init__(
        self,
        programs: EventPrograms,
        backend: Backend,
        label: str,
        pool: ArrayPool,
        into: Place | None = None,
        part_events: int | None = None,
    ) -> None:
        self._programs = programs
        self._label = label
        self._pool = pool
        self._into = into
        self._part_events = part_events
        self._preparer = backend.preparer(programs.prepare, programs.n_cached, programs.questions)

    def __call__(self, source: SourceChunk) -> Iterator[PreparedChunk]:
        """Prepare a chunk, in one part or in several; each is made when it is asked for.

        Raises
        ------
        DataError
            Its first event cannot be used; a later one is told with the events before it.
        """
        pieces, failure = self._decoded(source)
        sources = self._preparer.sources([(piece.rows, piece.columns) for piece in pieces])
        size = self._part_events or sources.events
        for start in range(0, sources.events, size):
            stop = min(start + size, sources.events)
            yield PreparedChunk(
                source.start + start,
                stop - start,
                *self._columns(sources, start, stop, source.start + start),
                self._weights(pieces, start, stop, source.start + start),
                failure if stop == sources.events else None,
            )

    def _columns(
        self, sources: Sources, start: int, stop: int, place: int
    ) -> tuple[Rows, dict[str, str]]:
        """Columns of some of the events, and what was found in them."""
        programs, into, events = self._programs, self._into, stop - start
        columns: Rows
        if into is None:
            shape = programs.n_cached, padded(events)
            columns, place = self._pool.empty(shape, NUMBERS[programs.precision]), 0
        else:
            columns = into.columns
        answers = self._preparer.prepare(sources, start, stop, columns, place, self._pool.empty)
        if into is None:  # whatever reads the padding finds ordinary numbers there
            columns[:, events:] = columns[:, events - 1 : events]
        return columns, {key.hex(): left for key, left in programs.findings(answers).items()}

    def _weights(self, pieces: Sequence[Piece], start: int, stop: int, place: int) -> Array | float:
        given: list[tuple[int, Array | float]] = []
        first = 0
        for piece in pieces:
            low, high = max(start - first, 0), min(stop - first, piece.rows)
            if low < high:
                own = 1.0 if piece.weights is None else _simplest(piece.weights[low:high])
                given.append((high - low, own))
            first += piece.rows
        if all(isinstance(own, float) for _, own in given):
            return 1.0
        weights: Array
        if self._into is None:
            weights = self._pool.empty((padded(stop - start),))
            weights[stop - start :] = 0.0
        else:
            weights = self._into.weights[place : place + stop - start]
        done = 0
        for events, own in given:
            weights[done : done + events] = own
            done += events
        return weights

    def _decoded(self, source: SourceChunk) -> tuple[list[Piece], DataError | None]:
        pieces: list[Piece] = []
        try:
            for raw in source.pieces:
                pieces.extend(raw.decoded())  # keeps what comes before an error
        except DataError as error:
            failure = labelled(error, self._label)
            failure.__cause__ = error
            if not pieces:
                raise failure from error
            return pieces, failure
        return pieces, None


def _simplest(weights: Array) -> Array | float:
    """1.0 if all are; the first one nearly always tells, without an array of answers."""
    return 1.0 if weights[0] == 1.0 and np.all(weights == 1.0) else weights


def merged_findings(one: Mapping[str, str], two: Mapping[str, str]) -> dict[str, str]:
    """What is found by two sets of events together; nothing is left of what they differ about."""
    differing = {digest: "open" for digest in one.keys() & two.keys() if one[digest] != two[digest]}
    return {**one, **two, **differing}
