"""Workers with different memory limits, real processes: each keeps what it has room for.

The limits are enforced: Dask moves results to disk, pauses and kills, and none of that may happen.
Covers DK-06, DK-08, ST-03, T-55.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest
from distributed import Client, SpecCluster, get_worker
from local_clusters import workers_with_limits

import laddu_dask as ld
from laddu_dask.errors import MemoryBudgetError

pytestmark = pytest.mark.cluster

cloudpickle.register_pickle_by_value(sys.modules[__name__])

MIB = 1 << 20
EVENTS = 32 * MIB  # 256 MiB of one column of numbers
SMALL, BIG = 480 * MIB, 1200 * MIB
A, X = ld.parameter("a", initial=0.5), ld.scalar("x")


def rows(start: int, stop: int) -> dict[str, Any]:
    return {"x": np.arange(start, stop) / EVENTS}


def likelihood(**options: Any) -> ld.Likelihood:
    mc = ld.Dataset.from_ranges(rows, ["x"], rows=EVENTS, identity="ramp")
    data = ld.Dataset.from_ranges(rows, ["x"], rows=10_000, identity="ramp")
    term = ld.NLL(1 + A * X, data=data, accepted_mc=mc, name="signal")
    return ld.Likelihood([term], ld.Execution(**({"normalization": "general"} | options)))


@pytest.fixture(scope="module")
def cluster() -> Iterator[SpecCluster]:
    with workers_with_limits(SMALL, BIG) as shared:
        yield shared


@pytest.fixture
def client(cluster: SpecCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as connected:
        yield connected


def limits(client: Client) -> dict[str, int]:
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {address: worker["memory_limit"] for address, worker in workers.items()}


def dask_has_not_acted(client: Client) -> bool:
    """Neither moved a result to disk nor paused."""

    def look(dask_worker: Any) -> bool:
        return not getattr(dask_worker.data, "slow", ()) and dask_worker.status.name == "running"

    return all(client.run(look).values())


def test_a_small_worker_does_not_shrink_the_big_one(client: Client) -> None:
    """DK-06, DK-08: all is resident, though half of it would not fit into the small one."""
    small, big = sorted(limits(client), key=limits(client).__getitem__)
    with likelihood(cluster=client, partitions=32, storage="resident") as used:
        plan = used.plan()
        planned = {process.name: process for process in plan.processes}
        assert planned[small].budget_bytes < 0.6 * SMALL
        assert planned[small].resident_bytes < 8 * EVENTS // 2 < planned[big].resident_bytes
        value = used.value()
        info = {worker.address: worker for worker in used.report().workers}
        assert info[big].partitions > info[small].partitions > 0
        assert dask_has_not_acted(client)
        for address, limit in limits(client).items():
            assert info[address].peak_resident_bytes < 0.7 * limit
    with likelihood(storage="streaming") as here:
        assert here.value() == value


def hog(nbytes: int) -> None:
    """Take memory that nobody accounts for."""
    worker: Any = get_worker()
    worker.hog = np.ones(nbytes // 8)


def test_unmanaged_memory_leaves_less_room(client: Client) -> None:
    """DK-08: a worker that is full already is left out of the plan, and the numbers are told."""
    small, big = sorted(limits(client), key=limits(client).__getitem__)
    client.submit(hog, 200 * MIB, workers=[small], pure=False).result()
    try:
        with likelihood(cluster=client, storage="streaming") as used:
            plan = used.plan()
            assert [process.name for process in plan.processes] == [big]
            (note,) = plan.notes
            assert note.startswith(f"{small} has no room for events: memory limit 480.0 MiB")
            assert "unmanaged" in note
            assert note in str(plan)
        client.submit(hog, 700 * MIB, workers=[big], pure=False).result()
        with pytest.raises(MemoryBudgetError, match="no worker of the cluster has memory left"):
            likelihood(cluster=client).plan()
    finally:
        client.run(lambda dask_worker: vars(dask_worker).pop("hog", None) is None)


def test_arrays_that_travel_are_counted(client: Client) -> None:
    """DK-06: events of the client go to every worker; refused before they do."""
    x = np.zeros(40 * MIB)
    data = ld.Dataset.from_arrays(scalars={"x": x})
    term = ld.NLL(1 + A * X, data=data, accepted_mc=data, name="signal")
    with pytest.raises(MemoryBudgetError, match="are arrays of this process") as caught:
        ld.Likelihood([term], ld.Execution(cluster=client, normalization="general")).plan()
    assert caught.value.requested == 2 * x.nbytes
    assert caught.value.remaining < caught.value.requested
