"""The private parts of Dask that the planner needs, in one place; each has a test of its own.

The planner sits on the scheduler as a plugin, its hands are plugins of the workers. They talk in
three operations: a worker asks for bytes and tells its numbers (`PLANNER`), the scheduler asks
every worker for its numbers (`REPORT`) and tells it that a session ended (`ENDED`). Handlers of
servers are a documented notion without a documented way to add one; the rest is attributes without
underscore that the documentation does not list.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from laddu_dask.memory import host_memory, resident_bytes
from laddu_dask.memory.devices import device_memory
from laddu_dask.memory.worker_limits import WorkerLimits, lowest_fraction
from laddu_dask.runtime.spill_folder import disk_room

PLANNER = "laddu_dask_memory"
"""Operation of the scheduler."""
REPORT = "laddu_dask_memory_report"
"""Operation of each worker."""
ENDED = "laddu_dask_session_ended"
"""Operation of each worker; it stays when the plugin that serves it goes."""

FRACTIONS = ("target", "spill", "pause", "terminate")
"""Settings below `distributed.worker.memory` at which Dask acts."""


def serve(server: Any, operation: str, answer: Callable[..., Any]) -> None:
    """Let a scheduler or worker answer an operation; again to replace who answers."""
    server.handlers[operation] = answer


def stop_serving(server: Any, operation: str) -> None:
    """End what `serve` began."""
    getattr(server, "handlers", {}).pop(operation, None)


async def ask_planner(worker: Any, message: dict[str, Any]) -> Any:
    """The planner's answer to a worker; None where the scheduler has no planner.

    Raises
    ------
    OSError
        The scheduler cannot be reached.
    """
    return await getattr(worker.scheduler, PLANNER)(message=message)


async def ask_workers(
    scheduler: Any,
    workers: Iterable[str],
    seconds: float,
    operation: str = REPORT,
    **fields: Any,
) -> dict[str, Any]:
    """The reports of workers that give one within so many seconds, all asked at once.

    One by one, since `Scheduler.broadcast` logs an error for every worker that is gone.
    """

    async def ask(worker: str) -> Any:
        call = getattr(scheduler.rpc(worker), operation)
        try:
            return await asyncio.wait_for(call(**fields), seconds)
        except (OSError, TimeoutError):
            return None  # stopped, or gone in this moment: its last numbers stand
        except Exception:  # what a closing pool of connections raises has no class of its own
            if scheduler.rpc.status.name == "running":
                raise
            return None  # the scheduler is closing

    asked = [*workers]
    answers = await asyncio.gather(*map(ask, asked))
    # A worker without the operation answers None, or with an error in plain data.
    return {
        worker: answer
        for worker, answer in zip(asked, answers, strict=True)
        if isinstance(answer, dict) and "exception" not in answer
    }


class KeptResult(NamedTuple):
    """A result that a worker keeps, as the scheduler knows it."""

    key: str
    worker: str
    nbytes: int
    client: str


def kept_results(scheduler: Any, prefix: str) -> list[KeptResult]:
    """Results with keys that begin with `prefix`, once for each worker that keeps them."""
    return [
        KeptResult(key, where.address, max(task.nbytes, 0), _first_client(task))
        for key, task in scheduler.tasks.items()
        if isinstance(key, str) and key.startswith(prefix)
        for where in task.who_has or ()
    ]


def _first_client(task: Any) -> str:
    return min((client.client_key for client in task.who_wants or ()), default="")


def is_wished_elsewhere(scheduler: Any, key: str, worker: str) -> bool:
    """Whether a task was meant for other workers, at least one of which is there.

    A wish is no order: Dask lets a worker that has nothing to do take tasks from the queues of
    others, and it knows nothing of what there is room for.
    """
    task = scheduler.tasks.get(key)
    wished = (task.worker_restrictions or ()) if task is not None else ()
    running = {known.address for known in scheduler.running}
    return worker not in wished and not running.isdisjoint(wished)


async def remove_worker_plugin(scheduler: Any, name: str, prefix: str, seconds: float) -> None:
    """Take a plugin off all workers, if it is there, when no task waits for it.

    Parameters
    ----------
    prefix
        Of the keys of tasks that need it. They have been released.
    seconds
        Deadline of each worker; one that does not answer keeps the plugin.

    Notes
    -----
    `Scheduler.unregister_worker_plugin` logs an error for each worker that has not got the plugin,
    is gone, or takes it off by itself because it closes.
    """
    if scheduler.worker_plugins.pop(name, None) is not None:
        workers = [*scheduler.workers]
        await ask_workers(scheduler, workers, seconds, ENDED, name=name, prefix=prefix)


async def drop_plugin(worker: Any, name: str, prefix: str, seconds: float) -> dict[str, Any]:
    """A worker's side of `remove_worker_plugin`, which gives tasks a while to be released."""
    end = time.monotonic() + seconds
    while _has_waiting(worker, prefix) and time.monotonic() < end:
        await asyncio.sleep(0.005)
    if is_closing(worker):
        return {}  # it does so itself, and would miss it
    if (plugin := worker.plugins.pop(name, None)) is not None:
        plugin.teardown(worker)
    return {}


def is_closing(worker: Any) -> bool:
    """Whether a worker closes, or has closed."""
    return worker.status.name in ("closing", "closed", "failed")


def _has_waiting(worker: Any, prefix: str) -> bool:
    return any(
        task.state in ("waiting", "ready", "constrained")
        for key, task in worker.state.tasks.items()
        if isinstance(key, str) and key.startswith(prefix)
    )


def is_cancelled(worker: Any, key: str, seconds: float) -> bool:
    """Whether a task that runs is not wanted any more, or will not be soon; in its thread."""
    end = time.monotonic() + seconds
    while True:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.005)


def forget_keys(scheduler: Any, keys: Iterable[str], client: str) -> None:
    """Let a client give up keys now, not with its next batch of messages."""
    if client in scheduler.clients:
        scheduler.client_releases_keys(keys=[*keys], client=client)


def limits_of(worker: Any, held: Mapping[str, int]) -> WorkerLimits:
    """A worker's numbers, measured now; `held` is what leases hold of each resource already.

    Fractions are those with which the worker began; an attribute that is missing, as of a manager
    of another kind, counts as switched off.
    """
    manager = worker.memory_manager
    fractions = [getattr(manager, f"memory_{name}_fraction", None) for name in FRACTIONS]
    in_memory, on_disk = getattr(worker.data, "spilled_total", (0, 0))
    host, rss = host_memory(), resident_bytes()
    return WorkerLimits(
        memory_limit=manager.memory_limit,
        fraction=lowest_fraction(*fractions, _terminate_fraction()),
        total=host.total,
        available=host.available,
        rss=rss,
        managed=max(worker.state.nbytes - in_memory, 0),
        spilled=on_disk,
        taken=max(rss - held.get("host", 0), 0),
        held=dict(held),
        disk_free=disk_room(Path(worker.local_directory)),
        devices=device_memory(),
        paused=worker.status.name == "paused",
    )


def _terminate_fraction() -> Any:
    """The nanny's own setting, which the worker's memory manager does not carry."""
    from dask import config

    return config.get("distributed.worker.memory.terminate", None)


def result_bytes(worker: Any, key: str) -> int:
    """What Dask counts for a result that it keeps on this worker."""
    return int(worker.state.tasks[key].nbytes or 0)
