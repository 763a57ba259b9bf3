"""Where the columns of prepared events lie in memory.

By rows, each column is one stream, and a kernel reads as many streams side by side as it has
columns. By vectors, the lanes of one vector of events of all columns lie together, shape (vectors,
columns, lanes), and the kernel reads a single stream. A value has the same bits either way.

Processors differ in how many streams they fetch ahead. Summing 41 columns of 10**6 events took 25
ms by rows and 11.5 ms by vectors on a Zen 4, 24 ms and 27 ms on a Xeon of the Sapphire Rapids
generation; reading the same bytes once took 11.5 ms and 20 ms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from laddu_dask.kernels.accumulator import LANES
from laddu_dask.kernels.backend import Rows, padded, whole_vectors
from laddu_dask.kernels.target import Target

#: So many streams are fetched ahead by every processor.
_FEW = 16
#: Bytes of a cache line, and of a vector of doubles in the widest registers.
_LINE_BYTES = 64


def prefers_vectors(columns: int, target: Target) -> bool:
    """Whether a processor reads so many columns faster when they lie together."""
    return columns > _FEW and target.processor.startswith("znver")


def aligned_empty(shape: Sequence[int], dtype: npt.DTypeLike = float) -> Any:
    """An array that begins with a cache line, as NumPy's own do not.

    A vector of eight doubles is a line long: in an array that begins elsewhere each is in two of
    them. Summing the 41 columns above took a tenth longer.
    """
    return aligned(np.empty(room_bytes(shape, dtype), dtype=np.uint8), shape, dtype)


def room_bytes(shape: Sequence[int], dtype: npt.DTypeLike) -> int:
    """Bytes that hold an array wherever a cache line begins in them."""
    return math.prod(shape) * np.dtype(dtype).itemsize + _LINE_BYTES


def aligned(room: npt.NDArray[np.uint8], shape: Sequence[int], dtype: npt.DTypeLike) -> Any:
    """The array in the room that begins with a cache line; see `room_bytes`."""
    first = -room.ctypes.data % _LINE_BYTES
    last = first + room_bytes(shape, dtype) - _LINE_BYTES
    return room[first:last].view(dtype).reshape(shape)


def empty_columns(columns: int, events: int, *, vectors: bool, dtype: npt.DTypeLike = float) -> Any:
    """Room for prepared events."""
    if vectors:
        return aligned_empty((whole_vectors(events) // LANES, columns, LANES), dtype)
    return aligned_empty((columns, padded(events)), dtype)


def put(columns: Any, first: int, rows: Rows, events: int) -> None:
    """Copy the first `events` events of rows to events `first` and following.

    `first` is a multiple of the lanes. What the last vector lacks is filled up as in the rows.
    """
    length = whole_vectors(events)
    if columns.ndim == 2:
        columns[:, first : first + length] = rows[:, :length]
        return
    pieces = rows[:, :length].reshape(len(rows), length // LANES, LANES)
    start = first // LANES
    columns[start : start + length // LANES] = pieces.transpose(1, 0, 2)


def capacity(columns: Rows) -> int:
    """Events that there is room for, the padding included."""
    return int(columns.shape[1] if columns.ndim == 2 else columns.shape[0] * LANES)


def strides(columns: Rows) -> tuple[int, int]:
    """Elements from one column to the next, and from one vector of events to the next."""
    if columns.ndim == 2:
        return columns.shape[1], LANES
    return LANES, columns.shape[1] * LANES


def as_rows(columns: Rows, start: int, stop: int) -> Any:
    """Events `start` to `stop` by rows; `start` is a multiple of the lanes."""
    if columns.ndim == 2:
        return columns[:, start:stop]
    pieces = columns[start // LANES : -(-stop // LANES)].transpose(1, 0, 2)
    return pieces.reshape(columns.shape[1], -1)[:, : stop - start]
