"""Two worker processes for the whole folder: their kernels compile once."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from distributed import Client, LocalCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """A scheduler and two worker processes of one thread each."""
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    ) as shared:
        yield shared


@pytest.fixture(scope="session")
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client that outlives the likelihoods which use it."""
    with Client(cluster, set_as_default=False) as connected:
        yield connected
