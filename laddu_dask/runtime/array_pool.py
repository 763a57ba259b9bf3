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

from laddu_dask.kernels.column_layout import aligned, room_bytes

#: References to room that is not in use: the list's, the loop's, and that of who counts them.
_UNUSED = 3


class ArrayPool:
    """Gives out memory again that no array refers to any more; used from any thread.

    It keeps as much as was in use at the same time.
    """

    def __init__(self) -> None:
        self._rooms: dict[int, list[npt.NDArray[np.uint8]]] = {}
        self._lock = threading.Lock()

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike = float) -> Any:
        """An array that begins with a cache line; what is in it is left from others."""
        size = room_bytes(shape, dtype)
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
