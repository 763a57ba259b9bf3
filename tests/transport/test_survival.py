"""Single faults of a cluster of processes: killed, stopped, retired, cut off, out of memory.

Every evaluation has the bits of the same computation done here. Covers DK-15, DK-16, DK-17, DK-18,
T-53 and T-55.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client
from integer_payload import (
    GIVE_UP,
    PARTITIONS,
    Integers,
    expected,
    partitions_held,
    request,
    wait_until,
)
from process_cluster import ProcessCluster

from laddu_dask.errors import ExecutionError
from laddu_dask.memory import MemoryPlan
from laddu_dask.runtime import balance, cluster_link, prepared
from laddu_dask.runtime.cluster import ClusterSession
from laddu_dask.runtime.scheduler_planner import capacity_of

pytestmark = pytest.mark.cluster

TIMEOUT = 120


@contextmanager
def processes(
    folder: Path, workers: int = 2, nanny: bool = False, relayed: int = 0, **options: Any
) -> Iterator[tuple[ProcessCluster, Client]]:
    """A cluster with so many workers, some behind relays, and a client."""
    extra = options.pop("worker", ())
    with ProcessCluster(folder / "cluster", **options) as cluster:
        for number in range(workers):
            cluster.start_worker(*extra, nanny=nanny, relayed=number < relayed)
        with Client(cluster.address, set_as_default=False, timeout=60) as client:
            client.wait_for_workers(workers, timeout=TIMEOUT)
            yield cluster, client


def exact(session: ClusterSession, payload: Integers, times: int = 1) -> None:
    """Evaluate; every record is right to the last bit."""
    for k in range(times):
        assert session.evaluate(request(k, 2, 3, 4)) == expected(payload, request(k, 2, 3, 4))


def until_shares(session: ClusterSession, payload: Integers, shares: list[int]) -> None:
    """Evaluate until workers hold so many partitions; every result is exact."""

    def reached() -> bool:
        exact(session, payload)
        return partitions_held(session) == shares

    wait_until(reached, f"shares {shares}")


def in_background(work: Callable[[], Any]) -> Future[Any]:
    """Start some work."""
    pool = ThreadPoolExecutor(1)
    outcome = pool.submit(work)
    pool.shutdown(wait=False)
    return outcome


# preparing ---------------------------------------------------------------------------------


def test_a_worker_killed_while_preparing(tmp_path: Path) -> None:
    payload = Integers(tmp_path, bad_recipe="hold")
    with processes(tmp_path) as (_, client):
        outcome = in_background(lambda: ClusterSession(client, payload, PARTITIONS))
        wait_until((tmp_path / "victim").exists, "a partition being prepared")
        os.kill(int((tmp_path / "victim").read_text()), signal.SIGKILL)
        with outcome.result() as session:
            payload.bad_recipe = ""
            exact(session, payload, 2)
            assert partitions_held(session) == [PARTITIONS]


@pytest.mark.parametrize("workers", [1, 2])
def test_all_workers_killed_while_preparing(workers: int, tmp_path: Path) -> None:
    """What was wished of them is prepared by those that their nannies start."""
    payload = Integers(tmp_path, bad_recipe="hold")
    with processes(tmp_path, workers=workers, nanny=True) as (cluster, client):
        outcome = in_background(
            lambda: ClusterSession(client, payload, PARTITIONS, patience=GIVE_UP)
        )
        wait_until((tmp_path / "victim").exists, "a partition being prepared")
        for worker in cluster.workers:
            worker.kill()
        with outcome.result() as session:
            payload.bad_recipe = ""
            exact(session, payload)


def test_the_only_worker_that_can_read_some_files_is_killed(tmp_path: Path) -> None:
    """The nanny's new worker reads them too, by another address."""
    payload = Integers(tmp_path)
    with processes(tmp_path, nanny=True) as (cluster, client):
        pids = client.run(os.getpid)
        reader = next(worker for worker, pid in pids.items() if pid == cluster.workers[0].pid)
        readers = {partition: [reader] for partition in range(0, PARTITIONS, 3)}
        with ClusterSession(client, payload, PARTITIONS, readers=readers) as session:
            exact(session, payload)
            assert cluster.workers[0].kill()
            exact(session, payload, 2)
            assert reader not in client.ncores()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "while"])
