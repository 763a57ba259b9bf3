"""Exact sums of single numbers by machine code: those of an accumulator, six times faster."""

from __future__ import annotations

import ctypes

import numpy as np

from laddu_dask.kernels.accumulator import FOLDS, LANES, TILE, Accumulator
from laddu_dask.kernels.arguments import address
from laddu_dask.kernels.backend import Array
from laddu_dask.kernels.driver import numbers_text
from laddu_dask.kernels.shared_code import shared_function
from laddu_dask.kernels.target import current_target

_ADD = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)


def add_numbers(numbers: Array, first_event: int, sums: Accumulator) -> None:
    """See `laddu_dask.kernels.backend.Backend`."""
    if sums.size != 1 or numbers.dtype != np.float64 or numbers.ndim != 1:
        raise ValueError(
            f"add_numbers: {numbers.dtype} {numbers.shape} of one sum, not of {sums.size}"
        )
    add = shared_function("add", numbers_text, _ADD, current_target())
    held = np.ascontiguousarray(numbers)
    room = (ctypes.c_double * (FOLDS + 1))()
    whole = len(held) - len(held) % LANES
    done = 0
    while done < whole:
        where = address(sums.levels), address(sums.words), ctypes.addressof(room)
        added = add(address(held) + 8 * done, whole - done, *where)
        sums.meta[0] += added
        done += added
        if done < whole:  # some that are not finite, or nearly so
            stop = min(done + TILE, whole)
            sums.add_rows(held[np.newaxis, done:stop], first_event + done)
            done = stop
    sums.add_rows(held[np.newaxis, whole:], first_event + whole)
