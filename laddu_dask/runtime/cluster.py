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
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from distributed import Client

from laddu_dask.errors import ExecutionError, LadduError
from laddu_dask.runtime.cluster_link import (
    Hints,
    Route,
    check_cluster,
    connect,
    listen,
)
from laddu_dask.runtime.cluster_resources import SessionResources
from laddu_dask.runtime.coordinator import (
    Abandon,
    AskOwners,
    ClusterView,
    Evaluation,
    Event,
    FailCluster,
    FailModel,
    Finish,
    Instruction,
    Limits,
    LinkFailed,
    ModelFailed,
    Owners,
    Rebuild,
    Reply,
    Send,
    Start,
    Tick,
    WorkerGone,
)
from laddu_dask.runtime.prepared import PreparedPartitions
from laddu_dask.runtime.scheduler_planner import open_account
from laddu_dask.runtime.worker_info import WorkerInfo, describe_worker
from laddu_dask.runtime.worker_memory import SessionMemory
from laddu_dask.runtime.worker_plugin import (
    MembershipHints,
    PartitionService,
    SessionPayload,
    rebuild_error,
)

KEEP_ALIVE_SECONDS = 30.0
"""Direct evaluations are invisible to the scheduler: without a sign of life it would take a
cluster in the middle of a fit for idle and, with an idle timeout, close it."""

TIDY_SECONDS = 1.0
SPREADS = 3
"""Attempts at even shares after workers joined or left. Dask has the last word on where a recipe
runs; a cluster that it does not want to be even is left in peace."""
_START_AGAIN = (
    "The scheduler is gone or the client was closed: see that scheduler and workers run, and make "
    "a new likelihood with Execution(cluster=...) of a new client or of the address. A fit can "
    "begin at the last parameters."
)


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
        self._epoch = self._spreads_left = 0
        self._lock = threading.Lock()
        self._alive_at = self._tidied_at = time.monotonic()
        self._alive_every = KEEP_ALIVE_SECONDS
        self.client, owned = connect(cluster)
        self.memory = (memory or SessionMemory()).of(self.session, self.client.id)
        self._hints = Hints()
        self._route = Route(self.client, self.session)
        self._prepared = PreparedPartitions(self.client, self.session, partitions, readers, wishes)
        self._resources = SessionResources(
            self.client, owned, self.session, self._prepared, self._hints
        )
        self._finalizer = weakref.finalize(self, SessionResources.abandon, self._resources)
        self._finalizer.atexit = False  # at exit there is time to do it properly: _close_all
        _sessions.add(self)
        try:
            self.client.sync(self._open, payload)
        except BaseException:
            self.close()
            raise

    async def _open(self, payload: SessionPayload) -> None:
        idle_timeout = await check_cluster(self.client)
        if idle_timeout:
            self._alive_every = min(KEEP_ALIVE_SECONDS, idle_timeout / 3)
        await open_account(self.client, self.session)
        await self.client.register_plugin(PartitionService(self.session, payload, self.memory))
        await self.client.register_plugin(MembershipHints())
        listen(self.client, self._hints)
        await self._prepared.submit_all()
        await self._prepared.wait(self.limits.patience)
        self.view.owners = await self._prepared.owners(self._prepared.copies)
        await self._route.probe({w for workers in self.view.owners.values() for w in workers})

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
        with self._lock:
            self._check_usable()
            return dict(self.client.sync(self._evaluate, request, effort))

    def worker_info(self) -> tuple[WorkerInfo, ...]:
        """Address, threads, memory and partitions of every worker, measured now."""
        self._check_usable()
        answers = self.client.run(describe_worker, session=self.session)
        return tuple(answers[address] for address in sorted(answers))

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
            raise ExecutionError(f"the Dask client is closed. {_START_AGAIN}", option="cluster")
        if self.client.asynchronous:
            raise ExecutionError(
                "evaluations block and cannot run inside the client's event loop",
                option="cluster",
            )

    # ------------------------------------------------------------------------- evaluation

    async def _evaluate(self, request: bytes, effort: float) -> dict[int, bytes]:
        self._epoch += 1
        run = _Run(self, request, self._epoch, self.limits.stretched(effort))
        rebuilt = self._prepared.rebuilt
        begin = time.monotonic()
        try:
            await self._follow_moves()
            records = await run.finish()
        finally:
            await run.cancel()
        seconds = time.monotonic() - begin
        self.last = EvaluationSummary(seconds, run.messages, self._prepared.rebuilt - rebuilt)
        await self._tidy(run.answered)
        return records

    async def _follow_moves(self) -> None:
        """Take over partitions that were moved; start moving when workers joined or left."""
        if self._hints.take_joined():
            self._spreads_left = SPREADS
        with suppress(OSError, TimeoutError):  # an improvement, that can wait for a scheduler
            self.view.owners.update(await self._prepared.adopt_moves())
            idle = not self._prepared.moving and all(self.view.owners.values())
            if self._spreads_left and idle:
                started = await self._prepared.spread(self.view.owners)
                self._spreads_left = self._spreads_left - 1 if started else 0

    async def _tidy(self, answered: set[str]) -> None:
        """Give back the memory of second copies that are no longer needed."""
        now = time.monotonic()
        if now - self._tidied_at > TIDY_SECONDS:
            self._tidied_at = now
            trusted = {w for w in answered if self.view.slow_until.get(w, now) <= now}
            with suppress(OSError, TimeoutError):  # the next evaluation tidies up
                self.view.owners.update(await self._prepared.release_copies(trusted))

    def keep_alive(self) -> None:
        """Show the scheduler, every now and then, that the cluster is in use."""
        now = time.monotonic()
        if now - self._alive_at > self._alive_every and self.client.status == "running":
            self._alive_at = now
            key = f"laddu-alive:{self.session}:{self._epoch}:{uuid.uuid4().hex[:8]}"
            self._resources.sign_of_life = self.client.submit(_sign_of_life, key=key, pure=False)