def test_a_worker_stopped_before_or_while_preparing(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To Dask it seems to be at work; what it was to prepare is prepared by the other."""
    monkeypatch.setattr(cluster_link, "ANSWER_SECONDS", 8.0)
    monkeypatch.setattr(prepared, "LOOK_SECONDS", 0.5)
    payload = Integers(tmp_path, bad_recipe="hold" if when == "while" else "")
    with processes(tmp_path) as (cluster, client):
        if when == "before":
            cluster.workers[0].stop()
        outcome = in_background(
            lambda: ClusterSession(client, payload, PARTITIONS, ask_after=1.0, patience=60.0)
        )
        if when == "while":
            wait_until((tmp_path / "victim").exists, "a partition being prepared")
            os.kill(int((tmp_path / "victim").read_text()), signal.SIGSTOP)
        with outcome.result() as session:
            payload.bad_recipe = ""
            exact(session, payload, 2)
            for worker in cluster.workers:
                worker.go_on()
            session.view.slow_until.clear()  # as time would do
            exact(session, payload, 2)


@pytest.mark.slow
def test_a_stopped_worker_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Named once, planned for no more; the others begin at once. It is back when it answers."""
    monkeypatch.setattr(cluster_link, "ANSWER_SECONDS", 600.0)  # nobody waits for so long
    monkeypatch.setattr(cluster_link, "SILENT_SECONDS", 4.0)
    payload = Integers(tmp_path)
    plan = MemoryPlan.parse(None)
    with processes(tmp_path) as (cluster, client):
        both = {process.name for process in capacity_of(client, plan, 1.0).processes}
        cluster.workers[0].stop()
        try:
            (awake,) = capacity_of(client, plan, 1.0).processes
            with ClusterSession(client, payload, PARTITIONS) as session:
                exact(session, payload)
                assert partitions_held(session) == [PARTITIONS]
        finally:
            cluster.workers[0].go_on()
        told = [r.getMessage() for r in caplog.records if "left out" in r.getMessage()]
        (silent,) = both - {awake.name}
        assert told == [f"left out, since they do not answer: workers {silent}"]

        def is_back() -> bool:
            return {process.name for process in capacity_of(client, plan, 1.0).processes} == both

        wait_until(is_back, "both are planned for")


# members -----------------------------------------------------------------------------------


def test_a_retired_worker_leaves_even_shares_and_an_added_one_gets_its_own(tmp_path: Path) -> None:
    """Dask moves what a retired worker held; perhaps all of it to one worker."""
    payload = Integers(tmp_path)
    with (
        processes(tmp_path, workers=3) as (cluster, client),
        ClusterSession(client, payload, PARTITIONS) as session,
    ):
        assert partitions_held(session) == [4, 4, 4]
        addresses = [*client.ncores()]
        outcome = in_background(lambda: exact(session, payload, 40))
        client.retire_workers(addresses[:1])
        outcome.result()
        until_shares(session, payload, [6, 6])
        client.retire_workers(addresses[1:2])
        until_shares(session, payload, [12])
        cluster.start_worker()
        until_shares(session, payload, [6, 6])


def test_all_workers_are_killed_at_once(tmp_path: Path) -> None:
    """Dask lets a task wait for ever for a worker that is gone, if no other was there just then."""
    payload = Integers(tmp_path)
    with (
        processes(tmp_path, nanny=True) as (cluster, client),
        ClusterSession(client, payload, PARTITIONS) as session,
    ):
        exact(session, payload)
        for worker in cluster.workers:
            worker.kill()
        wait_until(lambda: not client.ncores(), "a cluster without workers")
        exact(session, payload, 2)
        until_shares(session, payload, [6, 6])


def test_a_restart_of_all_workers(tmp_path: Path) -> None:
    payload = Integers(tmp_path)
    with (
        processes(tmp_path, nanny=True) as (_, client),
        ClusterSession(client, payload, PARTITIONS) as session,
    ):
        exact(session, payload)
        client.restart_workers([*client.ncores()], timeout=TIMEOUT)
        exact(session, payload, 2)
        until_shares(session, payload, [6, 6])


def test_partitions_move_off_a_slow_worker_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers, so nobody suspects it; but every evaluation would wait for it."""
    monkeypatch.setattr(balance, "PACE_SECONDS", 0.1)
    payload = Integers(tmp_path)
    with (
        processes(tmp_path) as (cluster, client),
        ClusterSession(client, payload, PARTITIONS) as session,
    ):
        pids = [str(worker.pid) for worker in cluster.workers]

        def shares_with(*seconds: float) -> list[int]:
            paces = dict(zip(pids, seconds, strict=True))
            asked = request(1, 2, 3, 4, seconds=paces)
            assert session.evaluate(asked) == expected(payload, asked)
            return partitions_held(session)

        # A multiple of what a busy machine adds: 12 partitions are 2 and 10, or 1 and 11.
        wait_until(lambda: shares_with(0.06, 0.01)[0] <= 3, "a relieved worker")
        wait_until(lambda: shares_with(0.04, 0.04)[0] >= 5, "even shares")


# the network -------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["hole", "cut"])
def test_the_network_to_a_worker_fails_and_heals(fault: str, tmp_path: Path) -> None:
    """The scheduler hears from the worker all the time, and believes it healthy."""
    payload = Integers(tmp_path)
    with (
        processes(tmp_path, relayed=1) as (cluster, client),
        ClusterSession(client, payload, PARTITIONS, ask_after=0.5, patience=60.0) as session,
    ):
        exact(session, payload)
        relay = cluster.workers[0].relay
        assert relay is not None
        outcome = in_background(lambda: exact(session, payload, 5))
        getattr(relay, fault)()
        outcome.result()
        exact(session, payload, 2)
        relay.heal()
        session.view.slow_until.clear()  # as time would do

        def tidy() -> bool:
            exact(session, payload)
            return all(len(copies) == 1 for copies in session._prepared.copies.values())

        wait_until(tidy, "second copies released")


def test_every_worker_in_a_black_hole_ends_in_a_clear_error(tmp_path: Path) -> None:
    """A half-open connection never breaks: only a deadline of our own ends the wait."""
    payload = Integers(tmp_path)
    with (
        processes(tmp_path, relayed=2) as (cluster, client),
        ClusterSession(client, payload, PARTITIONS, ask_after=0.3, patience=2.0) as session,
    ):
        exact(session, payload)
        relays = [worker.relay for worker in cluster.workers if worker.relay is not None]
        for relay in relays:
            relay.hole()
        with pytest.raises(ExecutionError, match="were not answered for") as caught:
            session.evaluate(request())
        assert caught.value.unanswered == list(range(PARTITIONS))
        for relay in relays:
            relay.heal()
        session.view.slow_until.clear()
        exact(session, payload, 2)


def test_workers_that_only_the_scheduler_reaches(tmp_path: Path) -> None:
    payload = Integers(tmp_path)
    here = psutil.Process()

    def is_ours(port: int) -> bool:
        return any(link.laddr.port == port for link in here.net_connections("tcp"))

    with processes(tmp_path, relayed=2) as (cluster, client):
        for worker in cluster.workers:
            assert worker.relay is not None
            worker.relay.refuses = is_ours
        with ClusterSession(client, payload, PARTITIONS) as session:
            assert not session.direct
            exact(session, payload, 3)


def test_direct_calls_that_fail_in_mid_fit_go_through_the_scheduler(tmp_path: Path) -> None:
    """A firewall came up between this client and the workers."""
    payload = Integers(tmp_path)
    here = psutil.Process()
    with (
        processes(tmp_path, relayed=2) as (cluster, client),
        ClusterSession(client, payload, PARTITIONS, ask_after=2.0, patience=60.0) as session,
    ):
        exact(session, payload)
        relays = [worker.relay for worker in cluster.workers if worker.relay is not None]
        for relay in relays:
            relay.cut()
        for relay in relays:
            relay.refuses = lambda port: any(
                link.laddr.port == port for link in here.net_connections("tcp")
            )
            relay.heal()
        assert session.direct
        exact(session, payload, 3)


# the scheduler -----------------------------------------------------------------------------


def test_an_evaluation_outlives_a_stopped_scheduler(tmp_path: Path) -> None:
    payload = Integers(tmp_path)
    with (
        processes(tmp_path) as (cluster, client),
        ClusterSession(client, payload, PARTITIONS) as session,
    ):
        exact(session, payload)
        cluster.scheduler.send_signal(signal.SIGSTOP)
        try:
            exact(session, payload, 3)
        finally:
            cluster.scheduler.send_signal(signal.SIGCONT)
        exact(session, payload, 2)


@pytest.mark.slow
def test_a_stopped_scheduler_while_opening_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_link, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr("laddu_dask.runtime.cluster_resources.CLOSE_SECONDS", 1.0)
    with processes(tmp_path, workers=1) as (cluster, client):
        cluster.scheduler.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(ExecutionError, match=r"lost while .* prepared \(TimeoutError"):
                ClusterSession(client, Integers(tmp_path), PARTITIONS)
            with pytest.raises(ExecutionError, match=r"the Dask scheduler tcp:\S+ does not answer"):
                capacity_of(client, MemoryPlan.parse(None), 1.0)
        finally:
            cluster.scheduler.send_signal(signal.SIGCONT)


def test_a_fit_is_no_idleness(tmp_path: Path) -> None:
    """Direct evaluations are invisible to the scheduler, which ends idle clusters."""
    payload = Integers(tmp_path)

    def hurry(dask_scheduler: Any) -> None:
        dask_scheduler.idle_timeout, dask_scheduler.idle_since = 4.0, None
        watch = dask_scheduler.periodic_callbacks["idle-timeout"]
        watch.stop()
        watch.callback_time = 200.0
        watch.start()

    options = ("--idle-timeout", "1h")
    with processes(tmp_path, workers=1, scheduler_options=options) as (cluster, client):
        client.run_on_scheduler(hurry)
        with ClusterSession(client, payload, PARTITIONS) as session:
            end = time.monotonic() + 8.0
            while time.monotonic() < end:
                exact(session, payload)
            assert cluster.scheduler.poll() is None


# memory ------------------------------------------------------------------------------------


def check_killed_for_memory(failures: int, tmp_path: Path) -> None:
    """A recipe that eats memory is tried on so many more workers, then named."""
    settings = {
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(failures),
        "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
        "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
        "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
    }
    with (
        processes(
            tmp_path, nanny=True, settings=settings, worker=("--memory-limit", "350 MiB")
        ) as (_, client),
        pytest.raises(ExecutionError, match=r"prepared partition \d died, several times") as caught,
    ):
        ClusterSession(client, Integers(tmp_path, bad_recipe="eat"), PARTITIONS)
    text = str(caught.value)
    assert "a memory limit of 350 MiB" in text
    assert "Give a smaller Execution(memory=...), more partitions" in text
    # Dask blames all that a worker was given, so the lowest of these is named.
    assert caught.value.option == "memory"
    assert 0 <= caught.value.partition <= 5


def test_killed_for_memory_ends_in_a_clear_error(tmp_path: Path) -> None:
    check_killed_for_memory(0, tmp_path)


@pytest.mark.slow
def test_killed_for_memory_again_and_again_ends_in_a_clear_error(tmp_path: Path) -> None:
    check_killed_for_memory(3, tmp_path)


def test_a_partition_that_kills_every_worker_is_named(tmp_path: Path) -> None:
    """As one does whose kernel needs more memory than there is."""
    payload = Integers(tmp_path)
    with (
        processes(tmp_path, nanny=True) as (_, client),
        ClusterSession(client, payload, PARTITIONS) as session,
    ):
        session.limits = replace(session.limits, deaths=2)
        with pytest.raises(ExecutionError, match="2 workers died, one after the other") as caught:
            session.evaluate(request(die=True))
        assert 5 in caught.value.partitions
        assert "ran out of memory: workers have a memory limit of" in str(caught.value)
        exact(session, payload, 2)


def test_what_dask_moved_to_disk_is_reported(tmp_path: Path) -> None:
    """DK-08: a plan should rule it out; results are the same."""
    payload = Integers(tmp_path)

    def evict(dask_worker: Any) -> int:
        count = 0
        while dask_worker.data.fast:
            dask_worker.data.evict()
            count += 1
        return count

    with (
        processes(tmp_path) as (_, client),
        ClusterSession(client, payload, PARTITIONS) as session,
    ):
        assert [info.moved_to_disk for info in session.worker_info()] == [0, 0]
        assert set(client.run(evict).values()) == {6}
        assert [info.moved_to_disk for info in session.worker_info()] == [6, 6]
        exact(session, payload)
        assert [info.moved_to_disk for info in session.worker_info()] == [0, 0]
        logs = [file.read_text() for file in (tmp_path / "cluster").glob("worker-*.log")]
        assert [text.count("6 prepared partitions of session") for text in logs] == [1, 1]
