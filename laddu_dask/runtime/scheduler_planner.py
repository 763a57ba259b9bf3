"""The planner on the scheduler: one book of all workers' memory, for all sessions and clients.

`MemoryPlanner` is a plugin of the scheduler. Before a worker prepares a partition it asks here for
the bytes; they are granted from that worker's pools, or refused with what remains. Leases end with
what they are for: the key is released or fails, the client goes, the worker goes. Each worker
reports its numbers and its table of what is held, from which pools are resized and the book is
corrected: for data that Dask moved, for messages that were lost, and after the plugin was loaded
anew, when the book begins empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from distributed import Client, SchedulerPlugin

from laddu_dask.errors import MemoryBudgetError
from laddu_dask.memory import MemoryBudget, MemoryPlan, PoolReport
from laddu_dask.memory.pools import Claim, PoolBook
from laddu_dask.memory.worker_limits import WorkerLimits
from laddu_dask.runtime.capacity import Capacity, cluster_capacity, pools_and_leases
from laddu_dask.runtime.cluster_hold import first_worker
from laddu_dask.runtime.cluster_link import (
    ANSWER_SECONDS,
    ask,
    check_cluster,
    install,
    silent_workers,
)
from laddu_dask.runtime.planner_link import (
    PLANNER,
    ask_workers,
    forget_keys,
    is_wished_elsewhere,
    kept_results,
    remove_worker_plugin,
    serve,
)
from laddu_dask.runtime.worker_memory import (
    NAME,
    PARTITION_PREFIX,
    PASS_PREFIX,
    WorkerMemory,
)
from laddu_dask.runtime.worker_plugin import plugin_name

logger = logging.getLogger(__name__)

REPORT_WAIT_SECONDS = 2.0
"""Deadline of a question to a worker."""
CLIENT_GRACE_SECONDS = 60.0
"""A client that lost its connection may come back for so long; then its sessions are ended."""

_ENDS = ("released", "forgotten", "erred")


class MemoryPlanner(SchedulerPlugin):
    """See the top of the file. Runs on the scheduler's event loop, which makes it one at a time."""

    name = NAME
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        """Make the book from what the scheduler and the workers know, and begin to answer."""
        self.scheduler = scheduler
        self.book = PoolBook()
        self.limits: dict[str, WorkerLimits] = {}
        self._numbers: dict[tuple[str, str], int] = {}  # of the newest request: worker, owner
        self._sessions: dict[str, str] = {}  # session -> client
        self._ended: set[str] = set()  # their names do not come again
        for worker in scheduler.workers:
            self.book.join(worker, {})
        for kept in kept_results(scheduler, PARTITION_PREFIX):
            session = kept.key.split(":")[1]
            self._sessions[session] = kept.client
            self.book.adopt(
                Claim(kept.key, kept.worker, "host", kept.nbytes, session, kept.client, kept.key)
            )
        serve(scheduler, PLANNER, self.handle)
        if NAME in scheduler.worker_plugins:  # else workers report when they get it
            await self.refresh()

    # --------------------------------------------------------------------------- membership

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """A worker joined, or came back: empty, and without room until it tells its numbers."""
        self.book.join(worker, {})
        self._resize_neighbours(worker)

    def remove_worker(
        self, scheduler: Any, worker: str, *, stimulus_id: str, **kwargs: Any
    ) -> None:
        """A worker is gone, and what it held."""
        self.book.leave(worker)
        self.limits.pop(worker, None)
        self._numbers = {key: n for key, n in self._numbers.items() if key[0] != worker}
        self._resize_neighbours(worker)

    def remove_client(self, scheduler: Any, client: str) -> None:
        """A client is gone, and what its sessions held. Dask releases its keys itself."""
        self.book.release_client(client)
        sessions = [session for session, owner in self._sessions.items() if owner == client]
        for session in sessions:
            asyncio.get_running_loop().call_later(
                CLIENT_GRACE_SECONDS, self._end_session_later, session, client
            )

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, stimulus_id: str, **kwargs: Any
    ) -> None:
        """A partition was released, forgotten, or could not be prepared."""
        if finish in _ENDS and self.book.holds(key):
            for claim in self.book.release(key):
                self._numbers.pop((claim.worker, key), None)

    def begin_session(self, session: str, client: str) -> None:
        """A session begins, unless it has ended; its plugin goes when its client does."""
        if session not in self._ended:
            self._sessions[session] = client

    def end_session(self, session: str) -> None:
        """A session is over: release whatever it may still hold, and grant it no more."""
        self._ended.add(session)
        self._sessions.pop(session, None)
        for claim in self.book.release_session(session):
            self._numbers.pop((claim.worker, claim.owner), None)

    def _end_session_later(self, session: str, client: str) -> None:
        if client in self.scheduler.clients or self._sessions.get(session) != client:
            return
        self.end_session(session)
        ending = asyncio.ensure_future(_remove_service(self.scheduler, session))
        ending.add_done_callback(_log_failure)

    # ----------------------------------------------------------------------------- messages

    def handle(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a worker: a claim is granted or refused, a report only received."""
        worker = message["worker"]
        if worker not in self.scheduler.workers:
            return {"unknown": f"{worker} is not a worker of this cluster (any more)"}
        if worker not in self.book.workers:  # its arrival was announced before this plugin came
            self.book.join(worker, {})
        self._measure(worker, message["numbers"])
        if message["what"] == "claim":
            return self._claim(message)
        self._correct(message)
        return {"ended": self._left_behind(message["sessions"])}

    def _left_behind(self, sessions: list[str]) -> list[tuple[str, str]]:
        """Services of sessions that have ended: a worker that was stopped then still has them."""
        over = [session for session in sessions if session in self._ended]
        for session in over:  # perhaps registered by a message that was late
            self.scheduler.worker_plugins.pop(plugin_name(session), None)
        return [(plugin_name(session), _keys_of(session)) for session in over]

    def _measure(self, worker: str, numbers: Mapping[str, Any]) -> None:
        self.limits[worker] = WorkerLimits.from_dict(numbers)
        self.book.resize(worker, self.limits[worker].capacity(self.neighbours(worker)))

    def _resize_neighbours(self, worker: str) -> None:
        """Who comes or goes changes the share of the others on the same machine."""
        for other, limits in self.limits.items():
            if _host(other) == _host(worker) and other in self.book.workers:
                self.book.resize(other, limits.capacity(self.neighbours(other)))

    def neighbours(self, worker: str) -> int:
        """Workers on the same machine, itself included."""
        return max(Counter(map(_host, self.scheduler.workers))[_host(worker)], 1)

    def _claim(self, message: Mapping[str, Any]) -> dict[str, Any]:
        owner, worker, session = message["owner"], message["worker"], message["session"]
        client = message["client"]
        if session in self._ended or not self._is_wanted(owner, client):
            return {
                "unknown": f"{message['label']} is not wanted any more (key {owner}): it was "
                "cancelled, its session was closed, or its client left"
            }
        if message["where_planned"] and is_wished_elsewhere(self.scheduler, owner, worker):
            return {"elsewhere": True}
        self._sessions[session] = client
        self._set_limit(message)
        claim = Claim(
            owner,
            worker,
            message["resource"],
            message["nbytes"],
            session,
            client,
            message["label"],
        )
        try:
            self.book.grant(claim)
        except MemoryBudgetError as error:
            told = f"{error}. There: {self.limits[worker].describe()}."
            return {"refused": told, "fields": error.context}
        self._numbers[worker, owner] = message["number"]
        return {"granted": claim.nbytes}

    def _is_wanted(self, owner: str, client: str) -> bool:
        """Whether anybody would ever release a lease of this owner."""
        if owner.startswith(PASS_PREFIX):
            return client in self.scheduler.clients
        return owner in self.scheduler.tasks

    def _set_limit(self, message: Mapping[str, Any]) -> None:
        """At its first request on a worker a session's budget becomes a number, and stays it."""
        session, worker = message["session"], message["worker"]
        if self.book.limit_of(session, worker, "host") is not None:
            return
        limit = message["limit"]
        if limit is None and message["budget"] is not None:
            budget = MemoryBudget.from_plain(message["budget"])
            limits, others = self.limits[worker], self.neighbours(worker)
            total = None if limits.total is None else limits.total // others
            known = [n for n in (total, limits.memory_limit) if n is not None]
            try:
                limit = budget.resolve(
                    min(known, default=None), self.book.remaining(worker, "host")
                )
            except MemoryBudgetError:  # nothing is left there, which the grant will say
                limit = 0
        if limit is not None:
            self.book.limit(session, worker, "host", limit)

    def _correct(self, report: Mapping[str, Any]) -> None:
        """Make the book agree with a worker's table, but for what is being asked right now."""
        worker, number, table = report["worker"], report["number"], report["table"]

        def settled(owner: str) -> bool:
            asked = self._numbers.get((worker, owner), 0)
            return owner not in report["unanswered"] and asked <= number

        known = {(c.owner, c.resource): c for c in self.book.leases(worker)}
        told: dict[tuple[str, str], Claim] = {}
        for owner, held in table.items():
            client = held["client"] or self._sessions.get(held["session"], "")
            if held["session"] in self._ended or not self._is_wanted(owner, client):
                continue
            self._sessions.setdefault(held["session"], client)
            for resource, nbytes in held["nbytes"].items():
                told[owner, resource] = Claim(
                    owner, worker, resource, nbytes, held["session"], client, held["label"]
                )
        for where, claim in known.items():
            if where not in told and settled(claim.owner):
                self.book.release(claim.owner, worker, claim.resource)
                self._numbers.pop((worker, claim.owner), None)
        for where, claim in told.items():
            if settled(claim.owner) and claim != known.get(where):
                self.book.adopt(claim)

    # -------------------------------------------------------------------------------- state

    async def refresh(self) -> None:
        """Ask every worker for its numbers and table now."""
        workers = [*self.scheduler.workers]
        reports = await ask_workers(self.scheduler, workers, REPORT_WAIT_SECONDS)
        for report in reports.values():
            self.handle(report)

    def state(self) -> dict[str, Any]:
        """Everything, as plain data; `laddu_dask.runtime.capacity` reads it."""
        return {
            "pools": [pool.to_dict() for pool in self.book.report()],
            "leases": [vars(claim) for claim in self.book.leases()],
            "workers": {
                worker: {
                    "nthreads": known.nthreads,
                    "neighbours": self.neighbours(worker),
                    "numbers": None if worker not in self.limits else self.limits[worker].to_dict(),
                }
                for worker, known in self.scheduler.workers.items()
            },
        }


async def planner_state(dask_scheduler: Any) -> dict[str, Any]:
    """Body of a `client.run_on_scheduler`: the planner's state with numbers measured now."""
    planner = dask_scheduler.plugins[NAME]
    await planner.refresh()
    state: dict[str, Any] = planner.state()
    return state


def _begin(dask_scheduler: Any, session: str, client: str) -> None:
    """Body of a `client.run_on_scheduler`."""
    dask_scheduler.plugins[NAME].begin_session(session, client)


async def _end(dask_scheduler: Any, session: str, client: str, keys: tuple[str, ...]) -> None:
    """Body of a `client.run_on_scheduler`; without a planner there is nothing to end."""
    forget_keys(dask_scheduler, keys, client)
    planner = dask_scheduler.plugins.get(NAME)
    if planner is not None:
        planner.end_session(session)
    await _remove_service(dask_scheduler, session)


async def _remove_service(scheduler: Any, session: str) -> None:
    name = plugin_name(session)
    await remove_worker_plugin(scheduler, name, _keys_of(session), REPORT_WAIT_SECONDS)


def _keys_of(session: str) -> str:
    return f"{PARTITION_PREFIX}{session}:"


async def register_planner(client: Client) -> None:
    """Make sure that the scheduler has its planner and the workers report to it.

    The scheduler's part first: workers report as soon as they have theirs.
    """
    await asyncio.wait_for(client.register_plugin(MemoryPlanner()), ANSWER_SECONDS)
    await install(client, WorkerMemory())


def capacity_of(client: Client, memory: MemoryPlan, patience: float) -> Capacity:
    """What the workers of a connected client have; the planner is put there if need be.

    Parameters
    ----------
    patience
        Seconds to wait for a worker if there is none.

    Raises
    ------
    ExecutionError
        The cluster has no worker, or runs other software.
    MemoryBudgetError
        No worker has any room.
    """
    ask(client, first_worker, client, patience)
    state = ask(client, _ask_state, client)
    silent = silent_workers(client)
    awake = {name: known for name, known in state["workers"].items() if name not in silent}
    return cluster_capacity({**state, "workers": awake or state["workers"]}, memory)


def pools_now(client: Client) -> tuple[tuple[PoolReport, ...], tuple[str, ...]]:
    """Pools and leases of a cluster's workers; see `pools_and_leases`."""
    return pools_and_leases(ask(client, _ask_state, client))


async def _ask_state(client: Client) -> dict[str, Any]:
    await check_cluster(client)
    await register_planner(client)
    question = client.run_on_scheduler(planner_state)
    # The scheduler itself waits for workers that do not answer.
    state: dict[str, Any] = await asyncio.wait_for(question, REPORT_WAIT_SECONDS + ANSWER_SECONDS)
    return state


async def open_account(client: Client, session: str) -> None:
    """Before a session registers its own plugin: the planner, and that it knows of the session."""
    await register_planner(client)
    beginning = client.run_on_scheduler(_begin, session=session, client=client.id)
    await asyncio.wait_for(beginning, ANSWER_SECONDS)


async def close_account(client: Client, session: str, keys: tuple[str, ...] = ()) -> None:
    """When everything of a session was released: whatever may be left of it in the cluster.

    Parameters
    ----------
    keys
        What was released. The scheduler forgets it before workers lose the session's service.
    """
    await client.run_on_scheduler(_end, session=session, client=client.id, keys=keys)


def _host(address: str) -> str:
    return urlsplit(address).hostname or address


def _log_failure(ending: asyncio.Future[None]) -> None:
    error = None if ending.cancelled() else ending.exception()
    if error is not None:
        logger.warning("a session of a client that is gone could not be ended: %s", error)
