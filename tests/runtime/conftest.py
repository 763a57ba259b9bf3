"""Two worker processes for the tests of this folder that need a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import Client
from local_clusters import two_worker_processes


@pytest.fixture(scope="session")
def shared_client() -> Iterator[Client]:
    """A client of two worker processes of one thread each."""
    with (
        two_worker_processes() as cluster,
        Client(cluster, set_as_default=False) as connected,
    ):
        yield connected


@pytest.fixture
def client(shared_client: Client) -> Client:
    """The same with both workers there: one that the test before killed may be starting again."""
    shared_client.wait_for_workers(2, timeout=120)
    return shared_client


@pytest.fixture
def mortal_client() -> Iterator[Client]:
    """Two worker processes for a single test, which may kill them."""
    with (
        two_worker_processes() as cluster,
        Client(cluster, set_as_default=False) as connected,
    ):
        yield connected
