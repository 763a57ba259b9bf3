"""Leases: atomic, shared by copies, returned whatever happens, never more than there is."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laddu_dask.errors import MemoryBudgetError
from laddu_dask.memory import Lease, LeasePool, PhysicalMemory


def test_reserve_and_drop() -> None:
    """ME-05, AX-47: 300-byte pool."""
    pool = LeasePool("host", 300)
    lease = pool.reserve(200)
    assert (lease.bytes, pool.reserved, pool.remaining) == (200, 200, 100)
    del lease
    assert (pool.reserved, pool.remaining, pool.high_water) == (0, 300, 200)


def test_two_pools_share_one_memory() -> None:
    """ME-04, AX-47: two pools of 400 on 500 available; a refusal changes nothing."""
    memory = PhysicalMemory("host", 500)
    first, second = memory.pool("400 B", "first"), memory.pool("400 B", "second")
    held = first.reserve(300)
    assert second.remaining == 200
    with pytest.raises(MemoryBudgetError, match="cache of b needs 201 bytes") as caught:
        second.reserve(201, "cache of b")
    error = caught.value
    assert (error.resource, error.requested, error.remaining) == ("host", 201, 200)
    assert (second.reserved, second.high_water, memory.reserved) == (0, 0, 300)
    with second.reserve(200):
        assert (memory.reserved, memory.remaining) == (500, 0)
    held.release()
    assert memory.remaining == 500


def test_the_pool_is_asked_before_the_memory() -> None:
    """ME-04: both are too small; the error names the pool."""
    pool = PhysicalMemory("host", 50).pool("40 B", "small")
    with pytest.raises(MemoryBudgetError) as caught:
        pool.reserve(60)
    assert (caught.value.resource, caught.value.remaining) == ("small", 40)


def test_copies_share_one_reservation() -> None:
    """ME-05: bytes return with the last holder, and only once."""
    pool = LeasePool("host", 100)
    first = pool.reserve(60)
    second = copy.copy(first)
    third = copy.deepcopy(second)
    assert pool.reserved == 60
    first.release()
    first.release()
    assert first.released
    assert not second.released
    del second
    assert pool.reserved == 60
    third.release()
    assert pool.reserved == 0
    with pytest.raises(MemoryBudgetError, match="released lease"):
        third.copy()


def test_exceptions_generators_and_cycles_release() -> None:
    """T-48: nothing leaks through an error, an abandoned generator or a reference cycle."""
    pool = LeasePool("host", 100)

    def fail() -> None:
        with pool.reserve(40):
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        fail()
    assert pool.reserved == 0

    def chunks() -> Iterator[int]:
        with pool.reserve(40):
            yield 1
            yield 2

    running = chunks()
    next(running)
    assert pool.reserved == 40
    del running
    gc.collect()
    assert pool.reserved == 0

    holder: dict[str, object] = {"lease": pool.reserve(30)}
    holder["self"] = holder
    del holder
    gc.collect()
    assert (pool.reserved, pool.high_water) == (0, 40)


def test_a_finalizer_inside_the_lock_does_not_deadlock() -> None:
    """T-48: the collector may run a finalizer in the thread that holds the lock."""
    pool = LeasePool("host", 100)
    lease = pool.reserve(30)
    with pool.memory._settled():
        lease.release()
    assert pool.remaining == 100


def test_concurrent_reservations_never_exceed_the_capacity() -> None:
    """ME-06, AX-47: 32 threads of 10 bytes on 100; exactly 10 succeed."""
    pool = LeasePool("host", 100)
    start = threading.Barrier(32)

    def take(_: int) -> Lease | None:
        start.wait()
        try:
            return pool.reserve(10)
        except MemoryBudgetError:
            return None

    with ThreadPoolExecutor(32) as threads:
        leases = [lease for lease in threads.map(take, range(32)) if lease is not None]
    assert len(leases) == 10
    assert (pool.reserved, pool.remaining, pool.high_water) == (100, 0, 100)


def test_threads_that_take_copy_and_drop_leave_nothing() -> None:
    """ME-05, ME-06: many short leases over two pools of one memory."""
    memory = PhysicalMemory("host", 150)
    pools = [LeasePool("a", 100, memory), LeasePool("b", 100, memory)]
    seen: list[int] = []

    def work(seed: int) -> None:
        for step in range(200):
            pool = pools[(seed + step) % 2]
            try:
                lease = pool.reserve(1 + (seed * 7 + step) % 60)
            except MemoryBudgetError:
                continue
            with lease.copy():
                seen.append(memory.reserved)
                lease.release()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(seen) <= 150
    assert (memory.reserved, pools[0].reserved, pools[1].reserved) == (0, 0, 0)
    assert all(0 < pool.high_water <= 100 for pool in pools)


@given(
    capacities=st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 150)),
    steps=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 80), st.integers(0, 5))),
)
@settings(deadline=None)
def test_books_balance(capacities: tuple[int, int, int], steps: list[tuple[int, int, int]]) -> None:
    """ME-03 to ME-05: against a plain list of what is held."""
    memory = PhysicalMemory("host", capacities[2])
    pools = [LeasePool("a", capacities[0], memory), LeasePool("b", capacities[1], memory)]
    held: list[tuple[int, Lease]] = []
    high = [0, 0]
    for which, count, drop in steps:
        sums = [sum(lease.bytes for owner, lease in held if owner == pool) for pool in (0, 1)]
        fits = sums[which] + count <= capacities[which] and sum(sums) + count <= capacities[2]
        if fits:
            held.append((which, pools[which].reserve(count)))
            high[which] = max(high[which], sums[which] + count)
        else:
            with pytest.raises(MemoryBudgetError):
                pools[which].reserve(count)
        if drop < len(held) and drop < 2:
            held.pop(drop)
        expected = [sum(lease.bytes for owner, lease in held if owner == pool) for pool in (0, 1)]
        assert [pool.reserved for pool in pools] == expected
        assert memory.reserved == sum(expected)
        assert [pool.high_water for pool in pools] == high


def test_reports_and_texts() -> None:
    """ME-11: plain data for JSON and a line for people."""
    memory = PhysicalMemory("host", available=3 * 2**20, total=2**22)
    pool = memory.pool("50%", "worker 1")
    lease = pool.reserve(2**20)
    assert pool.report().to_dict() == {
        "name": "worker 1",
        "resource": "host",
        "capacity": 2**21,
        "reserved": 2**20,
        "remaining": 2**20,
        "high_water": 2**20,
    }
    assert str(pool.report()) == (
        "worker 1: 1.0 MiB of 2.0 MiB of host reserved, at most 1.0 MiB so far"
    )
    assert repr(lease) == "<Lease of 1.0 MiB on worker 1, held>"
    lease.release()
    assert repr(lease) == "<Lease of 1.0 MiB on worker 1, released>"


def test_a_lease_stays_in_its_process() -> None:
    """T-54: a pickled lease would be counted twice or never."""
    lease = LeasePool("host", 10).reserve(1)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(lease)


@pytest.mark.parametrize("count", [-1, 1.5, True, "3"])
def test_only_whole_numbers_are_reserved(count: object) -> None:
    """ME-04: a wrong number changes nothing."""
    pool = LeasePool("host", 10)
    with pytest.raises(MemoryBudgetError, match="whole number"):
        pool.reserve(count)  # type: ignore[arg-type]
    assert pool.reserved == 0


def test_unknown_availability_leaves_the_pool_as_the_limit() -> None:
    """ME-01: bytes can be budgeted where nothing is known of the machine."""
    pool = PhysicalMemory("host", None).pool("1 KiB")
    assert (pool.name, pool.capacity, pool.remaining) == ("host", 1024, 1024)
