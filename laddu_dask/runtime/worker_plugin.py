"""The part of an evaluation that runs inside the processes of a Dask cluster.

`PartitionService` is a plugin of every worker, one per session. It knows which prepared partitions
the worker holds, because it follows Dask's own transitions: data that were moved here never run a
task here. It answers one request per evaluation with one record per partition. Look-ups happen on
the worker's event loop; the kernel runs in threads of the service, so that heartbeats go on and
Dask's tasks do not queue behind kernels.

`MembershipHints` is a plugin of the scheduler, one per cluster, shared by all sessions. It
publishes arrivals and departures of workers on a topic of its own as plain strings. (The topic
"all" may carry objects that cannot be serialised and cost a client its connection.)
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeAlias, cast

from distributed import Reschedule, SchedulerPlugin, WorkerPlugin, get_worker

from laddu_dask import errors
from laddu_dask.errors import ExecutionError, LadduError
from laddu_dask.memory.room import Room
from laddu_dask.runtime.planner_link import is_cancelled
from laddu_dask.runtime.versions import package_versions, version_mismatch
from laddu_dask.runtime.worker_memory import (
    PARTITION_PREFIX,
    SessionMemory,
    TaskRoom,
    WorkerMemory,
    account_of,
    memory_of,
)

logger = logging.getLogger(__name__)

MEMBERSHIP_TOPIC = "laddu-dask-membership"
QUICK_SECONDS = 5e-4
"""What takes less of the processor is done at once, on the event loop: two threads that wake each
other take as long."""
DRIVER_THREADS = 4
"""Requests of one session that a worker works on at once: a calm evaluation needs one, an asked
again partition or the tail of an abandoned evaluation another."""

CANCEL_SECONDS = 0.5
"""A failure within so many seconds of being cancelled is no failure."""
SERVICE_SECONDS = 10.0
"""How long a task waits for the service of its session to begin."""

Answer: TypeAlias = dict[str, Any]


class SessionPayload(Protocol):
    """What a session evaluates: programs and data recipes. Picklable, shipped once per worker."""

    def prepare(self, partition: int, room: Room) -> Any:
        """Build what `evaluate` needs of one partition, where `room` allows.

        Runs as a Dask task, may run again.
        """

    def evaluate(
        self,
        request: bytes,
        prepared: Sequence[Any],
        pool: Executor,
        cancelled: Callable[[], bool],
    ) -> list[bytes]:
        """Return one record per prepared partition, in order.

        Called in a thread of its own, not one of `pool`, whose threads are the worker's to use.
        When `cancelled()` turns true the rest is not wanted: return the records that are done.
        """

    def in_memory(self, prepared: Sequence[Any]) -> bool:
        """Whether evaluating these partitions waits for nothing but the processor."""


def plugin_name(session: str) -> str:
    """Name under which the service of `session` is registered on each worker."""
    return f"laddu-dask-{session}"


def operation_name(session: str) -> str:
    """Name of the worker's handler for requests of `session`.

    One operation per session, not one with the session as an argument: sessions come and go with
    their own plugin, and no registry has to be shared between plugins of different package loads.
    """
    return f"laddu_dask_eval_{session}"


def partition_key(session: str, partition: int, copy: int) -> str:
    """Dask key of a prepared partition; copy 0 is the normal one, later copies are rebuilt."""
    return f"{PARTITION_PREFIX}{session}:{partition}:{copy}"


def prepare_partition(session: str, partition: int) -> Any:
    """Dask task: prepare `partition` with the payload of `session` on the worker it runs on."""
    worker = get_worker()
    service = _service_here(worker, session)
    if service is None:
        if is_cancelled(worker, str(worker.get_current_task()), CANCEL_SECONDS):
            raise Reschedule
        raise ExecutionError(
            f"worker {worker.address} has no service for session {session}, so partition "
            f"{partition} cannot be prepared there. The session was closed, or the plugin failed "
            "to start on that worker: its log tells. Open a new session.",
            worker=worker.address,
            partition=partition,
        )
    if service.refusal is not None:
        raise service.refusal
    key = str(worker.get_current_task())
    try:
        return service.payload.prepare(partition, service.room_of(key))
    except LadduError:
        if is_cancelled(worker, key, CANCEL_SECONDS):
            raise Reschedule from None  # nobody would hear of it, but the worker would log it
        raise


def _service_here(worker: Any, session: str) -> PartitionService | None:
    """The service, waited for a little: a task may be faster than the plugin that it needs."""
    end = time.monotonic() + SERVICE_SECONDS
    while True:
        service = cast("PartitionService | None", worker.plugins.get(plugin_name(session)))
        if service is not None or session in _ended or time.monotonic() > end:
            return service
        time.sleep(0.02)


_ended: set[str] = set()
"""Sessions that this worker has served."""


class CallingThread(Executor):
    """No thread of its own: whoever has work does it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """What comes out, or is raised, is known when this returns."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # raised where the result is asked for, as from a thread
            future.set_exception(error)
        return future


class PartitionService(WorkerPlugin):
    """Holds the index of a worker's prepared partitions and evaluates them.

    Parameters
    ----------
    session
        Identity of the session; letters and digits.
    payload
        What to prepare and evaluate.
    memory
        What the session may take of each worker's memory; None: no more than the worker has.
    """

    def __init__(
        self, session: str, payload: SessionPayload, memory: SessionMemory | None = None
    ) -> None:
        self.session = session
        self.payload = payload
        self.memory = SessionMemory(session) if memory is None else memory
        self.name = plugin_name(session)
        self.client_versions = package_versions()

    # ------------------------------------------------------------------------ plugin hooks

    def setup(self, worker: Any) -> None:
        """Start the threads, index what is here already, and answer to the operation."""
        _ended.discard(self.session)
        self.worker = worker
        here = f"worker {worker.address}"
        self.refusal = version_mismatch(self.client_versions, package_versions(), here)
        self.closed = False
        self.floor = 0  # newest epoch seen: whatever is older is no longer wanted
        self.keys: dict[int, set[str]] = {}  # never the data: Dask may move or release them
        self.records: dict[int, bytes] = {}  # of the newest epoch, so asking again costs nothing
        self.running: dict[int, asyncio.Task[None]] = {}
        self.failure: Answer | None = None
        self.warned = False
        self.seconds: dict[tuple[bytes, int, int], float] = {}
        threads = worker.state.nthreads
        self.pool: Executor = CallingThread()  # a single thread is that of the driver
        if threads > 1:
            self.pool = ThreadPoolExecutor(threads, "laddu-kernel")
        # Where drivers do the work themselves, two at once would take memory that nobody planned.
        drivers = DRIVER_THREADS if threads > 1 else 1
        self.drivers = ThreadPoolExecutor(drivers, thread_name_prefix="laddu-driver")
        self._rescan()
        handlers = getattr(worker, "handlers", None)
        if handlers is not None:  # without it the client comes through `call_service`
            handlers[operation_name(self.session)] = self.evaluate

    def teardown(self, worker: Any) -> None:
        """Stop at the next partition and forget everything."""
        self.closed = True
        _ended.add(self.session)
        getattr(worker, "handlers", {}).pop(operation_name(self.session), None)
        self.drivers.shutdown(wait=False, cancel_futures=True)
        self.pool.shutdown(wait=False)  # a driver that is being cancelled may still hand it work
        self.keys.clear()
        self.records = {}
        account = account_of(worker)
        if account is not None:
            account.drop(self.memory.pass_owner)

    def room_of(self, key: str) -> Room:
        """Where the task of a key reserves what it keeps; called in its thread.

        Raises
        ------
        MemoryBudgetError
            There is no room for the session's passes.
        """
        account = memory_of(self.worker)
        account.claim_passes(self.memory)
        return TaskRoom(account, self.memory, key)

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Follow partitions into and out of this worker's memory.

        Dask announces what was intended: a task that was released while it ran is announced as
        going to memory, but its result is not kept. The store tells.
        """
        if finish == "memory" and key in self.worker.data:
            self._index(key)
        elif start == "memory":
            partition = self._partition_of(key)
            if partition is not None and partition in self.keys:
                self.keys[partition].discard(key)
                if not self.keys[partition]:
                    del self.keys[partition]

    # ------------------------------------------------------------------------------- index

    def _partition_of(self, key: Any) -> int | None:
        match key.split(":") if isinstance(key, str) else ():
            case ("laddu-prep", self.session, partition, _):
                return int(partition)
        return None

    def _index(self, key: Any) -> None:
        partition = self._partition_of(key)
        if partition is not None:
            self.keys.setdefault(partition, set()).add(key)

    def _rescan(self) -> None:
        for key in list(self.worker.data):
            self._index(key)

    def _look_up(self, partitions: Sequence[int]) -> dict[int, Any]:
        """Prepared objects that are here. Dask's store is the truth, the index a short cut."""
        data = self.worker.data
        found = {p: self._key_here(p) for p in partitions}
        if None in found.values():
            self._rescan()
            found = {p: self._key_here(p) for p in partitions}
        return {p: data[key] for p, key in found.items() if key is not None}

    def _key_here(self, partition: int) -> str | None:
        copies = self.keys.get(partition, ())
        return next((key for key in copies if key in self.worker.data), None)

    def _warn_of_spilling(self) -> None:
        if self.warned or not (keys := self.on_disk()):
            return
        self.warned = True
        logger.warning(
            "%d prepared partitions of session %s were moved to disk, because this worker is short "
            "of memory; every evaluation reads them back. Give the fit a smaller "
            "Execution(memory=...), or the worker more memory",
            *(len(keys), self.session),
        )

    def on_disk(self) -> list[str]:
        """Keys of ours that Dask has moved from memory to disk, which a plan should rule out.

        To look a partition up reads it back, on the worker's event loop.
        """
        slow = getattr(self.worker.data, "slow", None) or ()
        return [key for keys in self.keys.values() for key in keys if key in slow]

    # -------------------------------------------------------------------------- evaluation

    async def evaluate(self, epoch: int, request: bytes, partitions: Sequence[int]) -> Answer:
        """Answer one request; the handler behind `operation_name`.

        Returns
        -------
        dict
            `{epoch, partitions, records, missing}`, or `{epoch, error}` with the fields of
            `describe_error`. Errors travel as replies: an exception would be logged here and
            arrive at the client in the dress of a broken connection.
        """
        if self.refusal is not None:
            return {"epoch": epoch, "error": describe_error(self.refusal, self.worker.address)}
        if epoch < self.floor:
            return {"epoch": epoch, "partitions": [], "records": [], "missing": [*partitions]}
        if epoch > self.floor:
            self.floor, self.records, self.running, self.failure = epoch, {}, {}, None
        # A request that comes again joins the work that its first copy started.
        fresh = [p for p in partitions if p not in self.records and p not in self.running]
        self._warn_of_spilling()
        here = self._look_up(fresh)
        if here and self._is_quick(request, here):
            self._answer_now(epoch, request, here)
        elif here:
            work = asyncio.ensure_future(self._work(epoch, request, here))
            self.running.update(dict.fromkeys(here, work))
        records, running = self.records, self.running
        waiting = {running[p] for p in partitions if p in running}
        if waiting:
            await asyncio.wait(waiting)
        if self.floor == epoch and self.failure is not None:
            return {"epoch": epoch, "error": self.failure}
        done = [p for p in partitions if p in records]
        return {
            "epoch": epoch,
            "partitions": done,
            "records": [records[p] for p in done],
            "missing": [p for p in partitions if p not in records],
        }

    def _is_quick(self, request: bytes, prepared: dict[int, Any]) -> bool:
        """Whether to hand the work to a thread would take longer than the work."""
        known = self.seconds.get(_kind(request, prepared))
        return (
            known is not None
            and known < QUICK_SECONDS
            and self.payload.in_memory([*prepared.values()])
        )

    def _answer_now(self, epoch: int, request: bytes, prepared: dict[int, Any]) -> None:
        """Evaluate between two steps of the event loop."""
        try:
            results = self._timed(request, prepared, CallingThread(), lambda: False)
        except Exception as error:  # whatever it is, the client has to hear of it
            self.failure = describe_error(error, self.worker.address)
            results = []
        self.records.update(zip(prepared, results, strict=False))

    def _timed(
        self,
        request: bytes,
        prepared: dict[int, Any],
        pool: Executor,
        cancelled: Callable[[], bool],
    ) -> list[bytes]:
        """Evaluate, and note what it takes of one processor, at most."""
        begun, spent = time.perf_counter(), time.thread_time()
        results = self.payload.evaluate(request, [*prepared.values()], pool, cancelled)
        if isinstance(pool, CallingThread):
            seconds = time.thread_time() - spent
        else:
            seconds = (time.perf_counter() - begun) * self.worker.state.nthreads
        self.seconds[_kind(request, prepared)] = seconds
        return results

    async def _work(self, epoch: int, request: bytes, prepared: dict[int, Any]) -> None:
        """Evaluate in threads; results go into the tables of this epoch."""
        records, running = self.records, self.running

        def cancelled() -> bool:
            return self.closed or epoch < self.floor

        def drive() -> list[bytes]:
            return self._timed(request, prepared, self.pool, cancelled)

        account = account_of(self.worker)
        _count_passes(account, 1)
        try:
            results = await asyncio.get_running_loop().run_in_executor(self.drivers, drive)
        except Exception as error:  # whatever it is, the client has to hear of it
            if not cancelled():
                self.failure = describe_error(error, self.worker.address)
            results = []
        finally:
            _count_passes(account, -1)
        records.update(zip(prepared, results, strict=False))  # shorter when cancelled
        for partition in prepared:
            del running[partition]


