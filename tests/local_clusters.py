"""Real worker processes on this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from distributed import LocalCluster, Nanny, Scheduler, SpecCluster


@contextmanager
def two_worker_processes() -> Iterator[LocalCluster]:
    """A scheduler and two workers of one thread each; nannies start a killed one again."""
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    ) as cluster:
        cluster.wait_for_workers(2, timeout=120)  # on a busy machine they may come later
        yield cluster


@contextmanager
def workers_with_limits(*limits: str | int) -> Iterator[SpecCluster]:
    """A scheduler, and a worker of one thread for each memory limit, under a nanny."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    options = {"nthreads": 1, "silence_logs": logging.CRITICAL, "dashboard_address": None}
    scheduler = {"cls": Scheduler, "options": {"port": 0, "host": "127.0.0.1", "dashboard": False}}
    workers = {
        number: {"cls": Nanny, "options": {**options, "memory_limit": limit}}
        for number, limit in enumerate(limits)
    }
    with SpecCluster(workers=workers, scheduler=scheduler) as cluster:
        cluster.wait_for_workers(len(limits), timeout=120)
        yield cluster
