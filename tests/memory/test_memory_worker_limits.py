"""What a worker may use, from the numbers it reports."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laddu_dask.memory import devices
from laddu_dask.memory.worker_limits import WorkerLimits, lowest_fraction


def test_below_every_fraction_that_is_in_force() -> None:
    """DK-08: at the lowest of them Dask acts; `False` switches one off, and so does None."""
    assert lowest_fraction(0.6, 0.7, 0.8, 0.95) == 0.6
    assert lowest_fraction(False, False, 0.8, 0.95) == 0.8
    assert lowest_fraction(False, None) == 1.0


def test_pools_are_what_others_leave() -> None:
    """ME-08, DK-08: of 1000, Dask acts at 600; 150 are taken by what is not ours."""
    limits = WorkerLimits(
        memory_limit=1000, fraction=0.6, available=5000, rss=250, managed=120, taken=150,
        held={"host": 100}, disk_free=8000, devices={"GPU-1": 700},
    )  # fmt: skip
    assert limits.ceiling == 600
    assert limits.unmanaged == 130
    assert limits.capacity() == {"host": 450, "disk": 8000, "device:GPU-1": 700}
    # Ten share a machine: what is held is ours already, the rest is divided.
    assert limits.capacity(10) == {"host": 450, "disk": 800, "device:GPU-1": 70}
    assert limits.capacity(100)["host"] == 100 + 50


def test_a_worker_that_is_full_already_has_no_room() -> None:
    """DK-08: unmanaged memory above Dask's threshold; the numbers are told."""
    limits = WorkerLimits(memory_limit=2**30, fraction=0.6, rss=2**30, taken=2**30, paused=True)
    assert limits.capacity()["host"] == 0
    assert limits.describe() == (
        "memory limit 1.0 GiB, of which Dask leaves 60 %; 1.0 GiB resident, 0 B of it results, "
        "1.0 GiB unmanaged; paused by Dask"
    )


def test_without_limits_the_book_is_the_only_one() -> None:
    assert WorkerLimits().capacity() == {"host": 2**64 - 1, "disk": 0}
    assert "no limit" in WorkerLimits(spilled=1024).describe()
    assert "1.0 KiB spilled by Dask" in WorkerLimits(spilled=1024).describe()


SIZES = st.integers(0, 2**45)


@given(SIZES, st.floats(0.1, 1.0), SIZES, SIZES, SIZES, st.integers(1, 20))
def test_what_is_granted_stays_below_what_dask_tolerates(
    limit: int, fraction: float, taken: int, held: int, free: int, neighbours: int
) -> None:
    """DK-08: all leases and what is not ours together."""
    limits = WorkerLimits(
        memory_limit=limit,
        fraction=fraction,
        available=free,
        taken=taken,
        held={"host": held},
    )
    host = limits.capacity(neighbours)["host"]
    assert host == 0 or host + taken <= fraction * limit
    assert host <= held + free // neighbours


def test_numbers_travel() -> None:
    limits = WorkerLimits(memory_limit=7, held={"host": 3}, devices={"GPU-1": 5}, paused=True)
    assert WorkerLimits.from_dict({**limits.to_dict(), "added later": 1}) == limits


def test_numbers_at_rest() -> None:
    """ME-07: what is being allocated would be counted twice, as reserved and as taken."""
    calm = WorkerLimits(rss=100, taken=100, available=900, disk_free=70)
    busy = WorkerLimits(rss=500, taken=500, available=500, disk_free=20, paused=True)
    now = busy.at_rest(calm)
    assert (now.rss, now.paused) == (500, True)
    assert (now.taken, now.available, now.disk_free) == (100, 900, 70)


class _BrokenDriverError(Exception):
    pass


def _nvml(**functions: Any) -> SimpleNamespace:
    return SimpleNamespace(
        NVMLError=_BrokenDriverError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetUUID=lambda number: ["GPU-a", b"GPU-b"][number],
        nvmlDeviceGetMemoryInfo=lambda number: SimpleNamespace(free=10 * number),
        **functions,
    )


@pytest.fixture
def fresh_driver() -> Any:
    devices._driver.cache_clear()
    yield
    devices._driver.cache_clear()


def test_gpus_by_identity(monkeypatch: pytest.MonkeyPatch, fresh_driver: None) -> None:
    """ME-09: as the driver tells; older versions tell in bytes."""
    monkeypatch.setitem(sys.modules, "pynvml", _nvml())
    assert devices.device_memory() == {"GPU-a": 0, "GPU-b": 10}


def test_no_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch, fresh_driver: None) -> None:
    """ME-09: neither without the package nor without the driver is there anything."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert devices.device_memory() == {}
    devices._driver.cache_clear()

    def fail() -> None:
        raise _BrokenDriverError

    broken = _nvml()
    broken.nvmlInit = fail
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    assert devices.device_memory() == {}