def _kind(request: bytes, prepared: dict[int, Any]) -> tuple[bytes, int, int]:
    """Requests of one kind take equally long."""
    return request[:8], len(request), len(prepared)


def _count_passes(account: WorkerMemory | None, change: int) -> None:
    if account is not None:
        account.working += change


async def call_service(dask_worker: Any, session: str, **request: Any) -> Answer | None:
    """The same request through `client.run`, for workers that cannot be called directly.

    None when the worker has no service for this session (yet).
    """
    service = dask_worker.plugins.get(plugin_name(session))
    return None if service is None else await service.evaluate(**request)


class MembershipHints(SchedulerPlugin):
    """Tells clients at once about workers that leave or join."""

    name = MEMBERSHIP_TOPIC
    idempotent = True

    def remove_worker(
        self, scheduler: Any, worker: str, *, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Publish a departure."""
        scheduler.log_event(MEMBERSHIP_TOPIC, {"gone": worker})

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Publish an arrival."""
        scheduler.log_event(MEMBERSHIP_TOPIC, {"joined": worker})


# --------------------------------------------------------------------------- errors as data


def describe_error(error: Exception, worker: str) -> Answer:
    """Turn an exception into plain data that msgpack carries.

    Returns
    -------
    dict
        `kind`: name of the `LadduError` subclass, or "" for anything unexpected;
        `text`; `context`: its fields; `worker`; `traceback`: text, for the unexpected only.
    """
    if isinstance(error, LadduError):
        known = (kind.__name__ for kind in type(error).__mro__ if _is_ours(kind.__name__))
        context = {str(name): _plain(value) for name, value in error.context.items()}
        return {"kind": next(known), "text": str(error), "context": context, "worker": worker}
    return {
        "kind": "",
        "text": f"{type(error).__name__}: {error}",
        "context": {},
        "worker": worker,
        "traceback": "".join(traceback.format_exception(error)),
    }


def rebuild_error(answer: Mapping[str, Any]) -> LadduError:
    """The exception that `describe_error` described, as its own class with its own fields."""
    kind, text = answer["kind"], answer["text"]
    if _is_ours(kind):
        context = {name: _frozen(value) for name, value in answer["context"].items()}
        rebuilt = getattr(errors, kind)(text, **context)
        assert isinstance(rebuilt, LadduError)
        return rebuilt
    return ExecutionError(
        f"evaluation failed on worker {answer['worker']} with {text}. This is not an error of the "
        f"model that the package knows; the worker's traceback follows.\n{answer['traceback']}",
        worker=answer["worker"],
        traceback=answer["traceback"],
    )


def _is_ours(kind: str) -> bool:
    candidate = getattr(errors, kind, None)
    return isinstance(candidate, type) and issubclass(candidate, LadduError)


def _frozen(value: Any) -> Any:
    """Lists as tuples, whichever of the two the route made of them."""
    if isinstance(value, Mapping):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    """`value` in types that msgpack knows: numbers, text and bytes, lists and dicts of them."""
    if value is None or isinstance(value, bool | bytes):
        return value
    if isinstance(value, float):
        return float(value)  # numpy.float64 is a float that msgpack does not know
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    tolist = getattr(value, "tolist", None)  # numpy scalars and arrays
    return _plain(tolist()) if callable(tolist) else str(value)
