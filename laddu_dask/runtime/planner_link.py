"""The private parts of Dask that the planner needs, in one place; each has a test of its own.

The planner sits on the scheduler as a plugin, its hands are plugins of the workers. They talk in
two operations: a worker asks for bytes and tells its numbers (`PLANNER`), the scheduler asks every
worker for its numbers (`REPORT`). Handlers of servers are a documented notion without a documented
way to add one; the rest is attributes without underscore that the documentation does not list.
"""

from __future__ import annotations

import asyncio
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


async def ask_workers(scheduler: Any, workers: Iterable[str], seconds: float) -> dict[str, Any]:
    """The reports of workers that give one within so many seconds, all asked at once."""

    async def ask(worker: str) -> dict[str, Any]:
        question = scheduler.broadcast(msg={"op": REPORT}, workers=[worker], on_error="return")
        try:
            told: dict[str, Any] = await asyncio.wait_for(question, seconds)
        except (OSError, TimeoutError):
            return {}  # stopped, or gone in this moment: its last numbers stand
        return {where: report for where, report in told.items() if isinstance(report, dict)}

    answers = await asyncio.gather(*map(ask, workers))
    return {worker: report for answer in answers for worker, report in answer.items()}


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


async def remove_worker_plugin(scheduler: Any, name: str) -> None:
    """Take a plugin off all workers, if it is there."""
    if name in scheduler.worker_plugins:
        await scheduler.unregister_worker_plugin(comm=None, name=name)


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
