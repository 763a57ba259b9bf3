"""Sums of a compiled kernel over events that are known in advance.

Prepared events are summed in every evaluation, and what their columns are does not change: they are
checked and located once.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from laddu_dask.kernels.accumulator import FOLDS, LANES, TILE, Accumulator
from laddu_dask.kernels.arguments import ONES, address, check_inputs, check_parameters, mask
from laddu_dask.kernels.backend import Array, Rows, Weights, padded, whole_vectors
from laddu_dask.kernels.column_layout import capacity, strides

if TYPE_CHECKING:
    from laddu_dask.kernels.cpu import CpuKernel

#: Numbers of an accumulator before the levels.
_META = 2


class Reduction:
    """See `laddu_dask.kernels.backend.Reduction`; arguments are those of `Kernel.bind`."""

    def __init__(
        self, kernel: CpuKernel, inputs: Rows, events: int, first_event: int, weights: Weights
    ) -> None:
        found = check_inputs(kernel.program, inputs, weights)
        if not 0 <= events <= capacity(inputs):
            raise ValueError(f"bind: {events} events of inputs {inputs.shape}")
        whole = last = address(found)  # weights of full tiles, and of a last one that is not full
        if found is ONES:
            last += 8 * (-events % TILE)
        elif events % LANES and found[events : whole_vectors(events)].any():
            raise ValueError("bind: the weight must be zero in the padding")
        kernel.prepare("reduce")
        self._entries = kernel.entries
        self.events, self._first_event = events, first_event
        self._kernel, self._inputs, self._weights = kernel, inputs, found
        self._rows = rows = kernel.program.n_outputs
        self._room = ctypes.c_double * (rows * (2 * LANES + FOLDS + 1))
        self._loop = kernel.loop
        self._events = address(inputs), *strides(inputs), whole, last, mask(found)

    def __call__(
        self, parameters: Array, sums: Accumulator, start: int = 0, stop: int | None = None
    ) -> None:
        """See `laddu_dask.kernels.backend.Reduction`."""
        events, rows = self.events, self._rows
        stop = events if stop is None else stop
        check_parameters(self._kernel.program, parameters)
        if sums.size != rows:
            raise ValueError(f"reduce: {sums.size} sums of {rows} rows")
        if start % TILE or start < 0 or stop > events or (stop % TILE and stop != events):
            raise ValueError(f"reduce: events {start} to {stop} of {events} are no tiles of {TILE}")
        room = self._room()  # lane sums and digits; of this call, for others may run beside it
        lanes_at, state_at = ctypes.addressof(room), ctypes.addressof(sums.memory)
        levels_at = state_at + 8 * _META
        numbers = parameters.tobytes()
        position = start
        while position < stop:
            entry = self._entries["reduce"]  # the newest; keeps its code while that runs
            position = self._loop(
                entry.address,
                *self._events,
                numbers,
                position,
                stop,
                rows,
                lanes_at,
                levels_at,
                levels_at + 8 * rows,
                state_at,
                lanes_at + 8 * 2 * LANES * rows,
            )
            if position < stop:
                self._add_one_by_one(parameters, sums, position, min(position + TILE, stop))
                position += TILE

    def _add_one_by_one(
        self, parameters: Array, sums: Accumulator, position: int, stop: int
    ) -> None:
        """A tile with a bad event: it is recorded and left out, the others count as always."""
        size = stop - position
        each = np.empty((self._rows, padded(size)))
        last = position + whole_vectors(size)
        self._kernel.map_part(self._inputs, self._weights, parameters, position, last, each)
        sums.add_tiles(each[:, :size], self._first_event + position)
