"""Many evaluations leave scheduler tasks, memory, open files and threads where they were."""

from __future__ import annotations

import gc
import os
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest
from distributed import Client
from integer_payload import PARTITIONS, Integers, expected, request
from process_cluster import ProcessCluster

from laddu_dask.runtime.cluster import ClusterSession

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])

MIB = 1 << 20


def usage(dask_worker: Any = None) -> dict[str, int]:
    """Open files, threads, memory and living objects of a process."""
    gc.collect()
    process = psutil.Process()
    return {
        "files": process.num_fds(),
        "threads": threading.active_count(),
        "resident": process.memory_info().rss,
        "objects": len(gc.get_objects()),
        "data": len(dask_worker.data) if dask_worker is not None else 0,
        "pid": os.getpid(),
    }


def of_scheduler(dask_scheduler: Any) -> dict[str, int]:
    """What a scheduler keeps for us: tasks, and events of our topic."""
    topics = dask_scheduler._broker._topics if hasattr(dask_scheduler, "_broker") else {}
    return {
        "tasks": len(dask_scheduler.tasks),
        "events": sum(len(topic.events) for name, topic in topics.items() if "laddu" in name),
        "clients": len(dask_scheduler.clients),
    }


def check_no_leak(warm: int, evaluations: int, growth: int, folder: Path) -> None:
    """Nothing is more after many evaluations than after a few; `growth` bytes may be noise.

    Threads of pools start when they are first needed, so a few more of them are no leak.
    """
    payload = Integers(folder)
    asked = request()
    right = expected(payload, asked)
    with ProcessCluster(folder) as cluster, ExitStack() as stack:
        for _ in range(2):
            cluster.start_worker()
        client = stack.enter_context(Client(cluster.address, set_as_default=False, timeout=60))
        client.wait_for_workers(2, timeout=120)
        session = stack.enter_context(ClusterSession(client, payload, PARTITIONS))
        session._hold.every = 0.5  # many signs of life, as in hours of a fit

        def evaluate(times: int) -> None:
            for _ in range(times):
                assert session.evaluate(asked) == right

        evaluate(warm)
        before = {"client": usage(), **client.run(usage)}
        tasks = client.run_on_scheduler(of_scheduler)
        evaluate(evaluations)
        after = {"client": usage(), **client.run(usage)}
        assert client.run_on_scheduler(of_scheduler)["events"] == tasks["events"]
        assert client.run_on_scheduler(of_scheduler)["clients"] == tasks["clients"]
        assert client.run_on_scheduler(of_scheduler)["tasks"] <= PARTITIONS + 2
        for name, then in before.items():
            now = after[name]
            assert now["pid"] == then["pid"]
            assert now["data"] <= PARTITIONS + 2, name
            assert now["files"] <= then["files"] + 4, name
            assert now["threads"] <= then["threads"] + 4, name
            assert now["objects"] - then["objects"] < evaluations // 2, name
            assert now["resident"] - then["resident"] < growth, name


def test_five_hundred_evaluations_leave_nothing(tmp_path: Path) -> None:
    check_no_leak(100, 500, 24 * MIB, tmp_path)


@pytest.mark.slow
def test_ten_thousand_evaluations_leave_nothing(tmp_path: Path) -> None:
    check_no_leak(1000, 10_000, 24 * MIB, tmp_path)
