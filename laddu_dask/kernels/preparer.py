"""Machine code that prepares events, block by block; see `laddu_dask.kernels.preparer_text`."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from laddu_dask.compiler.questions import KINDS, Question
from laddu_dask.kernels.accumulator import LANES
from laddu_dask.kernels.arguments import ONES, address, check_target, mask
from laddu_dask.kernels.backend import Pieces, Rows, padded, whole_vectors
from laddu_dask.kernels.column_layout import strides
from laddu_dask.kernels.preparer_text import FRAME, preparer_text
from laddu_dask.kernels.shared_code import shared_function

if TYPE_CHECKING:
    from laddu_dask.kernels.cpu import CpuKernel

#: Source columns and rows of a block have so many bytes; half of the cache that a core has.
BLOCK_BYTES = 1 << 19
#: Most events of a block: more would not be worth less.
_LONGEST = 1 << 13

_FUNCTION = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)
#: Places in a frame that are written to while events are prepared.
_FILLED = FRAME.index("filled")
_NO_PARAMETERS = np.zeros(1)


class CpuPreparer:
    """See `laddu_dask.kernels.backend.Preparer`."""

    def __init__(self, kernel: CpuKernel, kept: int, questions: Sequence[Question]) -> None:
        program = kernel.program
        self._kernel, self._kept = kernel, kept
        rows = program.n_inputs + program.n_outputs
        vectors = BLOCK_BYTES // (8 * LANES * max(rows, 1))
        self._block = LANES * min(max(vectors, 1), _LONGEST // LANES)
        self._count = len(questions)
        self._questions = np.array([_words(question) for question in questions], dtype=np.int64)
        self._function = shared_function("prepare", preparer_text, _FUNCTION, kernel.target)

    def sources(self, pieces: Pieces) -> CpuSources:
        """See `laddu_dask.kernels.backend.Preparer`."""
        return CpuSources(pieces, self._kernel.program.n_inputs)

    def prepare(
        self,
        sources: CpuSources,
        start: int,
        stop: int,
        target: Rows,
        first: int,
        room: Callable[[Sequence[int]], Any],
    ) -> list[int]:
        """See `laddu_dask.kernels.backend.Preparer`."""
        program, events = self._kernel.program, stop - start
        check_target(target, self._kept, first, events)
        answers = np.zeros(self._count, dtype=np.int64)
        if not events or not program.n_outputs:
            return answers.tolist()
        width = padded(min(self._block, whole_vectors(events)))
        held = room((program.n_inputs + program.n_outputs, width))  # while the function runs
        scratch = address(held)
        entry = self._kernel.entry("map")  # keeps its code while that runs: another may replace it
        columns, steps = strides(target)
        frame = np.array(
            [
                *(entry.address, address(_NO_PARAMETERS), address(ONES), mask(ONES)),
                *(program.n_inputs, scratch, width),
                *(scratch + 8 * width * program.n_inputs, width, self._kept),
                *(address(target), columns, steps, target.dtype == np.float32, self._block),
                *(address(self._questions), self._count, address(answers), 0, first),
            ],
            dtype=np.int64,
        )
        frame_at = address(frame)
        for addresses, low, high in sources.within(start, stop):
            self._function(frame_at, addresses, low, high - low, 0)
        self._function(frame_at, 0, 0, 0, 1)
        assert frame[_FILLED] == 0
        return answers.tolist()


class CpuSources:
    """See `laddu_dask.kernels.backend.Sources`."""

    def __init__(self, pieces: Pieces, columns: int) -> None:
        self._pieces, self.events = [], 0
        for size, given in pieces:
            held = [np.ascontiguousarray(column, dtype=np.float64) for column in given]
            if len(held) != columns or any(len(column) != size for column in held):
                shapes = [column.shape for column in held]
                raise ValueError(f"{size} events of {columns} columns, got {shapes}")
            addresses = np.array([address(column) for column in held], dtype=np.int64)
            self._pieces.append((self.events, size, addresses, held))
            self.events += size

    def within(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Where the addresses of columns are, and which of their events are meant."""
        if not 0 <= start <= stop <= self.events:
            raise ValueError(f"events {start} to {stop} of {self.events}")
        for first, size, addresses, _ in self._pieces:
            low, high = max(start - first, 0), min(stop - first, size)
            if low < high:
                yield address(addresses), low, high


def _words(question: Question) -> tuple[int, ...]:
    low, high = struct.unpack("<2q", struct.pack("<2d", question.low, question.high))
    if question.kind == "extreme":
        low = max(low - 1, 0)
    return KINDS.index(question.kind), question.row, question.other, low, high
