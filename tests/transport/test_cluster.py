"""Evaluations on a real Dask cluster of two worker processes, with failures aimed at them.

The payload works on integers, so "equal" means equal bit for bit with the same computation done
here. Covers DK-02, DK-09, DK-10, DK-11, DK-15, DK-16, DK-17.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from distributed import Client, LocalCluster
from integer_payload import (
    PARTITIONS,
    Integers,
    expected,
    partitions_held,
    request,
    wait_until,
)
from local_clusters import two_worker_processes

from laddu_dask.errors import DataError, EvaluationError, ExecutionError
from laddu_dask.runtime import versions
from laddu_dask.runtime.cluster import ClusterSession
from laddu_dask.runtime.worker_memory import NAME as MEMORY
from laddu_dask.runtime.worker_plugin import operation_name, plugin_name

pytestmark = pytest.mark.cluster

# However the tests are imported, workers get its functions.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with two_worker_processes() as shared:
        yield shared


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as fresh:
        yield fresh


def plugins_on(client: Client) -> set[str]:
    def names(dask_worker: Any) -> list[str]:
        ours = [name for name in dask_worker.plugins if name.startswith("laddu-dask-")]
        ours.remove(MEMORY)  # one of the cluster, which stays
        return ours + [op for op in dask_worker.handlers if op.startswith("laddu_dask_eval")]

    return {name for found in client.run(names).values() for name in found}


def nothing_left(client: Client) -> bool:
    return not client.who_has() and not plugins_on(client)


# ------------------------------------------------------------------------------------- calm


def test_calm_evaluations_are_exact_with_one_message_per_worker(
    client: Client, tmp_path: Path
) -> None:
    """DK-09, DK-11: shipped and prepared once; data spread evenly; one message per worker."""
    payload = Integers(tmp_path)
    with ClusterSession(client, payload, PARTITIONS) as session:
        assert session.direct
        assert partitions_held(session) == [6, 6]
        for theta in ((1, 2, 3, 4), (5, -6, 7, -8), (0, 0, 0, 1)):
            records = session.evaluate(request(*theta))
            assert records == expected(payload, request(*theta))
            assert list(records) == list(range(PARTITIONS))
            assert session.last is not None
            assert (session.last.messages, session.last.rebuilt) == (2, 0)


def test_worker_info_measures_each_worker(client: Client, tmp_path: Path) -> None:
    with ClusterSession(client, Integers(tmp_path), PARTITIONS) as session:
        infos = session.worker_info()
    assert {info.address for info in infos} == set(client.ncores())
    for info in infos:
        assert info.nthreads == 1
        assert info.memory_limit is not None
        assert info.memory_limit > 2**26
        assert 2**24 < info.resident_bytes <= info.peak_resident_bytes < 2**34


def test_close_leaves_nothing_on_the_cluster_and_the_client_open(
    client: Client, tmp_path: Path
) -> None:
    session = ClusterSession(client, Integers(tmp_path), PARTITIONS)
    session._hold.every = 0.0  # have a sign of life sent as well
    session.evaluate(request())
    assert plugins_on(client) == {
        plugin_name(session.session),
        operation_name(session.session),
    }
    session.close()
    session.close()
    wait_until(lambda: nothing_left(client), "an empty cluster")
    assert client.status == "running"
    with pytest.raises(ExecutionError, match="session was closed"):
        session.evaluate(request())


def test_forgotten_session_is_cleaned_up(client: Client, tmp_path: Path) -> None:
    session = ClusterSession(client, Integers(tmp_path), PARTITIONS)
    session.evaluate(request())
    del session
    gc.collect()
    wait_until(lambda: nothing_left(client), "an empty cluster")


def test_two_sessions_at_once_do_not_see_each_other(client: Client, tmp_path: Path) -> None:
    payloads = [Integers(tmp_path, seed) for seed in (1, 2)]
    wrong: list[int] = []

    def fit(session: ClusterSession, payload: Integers) -> None:
        for k in range(20):
            asked = request(k, 1, 2, 3)
            if session.evaluate(asked) != expected(payload, asked):
                wrong.append(k)

    with (
        ClusterSession(client, payloads[0], PARTITIONS) as one,
        ClusterSession(client, payloads[1], PARTITIONS) as two,
    ):
        threads = [
            threading.Thread(target=fit, args=arguments)
            for arguments in zip((one, two, one), (*payloads, payloads[0]), strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        one.close()
        assert two.evaluate(request()) == expected(payloads[1], request())


# ------------------------------------------------------------------------- kinds of clusters


def test_address_scheduler_file_and_cluster_object_are_accepted(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    payload, file = Integers(tmp_path), tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": cluster.scheduler_address}))
    for where in (cluster.scheduler_address, file, str(file), cluster):
        with ClusterSession(where, payload, PARTITIONS) as session:
            assert session.evaluate(request()) == expected(payload, request())
            opened = session.client
        assert opened.status == "closed"
    wait_until(lambda: nothing_left(client), "an empty cluster")


def test_unsuitable_clusters_are_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    payload = Integers(tmp_path)
    with pytest.raises(ExecutionError, match="is a int") as caught:
        ClusterSession(3, payload, PARTITIONS)
    assert caught.value.option == "cluster"
    with pytest.raises(ExecutionError, match="no scheduler file"):
        ClusterSession(tmp_path / "absent.json", payload, PARTITIONS)
    with pytest.raises(ExecutionError, match="at least one partition"):
        ClusterSession(cluster, payload, 0)
    closed = Client(cluster, set_as_default=False)
    closed.close()
    with pytest.raises(ExecutionError, match="client is closed"):
        ClusterSession(closed, payload, PARTITIONS)

    async def asynchronous() -> None:
        address = cluster.scheduler_address
        async with Client(address, asynchronous=True, set_as_default=False) as client:
            with pytest.raises(ExecutionError, match="is asynchronous"):
                ClusterSession(client, payload, PARTITIONS)

    asyncio.run(asynchronous())


def test_workers_with_other_versions_are_refused(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = versions.version
    monkeypatch.setattr(
        versions, "version", lambda name: "0.1" if name == "llvmlite" else real(name)
    )
    with pytest.raises(ExecutionError, match=r"llvmlite 0\.1 here but") as caught:
        ClusterSession(client, Integers(tmp_path), PARTITIONS)
    assert caught.value.worker in {f"worker {address}" for address in client.ncores()}
    assert caught.value.versions["llvmlite"] == ["0.1", real("llvmlite")]
    assert nothing_left(client)


# ------------------------------------------------------------------------------------ errors


def test_error_of_the_model_arrives_with_its_class_and_fields(
    client: Client, tmp_path: Path
) -> None:
    """DK-17: not retried, and the next evaluation is fine."""
    payload = Integers(tmp_path)
    with ClusterSession(client, payload, PARTITIONS) as session:
        with pytest.raises(EvaluationError, match=r"the intensity is -1\.5") as caught:
            session.evaluate(request(fail="model"))
        error = caught.value
        assert not session._route._detours  # workers that were not waited for are not blamed
        assert type(error) is EvaluationError
        assert (error.term, error.event, error.value) == ("signal", 12345, -1.5)
        assert session.evaluate(request()) == expected(payload, request())


def test_unexpected_error_arrives_with_the_traceback_of_the_worker(
    client: Client, tmp_path: Path
) -> None:
    payload = Integers(tmp_path)
    with ClusterSession(client, payload, PARTITIONS) as session:
        with pytest.raises(ExecutionError, match="ZeroDivisionError: division by zero") as caught:
            session.evaluate(request(fail="bug"))
        assert caught.value.worker in client.ncores()
        assert "in evaluate" in caught.value.traceback
        assert session.evaluate(request()) == expected(payload, request())


def test_failing_recipe_raises_its_own_error_and_leaves_nothing(
    client: Client, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="no column 'px'") as caught:
        ClusterSession(client, Integers(tmp_path, bad_recipe="data"), PARTITIONS)
    assert (caught.value.file, caught.value.column) == ("a.parquet", "px")
    with pytest.raises(ExecutionError, match="preparing partition 5 failed with ZeroDivision") as e:
        ClusterSession(client, Integers(tmp_path, bad_recipe="crash"), PARTITIONS)
    assert e.value.partition == 5
    wait_until(lambda: nothing_left(client), "an empty cluster")


# ----------------------------------------------------------------------- routes, lost streams


def test_every_route_gives_the_same_records(client: Client, tmp_path: Path) -> None:
    payload = Integers(tmp_path)

    def unplug(dask_worker: Any, operation: str) -> None:
        del dask_worker.handlers[operation]

    with ClusterSession(client, payload, PARTITIONS) as session:
        session._route.direct = False
        assert session.evaluate(request()) == expected(payload, request())
        session._route.direct = True
        one = [*client.ncores()][:1]
        client.run(unplug, operation=operation_name(session.session), workers=one)
        assert session.evaluate(request()) == expected(payload, request())
        assert session.last is not None
        assert session.last.messages == 2


def test_lost_stream_to_the_scheduler_is_survived(cluster: LocalCluster, tmp_path: Path) -> None:
    """Dask cancels every future of the client; the recipes are submitted anew."""
    payload = Integers(tmp_path)
    with (
        Client(cluster, set_as_default=False) as client,
        ClusterSession(client, payload, PARTITIONS) as session,
    ):
        futures = [copies[0] for copies in session._prepared.copies.values()]
        client.loop.add_callback(client.scheduler_comm.comm.abort)
        wait_until(lambda: all(f.status == "cancelled" for f in futures), "a lost stream")
        for _ in range(3):
            assert session.evaluate(request()) == expected(payload, request())


# ------------------------------------------------------------------------------- membership


def test_worker_killed_during_an_evaluation_and_then_again_between_two(tmp_path: Path) -> None:
    """DK-15, DK-16: the records are equal, and the restarted worker takes its share again."""
    payload = Integers(tmp_path)
    with two_worker_processes() as cluster, Client(cluster, set_as_default=False) as client:
        with ClusterSession(client, payload, PARTITIONS) as session:
            results: list[dict[int, bytes]] = []
            asked = request(hold=True)
            thread = threading.Thread(target=lambda: results.append(session.evaluate(asked)))
            thread.start()
            wait_until((tmp_path / "victim").exists, "an evaluation under way")
            victim = int((tmp_path / "victim").read_text())
            assert victim in {worker.pid for worker in cluster.workers.values()}
            os.kill(victim, signal.SIGKILL)
            thread.join()
            assert results == [expected(payload, request())]
            everybody_works(session, payload, 2)

            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
            assert session.evaluate(request(9, 8, 7, 6)) == expected(payload, request(9, 8, 7, 6))
            everybody_works(session, payload, 2)

            cluster.scale(3)
            everybody_works(session, payload, 3)
        wait_until(lambda: nothing_left(client), "an empty cluster")


def everybody_works(session: ClusterSession, payload: Integers, workers: int) -> None:
    """Evaluate until the partitions are evenly spread over `workers`; every result is exact."""

    def spread() -> bool:
        assert session.evaluate(request()) == expected(payload, request())
        return partitions_held(session) == [PARTITIONS // workers] * workers

    wait_until(spread, f"{workers} workers with equal shares")


def test_stopped_workers_are_worked_around_or_reported(tmp_path: Path) -> None:
    """One stopped: second copies on the other, released later. All stopped: a clear error."""
    payload = Integers(tmp_path)
    with (
        two_worker_processes() as cluster,
        Client(cluster, set_as_default=False) as client,
        ClusterSession(client, payload, PARTITIONS, ask_after=0.4, patience=3.0) as session,
    ):
        first, second = (worker.pid for worker in cluster.workers.values())
        try:
            os.kill(first, signal.SIGSTOP)
            assert session.evaluate(request()) == expected(payload, request())
            assert session.last is not None
            assert session.last.rebuilt == 6
            os.kill(second, signal.SIGSTOP)
            with pytest.raises(ExecutionError, match="were not answered for") as caught:
                session.evaluate(request())
            assert caught.value.unanswered == list(range(PARTITIONS))
            assert caught.value.waited > 3.0
        finally:
            os.kill(first, signal.SIGCONT)
            os.kill(second, signal.SIGCONT)
        session.view.slow_until.clear()  # as time would do

        def released() -> bool:
            assert session.evaluate(request()) == expected(payload, request())
            return all(len(copies) == 1 for copies in session._prepared.copies.values())

        wait_until(released, "second copies released")
        wait_until(lambda: partitions_held(session) == [6, 6], "equal shares")
