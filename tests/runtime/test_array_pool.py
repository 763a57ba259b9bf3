"""Memory is used again when nothing refers to it, and never before."""

from __future__ import annotations

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laddu_dask.runtime.array_pool import ArrayPool

Array = NDArray[Any]


def place(array: Array) -> int:
    return int(array.ctypes.data)


def test_dropped_arrays_are_used_again() -> None:
    pool = ArrayPool()
    first = pool.empty((3, 8))
    assert (first.shape, first.dtype, place(first) % 64) == ((3, 8), np.float64, 0)
    where = place(first)
    other = pool.empty((3, 8))
    assert place(other) != where
    del first
    again = pool.empty((6, 4))
    assert place(again) == where  # as many bytes, whatever the shape
    assert place(pool.empty((480,), np.float32)) not in (where, place(other))


def test_any_view_keeps_its_memory() -> None:
    """A part, a transposed one, one of another type, and whatever holds one of these."""
    pool = ArrayPool()
    for view in (
        lambda a: a[1:, ::2],
        lambda a: a.T,
        lambda a: a.view(np.int64)[0],
        lambda a: memoryview(a),
        lambda a: {"kept": [a.reshape(-1)[3:4]]},
    ):
        kept: Any = view(pool.empty((4, 4)))
        others = [pool.empty((4, 4)) for _ in range(3)]
        for other in others:
            other[...] = 7.0
        array = kept["kept"][0] if isinstance(kept, dict) else np.asarray(kept)
        assert not any(np.shares_memory(array, other) for other in others)
        del kept, others, other, array
        gc.collect()


def test_threads_do_not_share_memory() -> None:
    pool = ArrayPool()

    def work(number: int) -> bool:
        good = True
        for _ in range(200):
            array = pool.empty((64,))
            array[...] = number
            good = good and bool((array == number).all())
        return good

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(8)))
    assert sum(map(len, pool._rooms.values())) <= 8


def test_idle_memory_is_limited() -> None:
    """What is in use stays, of the rest the small pieces."""
    pool = ArrayPool()
    used = pool.empty((1000,))
    used[...] = 5.0
    dropped = [pool.empty((size,)) for size in (10, 1000, 100_000)]
    del dropped
    pool.trim(1 << 14)
    assert {size: len(rooms) for size, rooms in pool._rooms.items() if rooms} == {
        1 << 8: 1,
        1 << 13: 2,
    }
    pool.trim(0)
    assert sum(map(len, pool._rooms.values())) == 1
    assert (used == 5.0).all()


def test_a_pool_travels_empty() -> None:
    pool = ArrayPool()
    pool.empty((100,))
    assert pickle.loads(pickle.dumps(pool))._rooms == {}
