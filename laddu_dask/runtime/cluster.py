"""Evaluations on a Dask cluster: one message per worker, recovery included.

`ClusterSession` ships what is to be evaluated once per worker, has every partition prepared by a
Dask task, and then answers each `evaluate(request)` with one record per partition. Decisions are
those of `coordinator.Evaluation`; this module carries them out.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
import uuid
import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from distributed import Client

from laddu_dask.errors import ExecutionError, LadduError
from laddu_dask.runtime.balance import Balance
from laddu_dask.runtime.cluster_hold import ClusterHold
from laddu_dask.runtime.cluster_link import (
    ANSWER_SECONDS,
    START_AGAIN,
    Route,
    ask,
    ask_workers,
    check_cluster,
    connect,
    described_workers,
    install,
    refuse_forked,
)
from laddu_dask.runtime.cluster_resources import SessionResources
from laddu_dask.runtime.cluster_run import ClusterRun, Links
from laddu_dask.runtime.cluster_view import ClusterView, Limits
from laddu_dask.runtime.membership import Hints, listen
from laddu_dask.runtime.prepared import PreparedPartitions
from laddu_dask.runtime.scheduler_planner import open_account
from laddu_dask.runtime.worker_info import WorkerInfo
from laddu_dask.runtime.worker_memory import SessionMemory
from laddu_dask.runtime.worker_plugin import MembershipHints, PartitionService, SessionPayload

TIDY_SECONDS = 1.0
"""Pause between two looks for second copies that are no longer needed."""


@dataclass(frozen=True, slots=True)
class EvaluationSummary:
    """What the last evaluation took.

    Attributes
    ----------
    seconds
        From the request to the last record.
    messages
        Requests sent; one per worker when nothing went wrong.
    rebuilt
        Second copies of partitions that were asked for.
    """

    seconds: float
    messages: int
    rebuilt: int


class ClusterSession:
    """A payload on a cluster, ready to be evaluated many times.

    Parameters
    ----------
    cluster
        A synchronous `distributed.Client`, the address of a scheduler, the path of a scheduler
        file, or a Dask cluster object. A client that is handed over stays open at the end.
    payload
        Picklable; prepares and evaluates partitions (see `SessionPayload`).
    partitions, readers
        Their number, called 0, 1, ...; and the workers that can prepare those that not all can.
    ask_after
        Seconds after which a worker that has not answered is no longer relied upon. None: three
        times the median of its last replies, at least 0.2 s, and 60 s for its first ones.
    patience
        Seconds without any new partition after which preparing or evaluating fails. It must
        exceed the longest honest message of one worker.
    memory
        What may be taken of each worker's memory; its session and client are filled in here.
    wishes
        The worker that each partition is meant for.

    Raises
    ------
    ExecutionError
        No or an unsuitable cluster, other versions there, or a recipe that failed unexpectedly.
    LadduError
        A recipe failed: its own error with its fields.

    Notes
    -----
    Thread safe; evaluations of one session follow one another. Sessions on one cluster, of one or
    several clients, do not see each other.
    """

    def __init__(
        self,
        cluster: Client | str | Any,
        payload: SessionPayload,
        partitions: int,
        *,
        ask_after: float | None = None,
        patience: float = 300.0,
        readers: Mapping[int, Collection[str]] | None = None,
        memory: SessionMemory | None = None,
        wishes: Sequence[str] | None = None,
    ) -> None:
        if partitions < 1:
            raise ExecutionError(
                f"a session needs at least one partition, got {partitions}", option="partitions"
            )
        self.limits = (
            Limits(patience=patience)
            if ask_after is None
            else Limits(patience=patience, ask_after=ask_after, adaptive=False)
        )
        self.session = uuid.uuid4().hex[:12]
        self.view = ClusterView()
        self.last: EvaluationSummary | None = None
        self._epoch = 0
        self._lock = threading.Lock()
        self._tidied_at = time.monotonic()
        self.client, owned = connect(cluster)
        self.memory = (memory or SessionMemory()).of(self.session, self.client.id)
        self._hints = Hints()
        self._route = Route(self.client, self.session)
        self._prepared = PreparedPartitions(self.client, self.session, partitions, readers, wishes)
        self._hold = ClusterHold(self.client, self.session)
        self._links = Links(self.client, self._route, self._prepared, self._hints, self.view)
        self._balance = Balance(
            *(self.client, self._prepared, self.view, self._hints, self._hold),
            move_patience=patience / 4,
        )
        self._resources = SessionResources(
            self.client, owned, self.session, self._prepared, self._hints, self._hold
        )
        self._finalizer = weakref.finalize(self, SessionResources.abandon, self._resources)
        self._finalizer.atexit = False  # at exit there is time to do it properly: _close_all
        _sessions.add(self)
        try:
            self.client.sync(self._open, payload)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and not isinstance(error, LadduError):
                raise ExecutionError(
                    "the Dask cluster was lost while the events were being prepared "
                    f"({type(error).__name__}: {error}). {START_AGAIN}",
                    option="cluster",
                ) from error
            raise

    async def _open(self, payload: SessionPayload) -> None:
        facts = await check_cluster(self.client)
        self._hold.know_idle_timeout(facts.idle_timeout)
        self._prepared.memory_limits = facts.memory_limits
        await open_account(self.client, self.session)
        await install(self.client, PartitionService(self.session, payload, self.memory))
        await asyncio.wait_for(self.client.register_plugin(MembershipHints()), ANSWER_SECONDS)
        listen(self.client, self._hints)
        await self._prepared.submit_all()
        self._hold.keep_workers(len(await asyncio.wait_for(self.client.ncores(), ANSWER_SECONDS)))
        await self._prepared.wait(self.limits.patience, self._silent_workers)
        self.view.owners = await self._prepared.owners(self._prepared.copies)
        await self._route.probe({w for workers in self.view.owners.values() for w in workers})

    async def _silent_workers(self) -> frozenset[str]:
        """Workers that do not even say their name; and a sign of life of this client."""
        self._hold.keep_alive()
        # Longer than when the session is opened: a worker that prepares may be slow to answer.
        seconds = min(ANSWER_SECONDS, self.limits.patience / 4)
        answers = await ask_workers(self.client, _nothing, seconds)
        return frozenset(w for w, answer in answers.items() if isinstance(answer, TimeoutError))

    # ----------------------------------------------------------------------------- public

    @property
    def direct(self) -> bool:
        """Whether workers are called directly; else requests pass through the scheduler."""
        return self._route.direct

    def evaluate(self, request: bytes, effort: float = 1.0) -> dict[int, bytes]:
        """Evaluate every partition.

        Parameters
        ----------
        request
            Parameter-dependent numbers, passed to `payload.evaluate` as they are.
        effort
            How many times as long as usual workers may take for it.

        Returns
        -------
        dict
            Partition -> record, in order of the partition number; bit for bit the same whatever
            happened to workers meanwhile.

        Raises
        ------
        LadduError
            The error that the payload raised on a worker, as its own class with its fields.
        ExecutionError
            The cluster was lost, or the payload raised anything else.
        """
        refuse_forked(self.client)  # where the lock may be held for ever
        with self._lock:
            self._check_usable()
            return dict(self.client.sync(self._evaluate, request, effort))

    def worker_info(self) -> tuple[WorkerInfo, ...]:
        """Address, threads, memory and partitions of every worker, measured now."""
        self._check_usable()
        found: tuple[WorkerInfo, ...] = ask(
            self.client, described_workers, self.client, self.session
        )
        return found

    def close(self) -> None:
        """Release everything on the cluster; close the client if it was opened here."""
        if self._finalizer.detach() is not None:
            _sessions.discard(self)
            self._resources.close()

    def __enter__(self) -> ClusterSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_usable(self) -> None:
        if not self._finalizer.alive:
            raise ExecutionError("this session was closed; make a new likelihood", option="cluster")
        if self.client.status in ("closing", "closed"):
            raise ExecutionError(f"the Dask client is closed. {START_AGAIN}", option="cluster")
        if self.client.asynchronous:
            raise ExecutionError(
                "evaluations block and cannot run inside the client's event loop",
                option="cluster",
            )

    # ------------------------------------------------------------------------- evaluation

    async def _evaluate(self, request: bytes, effort: float) -> dict[int, bytes]:
        self._epoch += 1
        run = ClusterRun(
            self._links, request, self._epoch, self.limits.stretched(effort), self._hold.keep_alive
        )
        rebuilt = self._prepared.rebuilt
        begin = time.monotonic()
        try:
            await self._balance.follow()
            records = await run.finish()
        finally:
            await run.cancel()
            if run.departed:
                self._balance.membership_changed()
        seconds = time.monotonic() - begin
        self.last = EvaluationSummary(seconds, run.messages, self._prepared.rebuilt - rebuilt)
        await self._tidy(run.answered)
        return records

    async def _tidy(self, answered: set[str]) -> None:
        """Give back the memory of second copies that are no longer needed."""
        now = time.monotonic()
        if now - self._tidied_at > TIDY_SECONDS:
            self._tidied_at = now
            trusted = {w for w in answered if self.view.slow_until.get(w, now) <= now}
            with suppress(OSError):  # the next evaluation tidies up
                self.view.owners.update(await self._prepared.release_copies(trusted))


async def _nothing() -> None:
    """What a worker that is alive can do between two steps of its loop."""


_sessions: weakref.WeakSet[ClusterSession] = weakref.WeakSet()


def _close_all() -> None:
    for session in list(_sessions):
        session.close()


# Registered after those of distributed, hence run before they close clients and clusters.
atexit.register(_close_all)
