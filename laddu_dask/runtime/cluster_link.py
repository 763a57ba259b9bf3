"""The private and the fragile parts of talking to a Dask cluster, in one place.

`connect` accepts what people hand over as "the cluster"; `check_cluster` refuses one that runs
other software; `Route` carries requests to workers, directly when it can and through the scheduler
otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from distributed import Client, WorkerPlugin

from laddu_dask.errors import ExecutionError, LadduError
from laddu_dask.runtime.cluster_form import is_scheduler_file, refuse_other_forms
from laddu_dask.runtime.versions import package_versions, version_mismatch
from laddu_dask.runtime.worker_info import WorkerInfo, describe_worker
from laddu_dask.runtime.worker_plugin import (
    Answer,
    call_service,
    operation_name,
)

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 30.0
"""Deadline of a question to a process that only has to look; the first one imports this package
there, perhaps from a slow disk."""
SILENT_SECONDS = 5.0
"""When one worker has answered, the others have so long before they are left out."""
AGAIN_SECONDS = 1.0
"""Deadline of a question to a worker that gave no answer to the one before."""
PROBE_SECONDS = 5.0
DETOUR_SECONDS = 60.0
"""A worker that could not be called directly is tried again after so long."""
INSTALL_ATTEMPTS = 5
START_AGAIN = (
    "The scheduler is gone or the client was closed: see that scheduler and workers run, and make "
    "a new likelihood with Execution(cluster=...) of a new client or of the address. A fit can "
    "begin at the last parameters, or go on where it was if it was given a checkpoint."
)


# -------------------------------------------------------------------------------- connecting


#: The process that uses each client: a fork has no thread that listens to a cluster.
_processes: WeakKeyDictionary[Client, int] = WeakKeyDictionary()


def connect(cluster: Any) -> tuple[Client, bool]:
    """A synchronous, running client, and whether it was opened here.

    Parameters
    ----------
    cluster
        A `distributed.Client`, the address of a scheduler, the path of a scheduler file, or a
        cluster object of Dask.

    Raises
    ------
    ExecutionError
        The cluster is asynchronous, closed, cannot be reached, or is none of these; the client was
        used before this process forked.
    """
    client, opened = _client_of(cluster)
    refuse_forked(client)
    _processes.setdefault(client, os.getpid())
    return client, opened


def is_forked(client: Client) -> bool:
    """Whether a client was used before this process forked from another one."""
    return _processes.get(client, os.getpid()) != os.getpid()


def refuse_forked(client: Client) -> None:
    """Raise in a fork of the process that a client works in.

    Raises
    ------
    ExecutionError
        With the cure.
    """
    if is_forked(client):
        raise ExecutionError(
            "this likelihood was connected to its cluster before the process forked; make a new "
            "one in the child, with Execution(cluster=...) of the scheduler's address or of a new "
            "client",
            option="cluster",
        )


def _client_of(cluster: Any) -> tuple[Client, bool]:
    refuse_other_forms(cluster)
    if isinstance(cluster, Client):
        _refuse_asynchronous(cluster)
        if cluster.status != "running":
            raise ExecutionError(
                f"the Dask client is {cluster.status}, not running. Hand over a connected client.",
                option="cluster",
            )
        return cluster, False
    try:
        if isinstance(cluster, str | os.PathLike):
            where = os.fspath(cluster)
            if is_scheduler_file(where):
                if not os.path.isfile(where):
                    raise ExecutionError(
                        f"there is no scheduler file {where}. Start the scheduler with "
                        f"--scheduler-file {where}, or give its address.",
                        option="cluster",
                    )
                return Client(scheduler_file=where, set_as_default=False), True
            return Client(where, set_as_default=False), True
        if isinstance(getattr(cluster, "scheduler_address", None), str):
            _refuse_asynchronous(cluster)
            return Client(cluster, set_as_default=False), True
        _refuse_asynchronous(cluster)
        client = cluster.get_client()
        _refuse_asynchronous(client)
        return client, True
    except (OSError, ValueError) as error:
        raise ExecutionError(
            f"no Dask scheduler answers at {cluster}: {error}. Check the address and that the "
            "scheduler runs.",
            option="cluster",
        ) from error


def _refuse_asynchronous(owner: Any) -> None:
    if getattr(owner, "asynchronous", False):
        raise ExecutionError(
            f"this {type(owner).__name__} is asynchronous, or is used from inside its event loop; "
            "evaluations block until they are done and would lock it up. Use a synchronous client "
            "(asynchronous=False) outside of the loop.",
            option="cluster",
        )


class ClusterFacts(NamedTuple):
    """What the scheduler says about itself and its workers.

    Attributes
    ----------
    versions
        Of its software.
    idle_timeout
        Seconds without tasks after which it ends the cluster; None for never.
    memory_limits
        Of the workers that have one, in bytes.
    """

    versions: dict[str, str]
    idle_timeout: float | None
    memory_limits: frozenset[int]


async def check_cluster(client: Client) -> ClusterFacts:
    """Compare software with the scheduler and every worker.

    Raises
    ------
    ExecutionError
        Naming the process and its versions, or the process that lacks the package.
    """
    here = package_versions()
    scheduler = scheduler_address(client)
    facts: ClusterFacts
    try:
        facts = await asyncio.wait_for(client.run_on_scheduler(_scheduler_facts), ANSWER_SECONDS)
    except ImportError as error:
        raise _not_importable(f"the scheduler {scheduler}", error) from error
    # The scheduler computes nothing: only what is unpickled there has to agree.
    needed = {name: here[name] for name in ("python", "laddu-dask")}
    if refusal := version_mismatch(needed, facts.versions, f"the scheduler {scheduler}"):
        raise refusal
    for address, answer in (await ask_workers(client, package_versions)).items():
        if isinstance(answer, ImportError):
            raise _not_importable(f"worker {address}", answer) from answer
        if isinstance(answer, OSError):
            continue  # gone or stuck in this moment; its service checks again when it begins
        if isinstance(answer, Exception):
            raise answer
        if refusal := version_mismatch(here, answer, f"worker {address}"):
            raise refusal
    return facts


def scheduler_address(client: Client) -> str:
    """Where the client's scheduler listens, for messages."""
    return str(getattr(client.scheduler, "address", "an unknown address"))


