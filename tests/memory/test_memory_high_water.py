"""What work took of the process's memory, measured from outside."""

from __future__ import annotations

import gc
import pickle
import time
from pathlib import Path

import numpy as np
import pytest

from laddu_dask.memory import HighWater, Measured, MemoryReport, ProcessPlan, peak_resident_bytes
from laddu_dask.memory import high_water as module
from laddu_dask.memory.capacity import reset_peak

MIB = 1 << 20
#: Large arrays come from the system and go back to it at once. The rest of the process may take or
#: give back a little meanwhile.
LARGE, LITTLE = 96 * MIB, 12 * MIB


def array(nbytes: int = LARGE) -> np.ndarray:
    return np.ones(nbytes // 8)


def seen(nbytes: int) -> bool:
    """Whether the thread that looks has seen so much."""
    return any(w.peak - w.base > nbytes - LITTLE for w in [*module._PROCESS._open])


@pytest.fixture(autouse=True)
def _no_garbage() -> None:
    """What tests before have left must not be freed in the middle of a measurement."""
    gc.collect()


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the processes of a cluster."""
    monkeypatch.setattr(module._PROCESS, "may_reset", False)
    module.measure_exactly()


@pytest.fixture(params=["exact", "left alone", "impossible"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernel's own highest value, and where that may not or cannot begin anew."""
    monkeypatch.setattr(module._PROCESS, "may_reset", request.param != "left alone")
    if request.param == "impossible":
        monkeypatch.setattr(module, "reset_peak", lambda: False)


def test_peak_of_work_that_leaves_nothing(way: None) -> None:
    """ME-03: seen although it is gone when the work ends."""
    gauge = HighWater()
    with gauge.watch("signal/data"):
        kept = array()
        end = time.monotonic() + 60
        while module._PROCESS._sampler is not None and not seen(LARGE):
            assert time.monotonic() < end, "nobody looks"
            time.sleep(0.01)
        del kept
    assert abs(gauge.measured["signal/data"] - LARGE) < LITTLE
    assert abs(gauge.growth - LARGE) < LITTLE


def test_each_window_has_its_own_peak(exact: None) -> None:
    """A peak before a window began is not charged to it, nor forgotten for the one around it."""
    gauge = HighWater()
    with gauge.watch("outer"):
        del_me = array()
        del del_me
        with gauge.watch("inner"):
            small = array(LARGE // 2)
            del small
    assert abs(gauge.measured["outer"] - LARGE) < LITTLE
    assert abs(gauge.measured["inner"] - LARGE // 2) < LITTLE


def test_what_is_kept_counts_for_as_long_as_it_lives(exact: None) -> None:
    """DP-08: three partitions one after the other, then one more after they are gone."""

    class Partition:
        def __init__(self) -> None:
            self.numbers = array(LARGE // 2)

    gauge = HighWater()
    kept = []
    for _ in range(3):
        with gauge.watch("mc"):
            kept.append(Partition())
        gauge.keep("mc", kept[-1], LARGE // 2)
    assert abs(gauge.measured["mc"] - 3 * LARGE // 2) < LITTLE
    kept.clear()
    before = gauge.measured["mc"]
    with gauge.watch("mc"):
        Partition()
    assert gauge.measured["mc"] == before


def test_the_highest_ever_is_remembered() -> None:
    """To begin anew does not change what a report says of the process."""
    big = array()
    del big
    before = peak_resident_bytes()
    assert reset_peak()
    assert peak_resident_bytes(since_reset=True) < before - LARGE // 2
    assert peak_resident_bytes() >= before


def test_the_users_own_process_is_left_alone() -> None:
    """Others measure by the same number."""
    big = array()
    del big
    before = peak_resident_bytes(since_reset=True)
    with HighWater().watch("x"):
        pass
    assert peak_resident_bytes(since_reset=True) >= before


def test_where_the_kernel_cannot_begin_anew(tmp_path: Path) -> None:
    assert not reset_peak(tmp_path / "missing" / "clear_refs")


def test_a_gauge_belongs_to_its_process() -> None:
    gauge = HighWater()
    with gauge.watch("x"):
        pass
    assert pickle.loads(pickle.dumps(gauge)).measured == {}


# reports -----------------------------------------------------------------------------------


PLAN = ProcessPlan("tcp://a:1", 2, 1000 * MIB, 0, 90 * MIB, 0, 100 * MIB, {"signal/data": 80 * MIB})


def test_planned_and_measured_side_by_side() -> None:
    """ME-11: the error of the plan for a worker and for a data set."""
    assert str(PLAN) == (
        "tcp://a:1: 2 threads, holds 90.0 MiB and 0 B on disk, peak 100.0 MiB of 1000.0 MiB"
    )
    assert (PLAN.error, PLAN.errors) == (None, {})
    seen = {"tcp://a:1": Measured(110 * MIB, {"signal/data": 60 * MIB, "unknown": MIB})}
    (found,) = MemoryReport(processes=[PLAN]).with_measured(seen).processes
    assert found.error == pytest.approx(0.1)
    assert found.errors == {"signal/data": -0.25}
    assert str(found).splitlines() == [
        f"{PLAN}; measured 110.0 MiB (+10 %)",
        "  signal/data: planned 80.0 MiB, measured 60.0 MiB (-25 %)",
    ]
    told = found.to_dict()
    assert (told["error"], told["errors"]) == (found.error, found.errors)


def test_nothing_planned_has_no_error() -> None:
    empty = ProcessPlan("", 1, 10, 0, 0, 0, 0, measured_bytes=5)
    assert empty.error is None
    assert str(empty).endswith("peak 0 B of 10 B; measured 5 B")
