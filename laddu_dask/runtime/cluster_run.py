"""One evaluation being carried out: instructions become calls, their outcomes events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from distributed import Client

from laddu_dask.errors import ExecutionError, LadduError
from laddu_dask.runtime.cluster_link import START_AGAIN, Route, out_of_memory_cure
from laddu_dask.runtime.cluster_view import ClusterView, Limits
from laddu_dask.runtime.coordinator import (
    Abandon,
    AskOwners,
    Evaluation,
    Event,
    FailCluster,
    FailDeaths,
    FailModel,
    Finish,
    Instruction,
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
from laddu_dask.runtime.membership import Hints, listen
from laddu_dask.runtime.prepared import PreparedPartitions
from laddu_dask.runtime.worker_plugin import rebuild_error


@dataclass(frozen=True)
class Links:
    """What connects a session with its cluster.

    Attributes
    ----------
    client
        Whose event loop all of it runs on.
    route, prepared, hints, view
        Ways to the workers, the partitions there, news of departures, and what is known.
    """

    client: Client
    route: Route
    prepared: PreparedPartitions
    hints: Hints
    view: ClusterView


class ClusterRun:
    """One evaluation.

    Parameters
    ----------
    links
        The cluster.
    request, epoch, limits
        See `Evaluation` and `Route`.
    meanwhile
        Called every now and then while waiting.

    Attributes
    ----------
    messages
        Requests sent.
    answered
        Workers that answered.
    departed
        Whether workers left.
    """

    def __init__(
        self,
        links: Links,
        request: bytes,
        epoch: int,
        limits: Limits,
        meanwhile: Callable[[], None],
    ) -> None:
        self.links = links
        self.request = request
        self.machine = Evaluation(epoch, links.prepared.copies, links.view, limits)
        self.messages = 0
        self.answered: set[str] = set()
        self.departed = False
        self._troubles: dict[str, str] = {}
        self._meanwhile = meanwhile
        self._tasks: set[asyncio.Task[Event | None]] = set()
        self._requests: dict[int, tuple[str, asyncio.Task[Event | None]]] = {}
        self._gone: set[str] = set()

    async def finish(self) -> dict[int, bytes]:
        """Run until the machine ends.

        Raises
        ------
        LadduError
            Of the model, or `ExecutionError` when the cluster was lost.
        """
        client, poll = self.links.client, self.machine.limits.poll
        events: list[Event] = [*self._departures(), Start(time.monotonic())]
        while True:
            for event in events:
                for instruction in self.machine.handle(event):
                    if isinstance(instruction, Finish):
                        return instruction.records
                    self._carry_out(instruction)
            self._meanwhile()
            done: set[asyncio.Task[Event | None]] = set()
            if self._tasks:
                done, self._tasks = await asyncio.wait(
                    self._tasks, timeout=poll, return_when=asyncio.FIRST_COMPLETED
                )
            else:
                await asyncio.sleep(poll)
            if client.status in ("closing", "closed"):
                raise ExecutionError(
                    f"the Dask client closed during an evaluation ({self._describe_troubles()}). "
                    f"{START_AGAIN}",
                    option="cluster",
                )
            outcomes = [task.result() for task in done if not task.cancelled()]
            events = [*self._departures(), *(event for event in outcomes if event is not None)]
            events.append(Tick(time.monotonic()))

    def _departures(self) -> list[Event]:
        gone = self.links.hints.take_gone()
        self.departed = self.departed or bool(gone)
        self._gone.update(gone)
        for worker in gone:
            self.links.route.forget(worker)
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
                task = self._launch(self._send(instruction))
                self._requests[instruction.request] = instruction.worker, task
            case AskOwners():
                self._launch(self._ask_owners(instruction))
            case Rebuild():
                self._launch(self._rebuild(instruction))
            case Abandon():
                worker, task = self._requests[instruction.request]
                task.cancel()
                if not self.machine.over and worker not in self._gone:
                    self.links.route.go_round(worker)  # no answer for very long
            case FailModel():
                assert isinstance(instruction.error, LadduError)
                raise instruction.error
            case FailDeaths():
                raise self._workers_died(instruction)
            case FailCluster():
                raise self._cluster_lost(instruction)

    async def _send(self, send: Send) -> Event:
        try:
            answer = await self.links.route.call(
                send.worker, send.epoch, self.request, send.partitions
            )
        except OSError as error:
            answer, reason = None, f"{type(error).__name__}: {error}"
        else:
            reason = "the worker has no service for this session"
        now = time.monotonic()
        if answer is None:
            self._troubles[send.worker] = reason
            return LinkFailed(now, send.request, reason)
        if "error" in answer:
            return ModelFailed(now, answer["epoch"], rebuild_error(answer["error"]))
        self.answered.add(send.worker)
        records = dict(zip(answer["partitions"], answer["records"], strict=True))
        return Reply(now, send.request, answer["epoch"], records)

    async def _ask_owners(self, question: AskOwners) -> Event | None:
        client, prepared = self.links.client, self.links.prepared
        try:
            if prepared.restore_cancelled():
                listen(client, self.links.hints)
            if failure := await prepared.recipe_failure(question.partitions):
                return ModelFailed(time.monotonic(), self.machine.epoch, failure)
            table = await prepared.owners(question.partitions)
            if nobody := [partition for partition, workers in table.items() if not workers]:
                await prepared.restore_stranded(nobody)
        except OSError as error:
            # The scheduler is away; the machine asks again until its patience ends.
            self._troubles["the scheduler"] = f"{type(error).__name__}: {error}"
            return None
        return Owners(time.monotonic(), table)

    async def _rebuild(self, rebuild: Rebuild) -> None:
        guard = self.machine.limits.patience / 4
        try:
            await self.links.prepared.rebuild(rebuild.partitions, rebuild.avoid, guard=guard)
        except OSError as error:
            self._troubles["the scheduler"] = f"{type(error).__name__}: {error}"

    def _workers_died(self, failure: FailDeaths) -> ExecutionError:
        some = ", ".join(map(str, failure.partitions[:5]))
        return ExecutionError(
            f"{failure.deaths} workers died, one after the other, while they evaluated the same "
            f"partitions (first: {some}). {out_of_memory_cure(self.links.prepared.memory_limits)}",
            option="memory",
            partitions=list(failure.partitions),
            deaths=failure.deaths,
        )

    def _cluster_lost(self, failure: FailCluster) -> ExecutionError:
        some = ", ".join(map(str, failure.unanswered[:5]))
        return ExecutionError(
            f"{len(failure.unanswered)} of {len(self.machine.partitions)} partitions (first: "
            f"{some}) were not answered for {failure.waited:.1f} s; the Dask client is "
            f"{self.links.client.status}; {self._describe_troubles()}. Look at the workers' "
            "logs; raise Execution(patience=...) if one message honestly takes longer. A fit "
            "can go on where it was if it was given a checkpoint.",
            option="cluster",
            unanswered=list(failure.unanswered),
            waited=failure.waited,
        )

    def _describe_troubles(self) -> str:
        told = [f"{where}: {what}" for where, what in [*self._troubles.items()][-3:]]
        return "last trouble: " + "; ".join(told) if told else "no call has failed"