class _Run:
    """One evaluation being carried out: instructions become calls, their outcomes events."""

    def __init__(self, session: ClusterSession, request: bytes, epoch: int, limits: Limits) -> None:
        self.session = session
        self.request = request
        self.machine = Evaluation(epoch, session._prepared.copies, session.view, limits)
        self.messages = 0
        self.answered: set[str] = set()
        self.troubles: dict[str, str] = {}
        self._tasks: set[asyncio.Task[Event | None]] = set()
        self._requests: dict[int, asyncio.Task[Event | None]] = {}

    async def finish(self) -> dict[int, bytes]:
        """Run until the machine ends."""
        session, poll = self.session, self.session.limits.poll
        events: list[Event] = [*self._departures(), Start(time.monotonic())]
        while True:
            for event in events:
                for instruction in self.machine.handle(event):
                    if isinstance(instruction, Finish):
                        return instruction.records
                    self._carry_out(instruction)
            session.keep_alive()
            done: set[asyncio.Task[Event | None]] = set()
            if self._tasks:
                done, self._tasks = await asyncio.wait(
                    self._tasks, timeout=poll, return_when=asyncio.FIRST_COMPLETED
                )
            else:
                await asyncio.sleep(poll)
            if session.client.status in ("closing", "closed"):
                raise ExecutionError(
                    f"the Dask client closed during an evaluation ({self._describe_troubles()}). "
                    f"{_START_AGAIN}",
                    option="cluster",
                )
            outcomes = [task.result() for task in done if not task.cancelled()]
            events = [*self._departures(), *(event for event in outcomes if event is not None)]
            events.append(Tick(time.monotonic()))

    def _departures(self) -> list[Event]:
        gone = self.session._hints.take_gone()
        if gone:
            self.session._spreads_left = SPREADS
        now = time.monotonic()
        return [WorkerGone(now, worker) for worker in gone]

    async def cancel(self) -> None:
        """Stop waiting for whatever is still under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _launch(self, work: Coroutine[Any, Any, Event | None]) -> asyncio.Task[Event | None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        return task

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Send():
                self.messages += 1
                self._requests[instruction.request] = self._launch(self._send(instruction))
            case AskOwners():
                self._launch(self._ask_owners(instruction))
            case Rebuild():
                self._launch(self._rebuild(instruction))
            case Abandon():
                self._requests[instruction.request].cancel()
            case FailModel():
                assert isinstance(instruction.error, LadduError)
                raise instruction.error
            case FailCluster():
                raise self._cluster_lost(instruction)

    async def _send(self, send: Send) -> Event:
        try:
            answer = await self.session._route.call(
                send.worker, send.epoch, self.request, send.partitions
            )
        except (OSError, TimeoutError) as error:
            answer, reason = None, f"{type(error).__name__}: {error}"
        else:
            reason = "the worker has no service for this session"
        now = time.monotonic()
        if answer is None:
            self.troubles[send.worker] = reason
            return LinkFailed(now, send.request, reason)
        if "error" in answer:
            return ModelFailed(now, answer["epoch"], rebuild_error(answer["error"]))
        self.answered.add(send.worker)
        records = dict(zip(answer["partitions"], answer["records"], strict=True))
        return Reply(now, send.request, answer["epoch"], records)

    async def _ask_owners(self, question: AskOwners) -> Event | None:
        session, prepared = self.session, self.session._prepared
        try:
            if prepared.restore_cancelled():
                listen(session.client, session._hints)
            if failure := await prepared.recipe_failure(question.partitions):
                return ModelFailed(time.monotonic(), self.machine.epoch, failure)
            table = await prepared.owners(question.partitions)
        except (OSError, TimeoutError) as error:
            # The scheduler is away; the machine asks again until its patience ends.
            self.troubles["the scheduler"] = f"{type(error).__name__}: {error}"
            return None
        return Owners(time.monotonic(), table)

    async def _rebuild(self, rebuild: Rebuild) -> None:
        session = self.session
        try:
            await session._prepared.rebuild(
                rebuild.partitions, rebuild.avoid, guard=session.limits.patience / 4
            )
        except (OSError, TimeoutError) as error:
            self.troubles["the scheduler"] = f"{type(error).__name__}: {error}"

    def _cluster_lost(self, failure: FailCluster) -> ExecutionError:
        some = ", ".join(map(str, failure.unanswered[:5]))
        return ExecutionError(
            f"{len(failure.unanswered)} of {len(self.machine.partitions)} partitions (first: "
            f"{some}) were not answered for {failure.waited:.1f} s; the Dask client is "
            f"{self.session.client.status}; {self._describe_troubles()}. Look at the workers' "
            "logs; raise patience if one message honestly takes longer.",
            option="cluster",
            unanswered=list(failure.unanswered),
            waited=failure.waited,
        )

    def _describe_troubles(self) -> str:
        told = [f"{where}: {what}" for where, what in [*self.troubles.items()][-3:]]
        return "last trouble: " + "; ".join(told) if told else "no call has failed"


def _sign_of_life() -> None:
    """A task that does nothing, visibly."""


_sessions: weakref.WeakSet[ClusterSession] = weakref.WeakSet()


def _close_all() -> None:
    for session in list(_sessions):
        session.close()


# Registered after those of distributed, hence run before they close clients and clusters.
atexit.register(_close_all)
