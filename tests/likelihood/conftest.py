"""Two worker processes for the whole folder: their kernels compile once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import Client, LocalCluster
from local_clusters import two_worker_processes


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """A scheduler and two worker processes of one thread each."""
    with two_worker_processes() as shared:
        yield shared


@pytest.fixture(scope="session")
def shared_client(cluster: LocalCluster) -> Iterator[Client]:
    """A client that outlives the likelihoods which use it."""
    with Client(cluster, set_as_default=False) as connected:
        yield connected


@pytest.fixture
def client(shared_client: Client) -> Client:
    """The same with both workers there: one that the test before killed may be starting again."""
    shared_client.wait_for_workers(2, timeout=120)
    return shared_client
