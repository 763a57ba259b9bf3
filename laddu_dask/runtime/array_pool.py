"""Arrays whose memory is used again.

An allocator gives large arrays back to the system when they are dropped, and the system clears the
pages of the next ones: for chunks of events that took longer than to prepare them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from laddu_dask.forks import renewed
from laddu_dask.kernels.column_layout import aligned, room_bytes

#: References to room that is not in use: the list's, the loop's, and that of who counts them.
_UNUSED = 3
#: Bytes that a pool keeps when nobody uses them. Clearing the pages of three megabytes anew takes a
#: millisecond, in which 50 000 events are read.
IDLE_BYTES = 1 << 25


class ArrayPool:
    """Gives out memory again that no array refers to any more; used from any thread.

    Parameters
    ----------
    idle_bytes
        What `trim` leaves of memory that is not in use.
    """

    def __init__(self, idle_bytes: int = IDLE_BYTES) -> None:
        self.idle_bytes = idle_bytes
        self._rooms: dict[int, list[npt.NDArray[np.uint8]]] = {}
        self._lock = renewed(self, "_lock", threading.Lock)

    def __reduce__(self) -> tuple[type[ArrayPool], tuple[int]]:
        """Another process begins with none."""
        return ArrayPool, (self.idle_bytes,)

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike = float) -> Any:
        """An array that begins with a cache line; what is in it is left from others."""
        # A power of two, to fit arrays of similar size: what nobody writes to takes no memory.
        size = 1 << (room_bytes(shape, dtype) - 1).bit_length()
        with self._lock:
            known = self._rooms.setdefault(size, [])
            for room in known:
                # Every view of it, also of a view, refers to the array that owns the memory.
                if sys.getrefcount(room) == _UNUSED:
                    break
            else:
                room = np.empty(size, dtype=np.uint8)
                known.append(room)
            return aligned(room, shape, dtype)

    def trim(self, most: int | None = None) -> None:
        """Keep at most so many bytes of memory that is not in use, in small pieces rather."""
        most = self.idle_bytes if most is None else most
        with self._lock:
            idle = 0
            for size in sorted(self._rooms):
                kept = []
                for room in self._rooms[size]:
                    if sys.getrefcount(room) == _UNUSED:
                        if idle + size > most:
                            continue
                        idle += size
                    kept.append(room)
                self._rooms[size] = kept