def _scheduler_facts(dask_scheduler: Any) -> ClusterFacts:
    limits = (worker.memory_limit for worker in dask_scheduler.workers.values())
    return ClusterFacts(
        package_versions(),
        dask_scheduler.idle_timeout,
        frozenset(limit for limit in limits if limit),
    )


def _not_importable(where: str, error: Exception) -> ExecutionError:
    return ExecutionError(
        f"{where} cannot import this package ({error}). Install laddu-dask "
        f"{package_versions()['laddu-dask']} on the scheduler and on every worker.",
        option="cluster",
    )


def ask(client: Client, question: Callable[..., Any], *arguments: Any, **fields: Any) -> Any:
    """Run an asynchronous question on the client's loop and wait for it.

    Raises
    ------
    ExecutionError
        The cluster does not answer, or was connected before this process forked.
    LadduError
        As the question raises it.
    """
    refuse_forked(client)
    try:
        return client.sync(question, *arguments, **fields)
    except LadduError:
        raise
    except OSError as error:
        raise ExecutionError(
            f"the Dask scheduler {scheduler_address(client)} does not answer "
            f"({type(error).__name__}: {error}). {START_AGAIN}",
            option="cluster",
        ) from error


async def ask_workers(
    client: Client,
    function: Callable[..., Any],
    seconds: float = SILENT_SECONDS,
    **fields: Any,
) -> dict[str, Any]:
    """What a function returns on each worker; an exception in place of an answer.

    One question per worker, each with a deadline: see `ask_each`.

    Raises
    ------
    OSError
        The scheduler does not answer.
    """
    workers = [*await asyncio.wait_for(client.ncores(), ANSWER_SECONDS)]

    async def ask(worker: str) -> Any:
        answers = await client.run(function, workers=[worker], on_error="return", **fields)
        return answers[worker]

    return await ask_each(client, workers, ask, ANSWER_SECONDS, seconds)


async def ask_each(
    client: Client,
    workers: Collection[str],
    question: Callable[[str], Coroutine[Any, Any, Any]],
    first: float,
    others: float,
) -> dict[str, Any]:
    """Answers to a question that is put to all workers at once; an exception in place of one.

    A worker that is stopped or cut off keeps nobody waiting for the others for long: its answer is
    a `TimeoutError`, and from then on it is asked with a short deadline, until it answers.

    Parameters
    ----------
    first, others
        Seconds for the first answer, and for the rest after that.
    """
    silent = _silent.setdefault(client, set())
    tasks = {worker: asyncio.ensure_future(question(worker)) for worker in workers}
    hoped = {task for worker, task in tasks.items() if worker not in silent} or {*tasks.values()}
    begin = time.monotonic()
    try:
        if hoped:
            done, left = await asyncio.wait(
                hoped, timeout=first, return_when=asyncio.FIRST_COMPLETED
            )
            if done and left:
                await asyncio.wait(left, timeout=others)
            left = {task for task in tasks.values() if not task.done()} - hoped
            if left:
                again = begin + min(first, AGAIN_SECONDS) - time.monotonic()
                await asyncio.wait(left, timeout=max(again, 0))
        late = {worker for worker, task in tasks.items() if not task.done()}
    finally:
        for task in tasks.values():
            task.cancel()
        answers = await asyncio.gather(*tasks.values(), return_exceptions=True)
    if new := late - silent:
        logger.warning("left out, since they do not answer: workers %s", ", ".join(sorted(new)))
    silent.difference_update({*tasks} - late)
    silent.update(late)
    waited = f"no answer for {time.monotonic() - begin:.1f} s"
    return {
        worker: TimeoutError(waited) if worker in late else answer
        for worker, answer in zip(tasks, answers, strict=True)
    }


