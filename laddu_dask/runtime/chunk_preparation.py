"""Cached columns of the events of a chunk, and what their values say about assumptions.

Source columns are gathered and prepared part by part: what is gathered, and what becomes of it,
should stay in the cache of a core until it has been prepared and checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import EventPrograms, Precision
from laddu_dask.compiler.assumptions import RANGE
from laddu_dask.data.pieces import Piece
from laddu_dask.errors import DataError
from laddu_dask.kernels import padded
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.kernels.backend import Backend, Rows, whole_vectors
from laddu_dask.runtime.array_pool import ArrayPool
from laddu_dask.runtime.source_chunks import SourceChunk, labelled

Array = npt.NDArray[np.float64]

#: Source and prepared columns of so many bytes are worked on at once.
PART_BYTES = 1 << 22
_NO_PARAMETERS: Array = np.zeros(0)
#: Numbers in cached columns.
NUMBERS: dict[Precision, type] = {"f64": np.float64, "f32": np.float32}


class PreparedChunk(NamedTuple):
    """A prepared chunk.

    Attributes
    ----------
    start, events
        As of the source.
    columns
        Cached columns by rows, shape (n_cached, padded events).
    weights
        Weights, shape (padded events,), zero in the padding; 1.0 if all events count the same.
    findings
        What the events leave of the assumptions that they contradict, by digest.
    failure
        What is wrong with the event behind the last one; then no chunk follows.
    """

    start: int
    events: int
    columns: Rows
    weights: Array | float
    findings: dict[str, str]
    failure: DataError | None


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
    """

    def __init__(
        self, programs: EventPrograms, backend: Backend, label: str, pool: ArrayPool
    ) -> None:
        self._programs = programs
        self._label = label
        self._pool = pool
        self._backend = backend
        self._kernel = backend.compile(programs.prepare, "map")
        columns = len(programs.columns) + programs.prepare.n_outputs
        self._part = TILE * max(PART_BYTES // (8 * columns * TILE or 1), 1)

    def __call__(self, source: SourceChunk) -> PreparedChunk:
        """Prepare a chunk.

        Raises
        ------
        DataError
            Its first event cannot be used; a later one is told with the events before it.
        """
        programs = self._programs
        decoded, failure = self._decoded(source)
        events = sum(piece.rows for piece in decoded)
        rows = self._pool.empty((programs.prepare.n_outputs, padded(events)))
        room = self._pool.empty((len(programs.columns), whole_vectors(min(self._part, events))))
        weights = self._weights(decoded, rows.shape[1])
        extreme = False
        pieces = iter(decoded)
        piece, taken = next(pieces), 0
        for first in range(0, events, self._part):
            size = min(self._part, events - first)
            filled = 0
            while filled < size:
                if taken == piece.rows:
                    piece, taken = next(pieces), 0
                step = min(piece.rows - taken, size - filled)
                for row, column in zip(room, piece.columns, strict=True):
                    row[filled : filled + step] = column[taken : taken + step]
                filled, taken = filled + step, taken + step
            width = whole_vectors(size)
            if width < room.shape[1]:
                room = np.ascontiguousarray(room[:, :width])
            if width > size:
                room[:, size:] = room[:, size - 1 : size]
            self._kernel.map(room, _NO_PARAMETERS, rows, first=first)
            extreme = extreme or self._backend.is_any_extreme(
                rows, programs.ranged, first, first + width, programs.precision
            )
        # Whatever reads the padding finds ordinary numbers there.
        rows[:, events:] = rows[:, events - 1 : events]
        findings = self._findings(rows[:, :events])
        if extreme:
            findings[RANGE.hex()] = "open"
        return PreparedChunk(source.start, events, self._kept(rows), weights, findings, failure)

    def _weights(self, pieces: Sequence[Piece], width: int) -> Array | float:
        if all(piece.weights is None for piece in pieces):
            return 1.0
        weights: Array = self._pool.empty((width,))
        start = 0
        for piece in pieces:
            weights[start : start + piece.rows] = 1.0 if piece.weights is None else piece.weights
            start += piece.rows
        weights[start:] = 0.0
        return weights

    def _kept(self, rows: Array) -> Rows:
        """The cached columns among the rows, rounded to the precision of the kernels.

        They are doubles until then: roots of differences and sines of large numbers would suffer.
        What is too large for a float becomes infinite, and the event is reported like any infinite
        one.
        """
        cached = rows[: self._programs.n_cached]
        number = NUMBERS[self._programs.precision]
        if cached.dtype == number:
            return cached
        kept: Rows = self._pool.empty(cached.shape, number)
        with np.errstate(over="ignore"):
            kept[...] = cached
        return kept

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

    def _findings(self, rows: Array) -> dict[str, str]:
        found: dict[str, str] = {}
        for check in self._programs.checks:
            finding = check.findings(rows, self._programs.precision)
            if finding is not None:
                found[check.digest.hex()] = finding
        return found


def merged_findings(one: Mapping[str, str], two: Mapping[str, str]) -> dict[str, str]:
    """What is found by two sets of events together; nothing is left of what they differ about."""
    differing = {digest: "open" for digest in one.keys() & two.keys() if one[digest] != two[digest]}
    return {**one, **two, **differing}
