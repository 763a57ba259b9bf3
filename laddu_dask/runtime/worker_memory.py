"""A worker's side of the planner: what is held here, and the room in which partitions are prepared.

`WorkerMemory` is a plugin of every worker, one per cluster, shared by all sessions. Its table of
what is held is the truth from which the planner can make its book again; the planner alone decides
what is granted. Every change is told: grants by asking, everything else by a report, soon after.

A report may overtake a request or its answer. It therefore carries a count of the requests so far
and names the owners whose requests are not answered yet, and the planner leaves these alone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, cast

from distributed import Reschedule, WorkerPlugin

from laddu_dask.errors import ExecutionError, MemoryBudgetError
from laddu_dask.memory.high_water import measure_exactly
from laddu_dask.memory.room import Tier, check_tier
from laddu_dask.memory.sizes import whole_number
from laddu_dask.runtime.planner_link import (
    ENDED,
    REPORT,
    ask_planner,
    drop_plugin,
    is_closing,
    limits_of,
    result_bytes,
    serve,
    stop_serving,
)

logger = logging.getLogger(__name__)

NAME = "laddu-dask-memory"
PARTITION_PREFIX = "laddu-prep:"
"""Keys of prepared partitions begin with it; see `laddu_dask.runtime.worker_plugin`."""
PASS_PREFIX = "laddu-pass:"
"""Owners of what passes need begin with it. All other owners are keys of Dask."""

ANSWER_SECONDS = 30.0
"""Deadline of a request for bytes; a scheduler that needs longer is as good as gone."""
REPORT_SECONDS = 2.0
"""A worker tells its numbers at least so often."""
SOON_SECONDS = 0.02
"""Changes within so many seconds are told together."""

RELEASE_SECONDS = 1.0
"""Tasks of a session that ended have so long to be released before they fail."""

RESOURCES: dict[Tier, str] = {"resident": "host", "spilled": "disk"}
"""Where a tier is; the tier "device" is the GPU of the room."""


@dataclass(frozen=True)
class SessionMemory:
    """What a session may take on each worker; plain data, which travels with its plugin.

    Attributes
    ----------
    session, client
        Who it is.
    limits
        Bytes of host memory on each worker that was known when the session was planned.
    budget
        Kind, numerator and denominator of the budget, for workers that join later; see
        `laddu_dask.memory.MemoryBudget`.
    pass_bytes
        Bytes of host memory for passes over the events, on each of these workers. One that joins
        later is taken for the largest.
    where_planned
        Whether workers differ, so that a partition must not be prepared where it is not planned as
        long as it can be prepared where it is.
    """

    session: str = ""
    client: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    budget: tuple[str, int, int] | None = None
    pass_bytes: Mapping[str, int] = field(default_factory=dict)
    where_planned: bool = False

    def of(self, session: str, client: str) -> SessionMemory:
        """The same for a session."""
        return replace(self, session=session, client=client)

    def passes_on(self, worker: str) -> int:
        """Bytes of host memory for passes on a worker."""
        return self.pass_bytes.get(worker, max(self.pass_bytes.values(), default=0))

    @property
    def pass_owner(self) -> str:
        """Owner of what passes need."""
        return f"{PASS_PREFIX}{self.session}"


@dataclass
class Held:
    """What an owner holds on this worker."""

    session: str
    client: str
    label: str
    nbytes: dict[str, int] = field(default_factory=dict)
    in_memory: bool = False


class WorkerMemory(WorkerPlugin):
    """See the top of the file. Everything but `claim_from_thread` runs on the worker's loop."""

    name = NAME
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Begin to keep the table and to report."""
        self.worker = worker
        self.loop = asyncio.get_running_loop()
        self.table: dict[str, Held] = {}
        self.requests = 0
        self.unanswered: Counter[str] = Counter()
        self.working = 0  # passes that run now
        self._calm = limits_of(worker, {})
        self._changed = asyncio.Event()
        if getattr(worker, "nanny", None):  # a process of its own
            measure_exactly()
        serve(worker, REPORT, self.report)
        serve(worker, ENDED, self.session_ended)
        self._reporting = self.loop.create_task(self._keep_reporting())

    def teardown(self, worker: Any) -> None:
        """Stop reporting."""
        stop_serving(worker, REPORT)
        self._reporting.cancel()

    async def session_ended(self, name: str, prefix: str) -> dict[str, Any]:
        """Take the service of a session off; see `laddu_dask.runtime.planner_link.drop_plugin`."""
        return await drop_plugin(self.worker, name, prefix, RELEASE_SECONDS)

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Follow partitions that Dask moves here, keeps here, and gives up here."""
        if finish == "memory" and key in self.worker.data:
            moved = start not in ("executing", "long-running")  # then nobody has asked for room
            if moved and isinstance(key, str) and key.startswith(PARTITION_PREFIX):
                session = key.split(":")[1]
                nbytes = result_bytes(self.worker, key)
                self.table[key] = Held(session, "", f"{key}, moved here", {"host": nbytes})
            if key in self.table:
                self.table[key].in_memory = True
                self._changed.set()
        elif finish in ("released", "forgotten", "error"):
            self.drop(key)

    # ----------------------------------------------------------------------------- requests

    async def claim(
        self, memory: SessionMemory, owner: str, resource: str, nbytes: int, label: str
    ) -> None:
        """Ask the planner that `owner` may hold `nbytes` of a resource here, all together.

        Raises
        ------
        MemoryBudgetError
            Refused; with the planner's numbers.
        ExecutionError
            The planner is missing, does not know the owner any more, or does not answer.
        Reschedule
            The task was planned for another worker, from which this one took it. Dask gives it
            back.
        """
        here = self.worker.address
        self.requests += 1
        message = {
            "what": "claim",
            "worker": here,
            "number": self.requests,
            "owner": owner,
            "resource": resource,
            "nbytes": nbytes,
            "label": label,
            "session": memory.session,
            "client": memory.client,
            "limit": memory.limits.get(here),
            "budget": memory.budget,
            "where_planned": memory.where_planned,
            "numbers": self.numbers(),
        }
        self.unanswered[owner] += 1
        try:
            answer = await asyncio.wait_for(ask_planner(self.worker, message), ANSWER_SECONDS)
        except (OSError, TimeoutError) as error:
            raise ExecutionError(
                f"worker {here} asked the scheduler for {nbytes} bytes for {label} and got no "
                f"answer within {ANSWER_SECONDS:.0f} s ({type(error).__name__}: {error}). See that "
                "the scheduler runs and is not overloaded.",
                option="cluster",
                worker=here,
            ) from error
        finally:
            self.unanswered[owner] -= 1
            self.unanswered += Counter()  # drops those without any
            self._changed.set()
        if answer is None:
            raise ExecutionError(
                f"worker {here} asked the scheduler for {nbytes} bytes for {label}, and it has no "
                f"memory planner (plugin {NAME}), which every session registers: it was removed, "
                "or the scheduler was replaced. Open a new session.",
                option="cluster",
                worker=here,
            )
        if "elsewhere" in answer:
            raise Reschedule
        if "refused" in answer:
            raise MemoryBudgetError(answer["refused"], **answer["fields"])
        if "unknown" in answer:
            raise ExecutionError(answer["unknown"], option="cluster", worker=here)
        held = self.table.setdefault(owner, Held(memory.session, memory.client, label))
        held.nbytes[resource] = nbytes
        if not nbytes:
            del held.nbytes[resource]

    def claim_from_thread(
        self, memory: SessionMemory, owner: str, resource: str, nbytes: int, label: str
    ) -> None:
        """`claim`, for tasks: waits in a thread of the worker that is not its event loop's."""
        request = self.claim(memory, owner, resource, nbytes, label)
        asyncio.run_coroutine_threadsafe(request, self.loop).result()

    def claim_passes(self, memory: SessionMemory) -> None:
        """Ask for what a session's passes need here, unless it has that; in a task's thread."""
        nbytes = memory.passes_on(self.worker.address)
        if nbytes and memory.pass_owner not in self.table:
            label = f"passes of session {memory.session}"
            self.claim_from_thread(memory, memory.pass_owner, "host", nbytes, label)

    def drop(self, owner: str) -> None:
        """Forget what an owner held here, and tell the planner."""
        if self.table.pop(owner, None) is not None:
            self._changed.set()

    def drop_from_thread(self, owner: str) -> None:
        """`drop`, from any thread, without waiting."""
        self.loop.call_soon_threadsafe(self.drop, owner)

    # ------------------------------------------------------------------------------ reports

    def numbers(self) -> dict[str, Any]:
        """Limits and use of memory, measured now, or what of it is measured when all is calm."""
        now = limits_of(self.worker, self._kept())
        if not self.working and not self.unanswered and all(self._is_kept(o) for o in self.table):
            self._calm = now
        return now.at_rest(self._calm).to_dict()

    def _kept(self) -> dict[str, int]:
        """Bytes of each resource that are held and not only promised."""
        kept: Counter[str] = Counter()
        for held in self.table.values():
            if held.in_memory:
                kept.update(held.nbytes)
        return dict(kept)

    def _is_kept(self, owner: str) -> bool:
        """Whether nothing is being allocated for an owner."""
        return self.table[owner].in_memory or owner.startswith(PASS_PREFIX)

    def report(self) -> dict[str, Any]:
        """What is held here, and the numbers."""
        return {
            "what": "report",
            "worker": self.worker.address,
            "number": self.requests,
            "unanswered": [*self.unanswered],
            "sessions": [
                plugin.session
                for plugin in self.worker.plugins.values()
                if isinstance(getattr(plugin, "session", None), str)
            ],
            "table": {
                owner: {
                    "session": held.session,
                    "client": held.client,
                    "label": held.label,
                    "nbytes": dict(held.nbytes),
                }
                for owner, held in self.table.items()
            },
            "numbers": self.numbers(),
        }

    async def _keep_reporting(self) -> None:
        while True:
            try:
                question = ask_planner(self.worker, self.report())
                answer = await asyncio.wait_for(question, ANSWER_SECONDS) or {}
                for name, prefix in answer.get("ended", ()):
                    await self.session_ended(name, prefix)
            except (OSError, TimeoutError):
                pass  # the next report says the same
            except Exception:  # of any kind: reporting goes on, and the log tells
                if is_closing(self.worker):  # what Dask raises then has no class of its own
                    return
                logger.exception("worker %s could not report its memory", self.worker.address)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), REPORT_SECONDS)
                await asyncio.sleep(SOON_SECONDS)
            self._changed.clear()


