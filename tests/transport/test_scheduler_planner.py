"""The planner on the scheduler of a real cluster: grants, refusals, and how leases end.

Tasks reserve and allocate like the preparation of partitions, under keys of the same form. Covers
DK-07, DK-08, ME-04, ME-11, T-48, T-54, T-55.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import cloudpickle
import numpy as np
import pytest
from distributed import Client, LocalCluster, get_worker
from local_clusters import two_worker_processes

import laddu_dask as ld
from laddu_dask.errors import ExecutionError, MemoryBudgetError
from laddu_dask.memory import MemoryBudget
from laddu_dask.runtime import scheduler_planner
from laddu_dask.runtime.scheduler_planner import (
    close_account,
    open_account,
    planner_state,
    register_planner,
)
from laddu_dask.runtime.worker_memory import NAME, SessionMemory, TaskRoom, memory_of
from laddu_dask.runtime.worker_plugin import PartitionService, SessionPayload

pytestmark = pytest.mark.cluster

MIB = 1 << 20
GIVE_UP = 60.0
"""Bound on waiting for something that comes by itself; no test depends on how long it takes."""

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Kept:
    """What a task keeps; Dask counts its bytes."""

    def __init__(self, nbytes: int) -> None:
        self.numbers = np.ones(nbytes // 8)

    def __sizeof__(self) -> int:
        return int(self.numbers.nbytes)


def prepare(memory: SessionMemory, nbytes: int, tier: Any = "resident", fail: str = "") -> Kept:
    worker = get_worker()
    room = TaskRoom(memory_of(worker), memory, worker.get_current_task())
    room.reserve(tier, nbytes, "signal/data")
    if fail == "raise":
        raise ValueError("after the reservation")
    if fail == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return Kept(nbytes if tier == "resident" else 0)


SUBMITTED: list[Any] = []


class Session:
    """Prepares parts under the keys of a session."""

    def __init__(self, client: Client, name: str, **limits: Any) -> None:
        self.client, self.name = client, name
        self.memory = SessionMemory(name, client.id, **limits)

    def key(self, part: int) -> str:
        return f"laddu-prep:{self.name}:{part}:0"

    def prepare(self, part: int, worker: str, nbytes: int, **options: Any) -> Any:
        future = self.client.submit(
            prepare,
            self.memory,
            nbytes,
            **{"allow_other_workers": False, **options},
            key=self.key(part),
            workers=[worker],
            pure=False,
        )
        SUBMITTED.append(future)
        return future


def state(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.run_on_scheduler(planner_state)
    return found


def leases(client: Client) -> dict[tuple[str, str, str], int]:
    return {
        (lease["owner"], lease["worker"], lease["resource"]): lease["nbytes"]
        for lease in state(client)["leases"]
    }


def pool(client: Client, worker: str, resource: str = "host") -> dict[str, Any]:
    (found,) = (
        p for p in state(client)["pools"] if (p["name"], p["resource"]) == (worker, resource)
    )
    return dict(found)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + GIVE_UP
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with two_worker_processes() as shared:
        yield shared


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as connected:
        connected.sync(register_planner, connected)
        yield connected
        for part in SUBMITTED:  # an expected error holds its test's variables
            part.release()
        SUBMITTED.clear()
        wait_until(lambda: not leases(connected), "every lease ends with its test")


@pytest.fixture
def workers(client: Client) -> list[str]:
    return sorted(client.scheduler_info(n_workers=-1)["workers"])


def test_granted_while_a_key_lives(client: Client, workers: list[str]) -> None:
    """DK-07: from the request of its task to its release, and counted where it is."""
    session = Session(client, "s1")
    parts = [session.prepare(i, workers[i % 2], (i + 1) * MIB) for i in range(4)]
    assert [part.result() and None for part in parts] == [None] * 4
    assert leases(client) == {
        (session.key(i), workers[i % 2], "host"): (i + 1) * MIB for i in range(4)
    }
    there = pool(client, workers[0])
    assert there["reserved"] == 4 * MIB
    assert there["remaining"] == there["capacity"] - 4 * MIB
    parts.pop(2).release()
    wait_until(lambda: pool(client, workers[0])["reserved"] == MIB, "release with the key")


def test_a_refusal_says_what_was_wanted_and_what_remains(
    client: Client, workers: list[str]
) -> None:
    """ME-04: two limits, that of the session and that of the worker, to the byte."""
    limits = dict.fromkeys(workers, 10 * MIB)
    session = Session(client, "s2", limits=limits)
    session.prepare(0, workers[0], 6 * MIB).result()
    with pytest.raises(MemoryBudgetError, match="host budget of this session") as caught:
        session.prepare(1, workers[0], 4 * MIB + 1).result()
    error = caught.value
    assert (error.requested, error.remaining) == (4 * MIB + 1, 4 * MIB)
    assert (error.worker, error.resource, error.label) == (workers[0], "host", "signal/data")
    assert "memory limit" in str(error)
    session.prepare(2, workers[0], 4 * MIB).result()
    capacity = pool(client, workers[1])["capacity"]
    huge = Session(client, "s3").prepare(0, workers[1], capacity + 2**40)
    with pytest.raises(MemoryBudgetError, match="of the host memory on") as caught:
        huge.result()
    assert caught.value.requested == capacity + 2**40
    assert 0 < caught.value.remaining <= capacity + 2**30


def test_a_worker_that_was_not_there_gets_the_budget_too(
    client: Client, workers: list[str]
) -> None:
    """ME-01, ME-10: resolved with its own numbers at its first request, and kept from then on."""
    budget = MemoryBudget.parse("10 MiB").to_plain()
    session = Session(client, "s20", limits={"tcp://gone:1": MIB}, budget=budget)
    session.prepare(0, workers[0], 7 * MIB).result()
    with pytest.raises(MemoryBudgetError, match="host budget of this session") as caught:
        session.prepare(1, workers[0], 4 * MIB).result()
    assert (caught.value.requested, caught.value.remaining) == (4 * MIB, 3 * MIB)
    share = MemoryBudget.parse("50% available").to_plain()
    left = pool(client, workers[1])["remaining"]
    with pytest.raises(MemoryBudgetError) as caught:
        Session(client, "s21", budget=share).prepare(0, workers[1], left).result()
    # What is free changes a little from one look to the next.
    assert abs(caught.value.remaining - left // 2) < left // 20


def test_two_sessions_share_the_pools(
    client: Client, cluster: LocalCluster, workers: list[str]
) -> None:
    """DK-07: of two clients, who do not know of each other."""
    with Client(cluster, set_as_default=False) as other:
        mine, theirs = Session(client, "s4"), Session(other, "s5")
        half = pool(client, workers[0])["remaining"] // 2
        mine.prepare(0, workers[0], 8).result()
        big = theirs.prepare(0, workers[0], half, tier="spilled")
        big.result()
        # Promised, not allocated: the book alone keeps them apart.
        disk = pool(client, workers[0], "disk")
        assert disk["reserved"] == half
        with pytest.raises(MemoryBudgetError) as caught:
            mine.prepare(1, workers[0], disk["capacity"] + 2**40, tier="spilled").result()
        assert caught.value.resource == "disk"
        assert state(other)["leases"] == state(client)["leases"]
    wait_until(lambda: len(leases(client)) == 1, "the other client's leases end with it")
    assert list(leases(client)) == [(mine.key(0), workers[0], "host")]


def test_a_task_that_fails_gives_back(client: Client, workers: list[str]) -> None:
    """T-48, T-54: an error after the reservation; the same key may then be asked for again."""
    session = Session(client, "s6")
    failed = session.prepare(0, workers[0], MIB, fail="raise")
    with pytest.raises(ValueError, match="after the reservation"):
        failed.result()
    wait_until(lambda: not leases(client), "release with the error")
    failed.release()


def test_a_worker_that_dies_takes_its_leases_along(client: Client, workers: list[str]) -> None:
    """T-55: killed without a word; Dask prepares again elsewhere, and that asks for itself."""
    session = Session(client, "s7")
    kept = [session.prepare(i, workers[i], MIB) for i in range(2)]
    movable = session.prepare(2, workers[0], 2 * MIB, allow_other_workers=True)
    for part in [*kept, movable]:
        part.result()
    assert pool(client, workers[0])["reserved"] == 3 * MIB
    pid = client.run(os.getpid)[workers[0]]
    kept.pop(0).release()
    os.kill(pid, signal.SIGKILL)

    def redone() -> bool:
        found = leases(client)
        places = [where for (owner, where, _), n in found.items() if owner == session.key(2)]
        return places not in ([], [workers[0]]) and len(found) == 2

    wait_until(redone, "prepared again on a worker that asked for the bytes")
    client.wait_for_workers(2, timeout=GIVE_UP)
    assert workers[0] not in {p["name"] for p in state(client)["pools"]}
    wait_until(
        lambda: all(p["capacity"] for p in state(client)["pools"] if p["resource"] == "host"),
        "the new worker told its numbers",
    )


def test_a_client_that_is_killed_gives_back(client: Client, workers: list[str]) -> None:
    """DK-07, T-48: kill -9 in the middle of its work."""
    text = """
        import sys, time
        from distributed import Client
        sys.path[:0] = sys.argv[3:]
        from test_scheduler_planner import MIB, Session
        client = Client(sys.argv[1], set_as_default=False)
        part = Session(client, "s8").prepare(0, sys.argv[2], 3 * MIB)
        part.result()
        print("ready", flush=True)
        time.sleep(600)
    """
    folders = [os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))]
    address = client.scheduler.address
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), address, workers[0], *folders],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert pool(client, workers[0])["reserved"] == 3 * MIB
    finally:
        process.kill()
        process.communicate()
    wait_until(lambda: not leases(client), "release with the client")


def test_data_that_dask_moves_takes_its_lease_along(client: Client, workers: list[str]) -> None:
    """DK-08, T-55: nobody asks for room there, yet it is counted there, and no longer here."""
    session = Session(client, "s9")
    part = session.prepare(0, workers[0], 5 * MIB)
    part.result()
    client.replicate([part], n=2)
    wait_until(lambda: len(leases(client)) == 2, "counted in both places")
    client.replicate([part], n=1)
    wait_until(lambda: len(leases(client)) == 1, "counted once")
    # What Dask counts for the object, which is a little more than what was asked for.
    assert 0 <= sum(p["reserved"] for p in state(client)["pools"]) - 5 * MIB < 100


def test_the_book_is_made_again_when_the_plugin_is(client: Client, workers: list[str]) -> None:
    """Unloaded and loaded: memory and disk, and what is released from then on."""
    session = Session(client, "s10", pass_bytes=MIB)
    parts = [session.prepare(0, workers[0], MIB), session.prepare(1, workers[1], 2 * MIB)]
    on_disk = session.prepare(2, workers[1], 3 * MIB, tier="spilled")
    for part in [*parts, on_disk]:
        part.result()
    before = leases(client)
    assert len(before) == 3
    client.unregister_scheduler_plugin(NAME)
    gone_meanwhile = parts.pop()
    gone_meanwhile.release()
    client.sync(register_planner, client)
    del before[session.key(1), workers[1], "host"]
    wait_until(lambda: leases(client) == before, "the book is as it was")
    on_disk.release()
    del before[session.key(2), workers[1], "disk"]
    wait_until(lambda: leases(client) == before, "and leases still end")


def test_without_a_planner_the_error_says_so(client: Client, workers: list[str]) -> None:
    """A scheduler that was replaced has none; nothing waits for ever."""

    def forget(dask_scheduler: Any) -> None:
        dask_scheduler.plugins.pop(NAME)
        dask_scheduler.handlers.pop("laddu_dask_memory")

    client.run_on_scheduler(forget)
    with pytest.raises(ExecutionError, match="it has no memory planner"):
        Session(client, "s11").prepare(0, workers[0], 8).result()
    client.sync(register_planner, client)


def sessions_on(client: Client) -> set[str]:
    """Services of sessions on the workers."""

    def names(dask_worker: Any) -> list[str]:
        return [n for n in dask_worker.plugins if n.startswith("laddu-dask-") and n != NAME]

    return {name for found in client.run(names).values() for name in found}


def test_a_session_ends_some_time_after_its_client(
    client: Client, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-48: its leases at once, its service a little later: a client may come back."""
    monkeypatch.setattr(scheduler_planner, "CLIENT_GRACE_SECONDS", 0.2)
    text = """
        import sys, time
        import numpy as np
        import laddu_dask as ld
        def rows(start, stop):
            return {"x": np.arange(start, stop) / 40000}
        mc = ld.Dataset.from_ranges(rows, ["x"], rows=40_000, identity="ramp")
        term = ld.NLL(1 + ld.parameter("a", initial=0.5) * ld.scalar("x"), data=mc, accepted_mc=mc)
        likelihood = ld.Likelihood([term], ld.Execution(
            cluster=sys.argv[1], backend="interpreter", normalization="general",
        ))
        likelihood.report()
        print("ready", flush=True)
        time.sleep(600)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), client.scheduler.address],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        held = leases(client)
        assert {owner.split(":")[0] for owner, _, _ in held} == {"laddu-prep", "laddu-pass"}
        assert len(sessions_on(client)) == 1
    finally:
        process.kill()
        process.communicate()
    wait_until(lambda: not leases(client), "leases end with the client")
    wait_until(lambda: not sessions_on(client), "the service ends after the client")


def test_a_session_that_ended_stays_ended(client: Client, workers: list[str]) -> None:
    """T-48: messages that were late begin nothing, are granted nothing, and leave no service."""
    client.sync(open_account, client, "s13")
    client.sync(close_account, client, "s13")
    client.sync(open_account, client, "s13")
    with pytest.raises(ExecutionError, match="its session was closed"):
        Session(client, "s13").prepare(0, workers[0], MIB).result()
    assert "s13" not in client.run_on_scheduler(known_sessions)
    client.register_plugin(PartitionService("s13", cast("SessionPayload", None)))
    wait_until(lambda: not sessions_on(client), "the service goes by itself")
    assert "s13" not in client.run_on_scheduler(known_sessions)


def known_sessions(dask_scheduler: Any) -> set[str]:
    """Sessions of which the scheduler knows."""
    services = {name.removeprefix("laddu-dask-") for name in dask_scheduler.worker_plugins}
    return services | {*dask_scheduler.plugins[NAME]._sessions}


def test_plans_follow_the_cluster() -> None:
    """A worker that is retired hands over what it holds with the leases; later plans know it."""
    with two_worker_processes() as cluster, Client(cluster, set_as_default=False) as client:
        client.sync(register_planner, client)
        one, other = sorted(client.scheduler_info(n_workers=-1)["workers"])
        session = Session(client, "s12")
        parts = [session.prepare(i, where, MIB) for i, where in enumerate((one, one, other))]
        for part in parts:
            part.result()

        def planned() -> set[str]:
            x = ld.scalar("x")
            data = ld.Dataset.from_arrays(scalars={"x": np.linspace(0, 1, 1000)})
            term = ld.NLL(1 + ld.parameter("a", initial=0.5) * x, data=data, accepted_mc=data)
            with ld.Likelihood([term], ld.Execution(cluster=client)) as likelihood:
                return {pool.name for pool in likelihood.plan().pools}

        assert planned() == {one, other}
        client.retire_workers([one])
        wait_until(
            lambda: [where for _, where, _ in leases(client)] == [other] * 3, "leases moved along"
        )
        assert planned() == {other}
        for part in parts:
            part.release()
        wait_until(lambda: not leases(client), "and end there")
        SUBMITTED.clear()
