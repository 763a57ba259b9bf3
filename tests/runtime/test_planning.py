"""Plans for processes that differ: who gets what, and how it is kept there. Nothing is read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import laddu_dask as ld
from laddu_dask.errors import ExecutionError, MemoryBudgetError
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.memory import MemoryPlan
from laddu_dask.memory.worker_limits import WorkerLimits
from laddu_dask.runtime import Execution, Model, Pass
from laddu_dask.runtime.capacity import Capacity, Process, cluster_capacity
from laddu_dask.runtime.planning import SessionPlan, plan_session

MIB = 1 << 20
LINE = Model(1 + ld.parameter("a", initial=0.5) * ld.scalar("x"))


def processes(*sizes: tuple[int, int]) -> Capacity:
    """Threads and budget of each."""
    return Capacity(tuple(Process(f"w{n}", t, b, 0) for n, (t, b) in enumerate(sizes)))


def never(start: int, stop: int) -> Any:
    raise AssertionError("a plan reads nothing")


def planned(n: int, capacity: Capacity, *, mixed: bool = False, **options: Any) -> SessionPlan:
    data = ld.Dataset.from_ranges(never, ["x"], rows=n, identity="never read")
    item = Pass("signal/data", data, LINE.compiled("linear").programs)
    execution = Execution(**({"backend": "interpreter"} | options))
    return plan_session([item], execution, capacity, mixed=mixed)


@pytest.mark.parametrize(
    ("threads", "tiles", "share"),
    [
        ((4,), [1, 1, 1], 3),  # one process has everything
        ((1, 1), [1, 1], 1),
        ((1, 1), [10], 10),  # a partition is not divided
        ((1, 1), [1, 1, 1], 2),  # two of three, at worst
        ((3, 1), [1] * 8, 6),  # in proportion to threads
        ((1,) * 8, [1, 0, 0], 1),
        ((2, 2), [], 0),
    ],
)
def test_share_of_the_busiest_process(
    threads: tuple[int, ...], tiles: list[int], share: int
) -> None:
    """DK-06: what a plan has to count with."""
    capacity = processes(*((t, 10**9) for t in threads))
    plan = planned(sum(tiles) * TILE, capacity, partitions=max(len(tiles), 1))
    assert plan.decisions[0].events == share * TILE


def test_processes_that_are_alike_are_planned_for_once() -> None:
    """Budgets measured twice are not the same; the smallest one counts, and no one is singled out.

    With one group a session deals partitions out in turn, as it always did.
    """
    capacity = processes((2, 1000 * MIB), (2, 1010 * MIB), (2, 990 * MIB))
    (group,) = capacity.groups
    assert (group.budget, group.turns) == (990 * MIB, ("w0", "w1", "w2"))
    assert planned(100_000, capacity).wishes() is None


def test_a_small_worker_does_not_shrink_the_big_one() -> None:
    """DK-06, T-55: 12 MiB of columns on workers with 16 MiB and 4 MiB: all of it is resident.

    With the smallest budget for both it would be streamed. Each keeps what it has room for.
    """
    n = 12 * MIB // 8
    capacity = processes((1, 16 * MIB), (1, 4 * MIB))
    plan = planned(n, capacity, partitions=48)
    assert plan.is_resident
    assert set(plan.tiers(0)) == {"resident"}
    small, big = plan.groups
    assert (small.group.turns, big.group.turns) == (("w1",), ("w0",))
    wishes = plan.wishes()
    assert wishes is not None
    counts = Counter(wishes)
    assert counts["w0"] > 2 * counts["w1"] > 0
    assert counts.total() == len(plan.partitions[0]) == 48
    for own in plan.groups:
        assert own.resident_bytes + own.transient_bytes <= own.group.budget
    homogeneous = planned(n, processes((1, 4 * MIB), (1, 4 * MIB)), partitions=48)
    assert not homogeneous.is_resident


def test_where_nobody_has_room_each_keeps_what_it_can() -> None:
    """DK-06: the big one keeps more partitions resident than the small one; the rest is read."""
    capacity = processes((1, 16 * MIB), (1, 6 * MIB))
    plan = planned(64 * MIB // 8, capacity, mixed=True, partitions=64)
    assert not plan.is_resident
    wishes, tiers = plan.wishes(), plan.tiers(0)
    assert wishes is not None
    kept = Counter(w for w, tier in zip(wishes, tiers, strict=True) if tier == "resident")
    assert kept["w0"] > kept["w1"] > 0
    assert "streaming" in tiers
    assert plan.decisions[0].strategy == "mixed"
    # One recipe for all: the chunk of whoever has the least.
    assert plan.chunk_events(0) == min(own.decisions[0].chunk_events for own in plan.groups)
    assert plan.decisions[0].chunk_events == plan.chunk_events(0)


def test_streaming_is_shared_by_speed_alone() -> None:
    """Nothing is kept, so memory does not matter beyond a chunk."""
    plan = planned(40 * TILE, processes((3, 50 * MIB), (1, 500 * MIB)), storage="streaming",
                   partitions=40)  # fmt: skip
    assert Counter(plan.wishes()) == {"w0": 30, "w1": 10}


def test_a_refusal_names_the_worker() -> None:
    """ME-04: which of them is too small even for a chunk."""
    capacity = processes((1, 50 * MIB), (1, 1000))
    with pytest.raises(MemoryBudgetError, match=r"on worker w1\)") as caught:
        planned(40 * TILE, capacity, storage="streaming")
    assert (caught.value.worker, caught.value.remaining) == ("w1", 1000)


# capacity of a cluster -----------------------------------------------------------------------


def state(**workers: dict[str, Any]) -> dict[str, Any]:
    """What the planner tells; each worker with its numbers and what others hold."""
    pools, told, leases = [], {}, []
    for name, facts in workers.items():
        limits = WorkerLimits(**facts.get("numbers", {}))
        held = facts.get("held", 0)
        for resource, capacity in limits.capacity(facts.get("neighbours", 1)).items():
            reserved = held if resource == "host" else 0
            pools.append(
                {
                    "name": name,
                    "resource": resource,
                    "capacity": capacity,
                    "reserved": reserved,
                    "remaining": max(capacity - reserved, 0),
                    "high_water": reserved,
                }
            )
        if held:
            leases.append(
                {"owner": "k", "worker": name, "resource": "host", "nbytes": held,
                 "session": "s9", "client": "Client-1", "label": ""}
            )  # fmt: skip
        told[name] = {
            "nthreads": facts.get("nthreads", 1),
            "neighbours": facts.get("neighbours", 1),
            "numbers": limits.to_dict() if "numbers" in facts else None,
        }
    return {"pools": pools, "leases": leases, "workers": told}


def test_capacity_of_workers() -> None:
    """DK-06: neighbours share a machine, Dask's limit counts, and what is unknown stays unknown."""
    machine = {"total": 8000, "available": 6000, "disk_free": 1000}
    known = state(
        a1={"nthreads": 4, "neighbours": 2,
            "numbers": {**machine, "memory_limit": 1000, "fraction": 0.6}},
        a2={"nthreads": 2, "neighbours": 2, "numbers": machine},
        b={"nthreads": 1, "numbers": {"memory_limit": 500, "fraction": 0.6, "disk_free": 700}},
    )  # fmt: skip

    def budgets(memory: Any) -> list[int]:
        found = cluster_capacity(known, MemoryPlan.parse(memory))
        assert [process.threads for process in found.processes] == [4, 2, 1]
        assert found.total_threads == 7
        assert [process.disk for process in found.processes] == [250, 250, 350]  # half of theirs
        return [process.budget for process in found.processes]

    assert budgets("400 B") == [400, 400, 300]  # Dask acts from 60 % of 500 on
    assert budgets("10% total") == [100, 400, 50]
    assert budgets("10% available") == [60, 300, 30]
    assert budgets(None) == [480, 2400, 240]