def account_of(worker: Any) -> WorkerMemory | None:
    """The plugin of a worker, if it has one."""
    return cast("WorkerMemory | None", getattr(worker, "plugins", {}).get(NAME))


def memory_of(worker: Any) -> WorkerMemory:
    """The plugin of a worker.

    Raises
    ------
    ExecutionError
        It has none.
    """
    found = account_of(worker)
    if found is None:
        raise ExecutionError(
            f"worker {worker.address} has no memory plugin ({NAME}), which every session "
            "registers: it failed to start, and the worker's log tells why. Open a new session.",
            option="cluster",
            worker=worker.address,
        )
    return found


class TaskRoom:
    """The room of one task: what it reserves belongs to the task's key. See `Room`.

    Nothing has to be released when the partition goes: Dask tells the planner. A task that runs
    again starts from nothing.
    """

    def __init__(self, account: WorkerMemory, memory: SessionMemory, owner: str) -> None:
        self._account, self._memory, self._owner = account, memory, owner
        self._lock = threading.Lock()
        self._nbytes: Counter[str] = Counter()

    def reserve(self, tier: Tier, nbytes: int, label: str) -> TaskHold:
        """See `laddu_dask.memory.Room.reserve`."""
        check_tier(tier)
        wanted = whole_number(nbytes, label)
        resource = RESOURCES.get(tier) or _only_device(self._account)
        with self._lock:
            self._set(resource, self._nbytes[resource] + wanted, label)
        return TaskHold(self, resource, wanted)

    def give_back(self, resource: str, nbytes: int) -> None:
        """Return part of what was reserved."""
        # A planner that does not know the owner (any more) has nothing to get back.
        with self._lock, suppress(ExecutionError):
            self._set(resource, self._nbytes[resource] - nbytes, "a part that is given back")

    def _set(self, resource: str, nbytes: int, label: str) -> None:
        self._account.claim_from_thread(self._memory, self._owner, resource, nbytes, label)
        self._nbytes[resource] = nbytes


def _only_device(account: WorkerMemory) -> str:
    """The worker's first GPU; where there is none, a name that no pool has."""
    return next((f"device:{name}" for name in account.numbers()["devices"]), "device")


class TaskHold:
    """Bytes that a task reserved; see `laddu_dask.memory.Hold`."""

    def __init__(self, room: TaskRoom, resource: str, nbytes: int) -> None:
        self._room, self._resource = room, resource
        self.bytes = nbytes
        self.released = False

    def release(self) -> None:
        """Give it up; a second call does nothing."""
        if not self.released:
            self.released = True
            self._room.give_back(self._resource, self.bytes)

    def __enter__(self) -> TaskHold:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
