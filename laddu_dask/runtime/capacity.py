"""What the processes of a session have: threads, and the memory and disk that a plan may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from laddu_dask.errors import ExecutionError, MemoryBudgetError
from laddu_dask.memory import MemoryPlan, PoolReport, format_bytes, host_memory
from laddu_dask.memory.pools import Claim
from laddu_dask.memory.sizes import bytes_of
from laddu_dask.memory.spill_place import SpillPlace
from laddu_dask.memory.worker_limits import WorkerLimits
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.spill_folder import disk_room, lies_in_memory, spill_folder

#: Budgets that differ by less are taken for the smallest of them: measured twice, the same machine
#: gives two numbers.
ALIKE = 0.05
_WORKERS_FOLDER = "the local directory of the worker"
_MOVE_WORKERS = "start it with --local-directory on"


@dataclass(frozen=True)
class Process:
    """A process that holds and evaluates partitions.

    Attributes
    ----------
    name
        Address of the worker; "" for this process.
    threads
        Its threads.
    budget, disk
        Bytes of memory and of disk that a plan may use in it.
    place
        The folder on that disk.
    """

    name: str
    threads: int
    budget: int
    disk: int
    place: SpillPlace = field(default_factory=SpillPlace)


@dataclass(frozen=True)
class Group:
    """Processes that are planned for alike.

    Attributes
    ----------
    threads
        Threads of each process.
    budget, disk
        Bytes that a plan may use in each: the smallest of them.
    turns
        Their names, in the order in which they are given partitions.
    place
        The folder on the smallest disk.
    """

    threads: int
    budget: int
    disk: int
    turns: tuple[str, ...]
    place: SpillPlace = field(default_factory=SpillPlace)

    @property
    def processes(self) -> int:
        """How many they are."""
        return len(self.turns)


@dataclass(frozen=True)
class Capacity:
    """The processes that will share the events.

    Attributes
    ----------
    processes
        Those that have room.
    pools
        Numbers of the pools of every worker of a cluster.
    notes
        What is to be known beside: leases of others, and workers without room.
    """

    processes: tuple[Process, ...]
    pools: tuple[PoolReport, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def total_threads(self) -> int:
        """Threads of all processes."""
        return sum(process.threads for process in self.processes)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Processes with as many threads and nearly the same budgets, the smallest ones first."""
        ordered = sorted(self.processes, key=lambda p: (p.threads, p.budget, p.disk, p.name))
        found: list[list[Process]] = []
        for process in ordered:
            if found and _are_alike(found[-1][0], process):
                found[-1].append(process)
            else:
                found.append([process])
        return tuple(
            Group(
                threads=members[0].threads,
                budget=min(process.budget for process in members),
                disk=min(process.disk for process in members),
                turns=tuple(sorted(process.name for process in members)),
                place=min(members, key=lambda process: process.disk).place,
            )
            for members in found
        )


def _are_alike(one: Process, other: Process) -> bool:
    def near(a: int, b: int) -> bool:
        return abs(a - b) <= ALIKE * max(a, b)

    return (
        one.threads == other.threads
        and near(one.budget, other.budget)
        and near(one.disk, other.disk)
    )


def local_capacity(execution: Execution) -> Capacity:
    """Capacity of this process."""
    memory = host_memory()
    budget = execution.memory.host.resolve(memory.total, memory.available)
    folder = spill_folder()
    free = disk_room(folder)
    place = SpillPlace(f"the folder {folder}", free, lies_in_memory(folder))
    disk = _disk_budget(execution.memory, free)
    return Capacity((Process("", execution.local_threads, budget, disk, place),))


def cluster_capacity(state: Mapping[str, Any], memory: MemoryPlan) -> Capacity:
    """Capacity of the workers of a cluster.

    Parameters
    ----------
    state
        What the planner on the scheduler knows; see `laddu_dask.runtime.scheduler_planner`.
    memory
        The budgets of each worker.

    Raises
    ------
    ExecutionError
        The cluster has no worker yet.
    MemoryBudgetError
        No worker has any room.
    """
    require_workers(state["workers"])
    pools, notes = pools_and_leases(state)
    remaining = {(pool.name, pool.resource): pool.remaining for pool in pools}
    processes, full = [], dict[str, str]()
    for name, worker in sorted(state["workers"].items()):
        if worker["numbers"] is None:
            full[name] = "it has not reported its memory"
            continue
        limits = WorkerLimits.from_dict(worker["numbers"])
        host = remaining.get((name, "host"), 0)
        if not host:
            full[name] = limits.describe()
            continue
        share = None if limits.total is None else limits.total // worker["neighbours"]
        total = min((n for n in (share, limits.memory_limit) if n is not None), default=None)
        budget = min(memory.host.resolve(total, host), host)
        free = remaining.get((name, "disk"), 0)
        place = SpillPlace(_WORKERS_FOLDER, free, limits.disk_free == 0, _MOVE_WORKERS)
        disk = _disk_budget(memory, free)
        processes.append(Process(name, worker["nthreads"], budget, disk, place))
    if not processes:
        told = "; ".join(f"{name}: {why}" for name, why in full.items())
        raise MemoryBudgetError(
            f"no worker of the cluster has memory left for events ({told}). Free memory there, "
            "raise the workers' memory limit, or start other workers.",
            resource="host",
            requested=1,
            remaining=0,
        )
    refused = tuple(f"{name} has no room for events: {why}" for name, why in full.items())
    return Capacity(tuple(processes), pools, notes + refused)


def pools_and_leases(state: Mapping[str, Any]) -> tuple[tuple[PoolReport, ...], tuple[str, ...]]:
    """Numbers of all pools; a line for whatever a session holds, and where Dask had to act."""
    pools = tuple(PoolReport(**pool) for pool in state["pools"])
    notes = [*_leases(Claim(**lease) for lease in state["leases"])]
    for name, worker in sorted(state["workers"].items()):
        limits = WorkerLimits.from_dict(worker["numbers"] or {})
        if limits.paused or limits.spilled:
            notes.append(f"{name} is short of memory: {limits.describe()}")
    return pools, tuple(notes)


def _leases(claims: Iterable[Claim]) -> Iterable[str]:
    """What sessions hold already: one line for each of them on each worker."""
    held: dict[tuple[str, str, str, str], int] = {}
    for claim in claims:
        where = (claim.worker, claim.resource, claim.session, claim.client)
        held[where] = held.get(where, 0) + claim.nbytes
    for (worker, resource, session, client), nbytes in held.items():
        yield (
            f"{worker}: session {session} of {client or 'an unknown client'} holds "
            f"{format_bytes(nbytes)} {bytes_of(resource)}"
        )


def _disk_budget(memory: MemoryPlan, free: int) -> int:
    """Bytes on a disk with so many free ones; 0 where there is none to spill to."""
    return min(memory.disk.resolve(None, free), free) if free else 0


def require_workers(workers: Mapping[str, Any]) -> None:
    """Refuse a cluster without workers, on which work would wait for ever.

    Raises
    ------
    ExecutionError
        `workers` is empty.
    """
    if not workers:
        raise ExecutionError(
            "the cluster has no workers, so nothing can be planned or evaluated there; start "
            "workers, or wait for them with client.wait_for_workers(n)",
            option="cluster",
        )