_silent: WeakKeyDictionary[Client, set[str]] = WeakKeyDictionary()
"""Workers that gave no answer to the last question."""


def silent_workers(client: Client) -> frozenset[str]:
    """Workers that gave no answer to the last question that they were asked."""
    return frozenset(_silent.get(client, ()))


async def described_workers(client: Client, session: str) -> tuple[WorkerInfo, ...]:
    """Every worker that answers, by address, measured now.

    Raises
    ------
    OSError
        The scheduler does not answer.
    """
    found = []
    for address, answer in (await ask_workers(client, describe_worker, session=session)).items():
        if isinstance(answer, OSError):
            logger.warning("worker %s gives no answer: %r", address, answer)
        elif isinstance(answer, Exception):
            raise answer
        else:
            found.append(answer)
    return tuple(sorted(found, key=lambda info: str(info.address)))


async def install(client: Client, plugin: WorkerPlugin) -> None:
    """Register a plugin on all workers, also while some of them come, go or hang.

    The scheduler knows the plugin from the first attempt on and hands it to all who join. What can
    fail is telling those that are there: when one of them leaves in this moment, others may not
    have heard, and are told again.

    Raises
    ------
    OSError
        Workers kept leaving, or the scheduler does not answer.
    """
    for attempt in range(INSTALL_ATTEMPTS):
        silent = silent_workers(client)
        seconds = min(ANSWER_SECONDS, SILENT_SECONDS) if silent else ANSWER_SECONDS
        try:
            await asyncio.wait_for(client.register_plugin(plugin), seconds)
            return
        except TimeoutError:
            if client.status != "running":
                raise
            if not silent:
                logger.warning("a worker does not answer; it gets its part when it wakes up")
            return
        except OSError:
            if attempt == INSTALL_ATTEMPTS - 1 or client.status != "running":
                raise
            await asyncio.sleep(0.2)


def out_of_memory_cure(limits: Collection[int]) -> str:
    """What workers with these memory limits had, and what to do when they die of wanting more."""
    had = f"a memory limit of {_sizes(limits)}" if limits else "no memory limit"
    return (
        f"Most often they ran out of memory: workers have {had} here. Give a smaller "
        "Execution(memory=...), more partitions or storage='streaming', or start workers with "
        "more memory; their logs tell."
    )


def _sizes(limits: Collection[int]) -> str:
    least, most = (f"{size / 2**20:.0f} MiB" for size in (min(limits), max(limits)))
    return least if least == most else f"{least} to {most}"


# ---------------------------------------------------------------------------------- requests


class Route:
    """Carries requests of one session to workers.

    `Client.rpc` goes straight to the worker over a pooled connection with the client's TLS
    settings, in about half the time of `Client.run`, which passes through the scheduler. The
    first is not documented, so its absence is provided for, and workers that only the scheduler
    can reach: from the beginning, or, where a direct call failed or hung, for a while. There is no
    third way. Tasks would be one, but their results are fetched as calls are carried.

    Attributes
    ----------
    direct
        Whether workers are called directly, unless that has just failed with one of them.
    """

    def __init__(self, client: Client, session: str) -> None:
        self.client = client
        self.session = session
        self.operation = operation_name(session)
        self.direct = callable(getattr(client, "rpc", None))
        self._detours: dict[str, float] = {}

    async def call(
        self, worker: str, epoch: int, request: bytes, partitions: Sequence[int]
    ) -> Answer | None:
        """The worker's answer; None when it has no service for this session.

        Raises
        ------
        OSError
            The link or the process broke.
        """
        fields: dict[str, Any] = {"epoch": epoch, "request": request, "partitions": [*partitions]}
        if self.direct and self._detours.get(worker, 0.0) < time.monotonic():
            try:
                rpc = getattr(self.client.rpc(worker), self.operation)
                direct: Answer | None = await rpc(**fields)
            except OSError:
                self.go_round(worker)
                raise
            if direct is not None:  # a worker without the handler answers None
                return direct
        answers = await self.client.run(
            call_service, workers=[worker], session=self.session, **fields
        )
        found: Answer | None = answers.get(worker)
        return found

    def go_round(self, worker: str) -> None:
        """Call a worker through the scheduler for a while: a direct call broke, or went unheard."""
        self._detours[worker] = time.monotonic() + DETOUR_SECONDS

    def forget(self, worker: str) -> None:
        """A worker left; another one may come by its address."""
        self._detours.pop(worker, None)

    async def probe(self, workers: Iterable[str]) -> None:
        """Feature test: an empty request to each worker decides whether to call directly."""
        addresses = [*workers]
        if not self.direct or not addresses:
            return
        calls = [asyncio.wait_for(self.call(w, 0, b"", ()), PROBE_SECONDS) for w in addresses]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        # One broken worker is a matter of recovery; none reachable means a proxy in between.
        if all(isinstance(outcome, OSError) for outcome in outcomes):
            self.direct = False
            logger.warning(
                "workers of %s cannot be called directly (%s); requests go through the scheduler",
                scheduler_address(self.client),
                outcomes[0],
            )
