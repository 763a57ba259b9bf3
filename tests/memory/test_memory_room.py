"""Room in a process of its own: a pool behind each tier."""

from __future__ import annotations

import gc

import pytest

from laddu_dask.errors import ExecutionError, MemoryBudgetError
from laddu_dask.memory import LeasePool, LocalRoom, Room


def test_each_tier_has_its_pool() -> None:
    """ME-03, ME-04: what one tier holds is not missing in another; a refusal changes nothing."""
    host, disk = LeasePool("host", 100), LeasePool("disk", 1000)
    room: Room = LocalRoom(host, disk)
    held = room.reserve("resident", 60, "signal/data, partition 0")
    with room.reserve("spilled", 900, "signal/mc, partition 1") as spilled:
        assert (spilled.bytes, host.reserved, disk.reserved) == (900, 60, 900)
    assert disk.reserved == 0
    with pytest.raises(MemoryBudgetError, match="partition 1 needs 41 bytes") as caught:
        room.reserve("resident", 41, "signal/data, partition 1")
    error = caught.value
    assert (error.resource, error.requested, error.remaining) == ("host", 41, 40)
    assert host.reserved == 60
    held.release()
    assert held.released
    assert host.reserved == 0


def test_a_tier_that_is_not_there_refuses() -> None:
    """No disk and no device were given, so nothing remains of them."""
    room = LocalRoom(LeasePool("host", 100))
    for tier in ("spilled", "device"):
        with pytest.raises(MemoryBudgetError) as caught:
            room.reserve(tier, 1, "x")  # type: ignore[arg-type]  # mypy widens the loop variable
        assert (caught.value.requested, caught.value.remaining) == (1, 0)
    with pytest.raises(ExecutionError, match="'cloud' is no tier of storage; there are resident"):
        room.reserve("cloud", 1, "x")  # type: ignore[arg-type]  # the refusal is what is tested


def test_what_nobody_holds_returns() -> None:
    """T-48: a partition that is dropped drops its lease."""
    host = LeasePool("host", 100)
    lease = LocalRoom(host).reserve("resident", 60, "x")
    assert host.reserved == 60
    del lease
    gc.collect()
    assert host.reserved == 0
