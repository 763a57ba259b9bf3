"""A cluster that adapts keeps the workers of a session while it is open, and no longer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client
from integer_payload import PARTITIONS, Integers, expected, request, wait_until
from local_clusters import two_worker_processes

from laddu_dask.runtime.cluster import ClusterSession
from laddu_dask.runtime.cluster_hold import ClusterHold


class Adaptive:
    """What matters of Dask's class."""

    def __init__(self, minimum: int, maximum: float) -> None:
        self.minimum = minimum
        self.maximum = maximum


def hold(adaptive: Any, session: str) -> ClusterHold:
    client: Any = SimpleNamespace(cluster=SimpleNamespace(_adaptive=adaptive))
    return ClusterHold(client, session)


def test_the_minimum_is_what_the_sessions_need_and_then_its_own_again() -> None:
    adaptive = Adaptive(1, 10)
    one, two = hold(adaptive, "one"), hold(adaptive, "two")
    one.keep_workers(4)
    two.keep_workers(6)
    assert adaptive.minimum == 6
    one.keep_workers(8)
    assert adaptive.minimum == 8
    one.release()
    assert adaptive.minimum == 6
    two.keep_workers(20)
    assert adaptive.minimum == 10
    two.release()
    two.release()
    assert adaptive.minimum == 1
    one.keep_workers(3)
    assert adaptive.minimum == 3


def test_clusters_that_do_not_adapt_are_left_alone() -> None:
    for cluster in (None, SimpleNamespace(), SimpleNamespace(_adaptive=None)):
        client: Any = SimpleNamespace(cluster=cluster)
        kept = ClusterHold(client, "one")
        kept.keep_workers(3)
        kept.release()


@pytest.mark.cluster
def test_an_adaptive_cluster_keeps_its_workers_during_a_session(tmp_path: Path) -> None:
    """To Dask they are idle: whenever it looks it would retire them."""
    payload = Integers(tmp_path)
    with (
        two_worker_processes() as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        adaptive = cluster.adapt(minimum=0, maximum=3, interval="1h", wait_count=2)
        with ClusterSession(client, payload, PARTITIONS) as session:
            assert adaptive.minimum == 2
            for _ in range(6):
                cluster.sync(adaptive.adapt)
                assert session.evaluate(request()) == expected(payload, request())
            assert len(client.ncores()) == 2
        assert adaptive.minimum == 0
        for _ in range(6):
            cluster.sync(adaptive.adapt)
        wait_until(lambda: not client.ncores(), "a cluster that has shrunk")
