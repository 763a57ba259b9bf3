"""The private parts of Dask that the planner uses, one by one, on a real cluster.

When one of these fails after an update of Dask, `laddu_dask/runtime/planner_link.py` is what to
mend. Covers ME-08, DK-08.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from distributed import Client, LocalCluster, WorkerPlugin
from local_clusters import two_worker_processes

from laddu_dask.memory.worker_limits import WorkerLimits
from laddu_dask.runtime import planner_link

pytestmark = pytest.mark.cluster

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with two_worker_processes() as shared:
        yield shared


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as connected:
        yield connected


def answer_with_sum(dask_scheduler: Any) -> None:
    planner_link.serve(
        dask_scheduler, planner_link.PLANNER, lambda message: {"sum": sum(message["numbers"])}
    )


async def ask_for_sum(dask_worker: Any) -> Any:
    return await planner_link.ask_planner(dask_worker, {"numbers": [1, 2, 3]})


def test_a_worker_asks_the_scheduler(client: Client) -> None:
    """`handlers` of the scheduler, `scheduler` of a worker; no answer without a handler."""
    client.run_on_scheduler(
        lambda dask_scheduler: planner_link.stop_serving(dask_scheduler, planner_link.PLANNER)
    )
    assert set(client.run(ask_for_sum).values()) == {None}
    client.run_on_scheduler(answer_with_sum)
    assert [*client.run(ask_for_sum).values()] == [{"sum": 6}, {"sum": 6}]


def test_the_scheduler_asks_workers(client: Client) -> None:
    """`broadcast`; workers without the operation, or that do not exist, give no report."""
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    client.run(
        lambda dask_worker: planner_link.serve(
            dask_worker, planner_link.REPORT, lambda: {"from": dask_worker.address}
        ),
        workers=workers[:1],
    )

    async def ask(dask_scheduler: Any) -> Any:
        return await planner_link.ask_workers(
            dask_scheduler, [*dask_scheduler.workers, "tcp://127.0.0.1:1"], 5
        )

    assert client.run_on_scheduler(ask) == {workers[0]: {"from": workers[0]}}


def test_results_that_workers_keep(client: Client) -> None:
    """`tasks`, `who_has`, `who_wants`, `nbytes`, `client_key`."""
    future = client.submit(bytes, 1000, key="ours:1", pure=False)
    other = client.submit(bytes, 10, key=("theirs", 1), pure=False)
    client.gather([future, other])
    (kept,) = client.run_on_scheduler(
        lambda dask_scheduler: [tuple(k) for k in planner_link.kept_results(dask_scheduler, "ours")]
    )
    (where,) = client.who_has([future])["ours:1"]
    assert (kept[0], kept[1], kept[3]) == ("ours:1", where, client.id)
    assert 1000 <= kept[2] <= 1100
    nbytes = client.run(
        lambda dask_worker: planner_link.result_bytes(dask_worker, "ours:1"), workers=[where]
    )
    assert nbytes == {where: kept[2]}


def test_where_a_task_was_meant_to_run(client: Client) -> None:
    """`worker_restrictions` of a task, `running` of the scheduler."""
    one, other = sorted(client.scheduler_info(n_workers=-1)["workers"])
    wished = client.submit(
        bytes, 5, key="wished", workers=[one], allow_other_workers=True, pure=False
    )
    gone = client.submit(
        bytes, 5, key="gone", workers=["tcp://127.0.0.1:1"], allow_other_workers=True, pure=False
    )
    free = client.submit(bytes, 5, key="free", pure=False)
    client.gather([wished, gone, free])

    def ask(dask_scheduler: Any) -> list[bool]:
        return [
            planner_link.is_wished_elsewhere(dask_scheduler, key, worker)
            for key, worker in [
                ("wished", one),
                ("wished", other),
                ("gone", one),
                ("free", one),
                ("unknown", one),
            ]
        ]

    assert client.run_on_scheduler(ask) == [False, True, False, False, False]


def test_a_plugin_is_taken_off_the_workers(client: Client) -> None:
    """`worker_plugins` of the scheduler, `plugins` and `state` of a worker; again: nothing."""

    class Nothing(WorkerPlugin):
        name = "nothing"

        def teardown(self, worker: Any) -> None:
            worker.torn_down = True

    def serve(dask_worker: Any) -> None:
        async def drop(name: str, prefix: str) -> Any:
            return await planner_link.drop_plugin(dask_worker, name, prefix, 5)

        planner_link.serve(dask_worker, planner_link.ENDED, drop)

    client.run(serve)

    client.register_plugin(Nothing())

    async def remove(dask_scheduler: Any) -> None:
        await planner_link.remove_worker_plugin(dask_scheduler, "nothing", "nothing:", 5)

    def loaded() -> set[bool]:
        return set(client.run(lambda dask_worker: "nothing" in dask_worker.plugins).values())

    assert loaded() == {True}
    for _ in range(2):
        client.run_on_scheduler(remove)
        assert loaded() == {False}
    assert [*client.run(lambda dask_worker: dask_worker.torn_down).values()] == [True, True]
    assert client.run_on_scheduler(
        lambda dask_scheduler: "nothing" not in dask_scheduler.worker_plugins
    )


def test_numbers_of_a_worker(client: Client) -> None:
    """`memory_manager` and its fractions, `state.nbytes`, `data`, `local_directory`, `status`."""
    kept = client.submit(bytes, 10**6, pure=False)
    kept.result()
    (where,) = client.who_has([kept])[kept.key]
    told = client.run(
        lambda dask_worker: planner_link.limits_of(dask_worker, {"host": 1000}).to_dict()
    )
    limits = {worker: WorkerLimits.from_dict(numbers) for worker, numbers in told.items()}
    info = client.scheduler_info(n_workers=-1)["workers"]
    for worker, found in limits.items():
        assert found.memory_limit == info[worker]["memory_limit"]
        assert found.fraction == 0.6  # Dask's own `target`
        assert found.total is not None
        assert found.available is not None
        assert 10**7 < found.rss < found.total
        assert found.taken == found.rss - 1000
        assert found.disk_free is not None
        assert found.disk_free > 0
        assert (found.spilled, found.paused, found.held) == (0, False, {"host": 1000})
        assert (found.managed >= 10**6) == (worker == where)