def test_what_others_hold_is_not_there_and_is_told() -> None:
    """ME-11, DK-07: a later session plans with what is left, and says who has the rest."""
    known = state(w={"numbers": {"memory_limit": 1000, "fraction": 0.6}, "held": 350})
    found = cluster_capacity(known, MemoryPlan.parse("100% available"))
    assert [process.budget for process in found.processes] == [250]
    assert found.notes == ("w: session s9 of Client-1 holds 350 B of host memory",)
    assert [pool.reserved for pool in found.pools if pool.resource == "host"] == [350]


def test_workers_on_which_dask_acted_are_told() -> None:
    """DK-08: results that it moved to disk are not resident, whoever they belong to."""
    numbers = {"memory_limit": 2048, "rss": 700, "spilled": 100}
    known = state(a={"numbers": numbers}, b={"numbers": {"memory_limit": 1000}})
    (note,) = cluster_capacity(known, MemoryPlan()).notes
    assert note.startswith("a is short of memory: memory limit 2.0 KiB")
    assert note.endswith("100 B spilled by Dask")


def test_workers_that_are_full_are_left_out_with_their_numbers() -> None:
    """DK-08: unmanaged memory above what Dask tolerates."""
    full = {"memory_limit": 1000, "fraction": 0.6, "rss": 700, "taken": 700}
    known = state(full={"numbers": full}, fine={"numbers": {"memory_limit": 1000}}, silent={})
    found = cluster_capacity(known, MemoryPlan())
    assert [process.name for process in found.processes] == ["fine"]
    told = "\n".join(found.notes)
    assert "full has no room for events: memory limit 1000 B, of which Dask leaves 60 %" in told
    assert "silent has no room for events: it has not reported its memory" in told
    with pytest.raises(MemoryBudgetError, match="no worker of the cluster has memory left"):
        cluster_capacity(state(full={"numbers": full}), MemoryPlan())
    with pytest.raises(ExecutionError, match="the cluster has no workers"):
        cluster_capacity(state(), MemoryPlan())


def test_arrays_of_the_client_travel_to_every_worker() -> None:
    """DK-06: they take their part of each budget, but not of this process's, which has them."""
    data = ld.Dataset.from_arrays(scalars={"x": np.zeros(MIB)})
    passes = [Pass("signal/data", data, LINE.compiled("linear").programs)]
    execution = Execution(backend="interpreter")
    (plan,) = plan_session(passes, execution, processes((1, 30 * MIB))).groups
    assert plan.group.budget == 30 * MIB - 8 * MIB
    with pytest.raises(MemoryBudgetError, match="are arrays of this process") as caught:
        plan_session(passes, execution, processes((1, 7 * MIB)))
    assert (caught.value.requested, caught.value.remaining) == (8 * MIB, 7 * MIB)
    here = Capacity((Process("", 1, 7 * MIB, 0),))
    assert plan_session(passes, execution, here).groups[0].group.budget == 7 * MIB
