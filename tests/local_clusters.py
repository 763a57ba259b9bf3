"""Real worker processes on this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from distributed import LocalCluster


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
