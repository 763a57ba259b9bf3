"""What the processes of a session have: threads and the memory that a plan may use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from laddu_dask.errors import ExecutionError
from laddu_dask.memory import HostMemory, host_memory
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.spill_folder import disk_room, spill_folder

#: Dask begins to spill a worker's data at this share of its limit; plans stay below it.
DASK_TARGET = 0.6


@dataclass(frozen=True)
class Capacity:
    """The processes that will share the events.

    Attributes
    ----------
    threads
        Threads of each process.
    budget, disk
        Bytes of memory and disk that a plan may use in each process: the smallest of all.
    """

    threads: tuple[int, ...]
    budget: int
    disk: int

    @property
    def total_threads(self) -> int:
        """Threads of all processes."""
        return sum(self.threads)

    @property
    def widest(self) -> int:
        """Threads of the process with the most, which will hold the largest share."""
        return max(self.threads)

    def largest_share(self, partition_events: Sequence[int]) -> int:
        """Events in the process with the largest share of partitions of these sizes.

        Partitions are dealt out in proportion to threads and are not divided further, so the
        process with the most threads may get the largest ones.
        """
        most = self.most_partitions(len(partition_events))
        return sum(sorted(partition_events, reverse=True)[:most])

    def most_partitions(self, count: int) -> int:
        """How many of so many partitions the process with the most gets."""
        return -(-count * self.widest // self.total_threads)


def local_capacity(execution: Execution) -> Capacity:
    """Capacity of this process."""
    memory = host_memory()
    budget = execution.memory.host.resolve(memory.total, memory.available)
    disk = _disk_budget(execution, disk_room(spill_folder()))
    return Capacity((execution.local_threads,), budget, disk)


def cluster_capacity(client: Any, execution: Execution) -> Capacity:
    """Capacity of the workers of a connected client.

    Raises
    ------
    ExecutionError
        The cluster has no worker yet.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    memory: dict[str, HostMemory] = client.run(host_memory)
    disk: dict[str, int] = client.run(_local_disk)
    require_workers(memory)
    neighbours = Counter(_host(address) for address in memory)
    budgets, threads = [], []
    for address, found in memory.items():
        worker = workers.get(address, {})
        share = neighbours[_host(address)]
        limit = worker.get("memory_limit") or None
        total = _least(_part(found.total, share), limit)
        target = None if limit is None else int(DASK_TARGET * limit)
        available = _least(_part(found.available, share), target)
        budgets.append(execution.memory.host.resolve(total, available))
        threads.append(int(worker.get("nthreads", 1)))
    # Workers of one host may share a disk.
    free = min(free // neighbours[_host(address)] for address, free in disk.items())
    return Capacity(tuple(threads), min(budgets), _disk_budget(execution, free))


def _local_disk() -> int:
    """Free bytes where the worker that runs this spills to."""
    return disk_room(spill_folder())


def _disk_budget(execution: Execution, free: int) -> int:
    """Bytes on a disk with so many free ones; 0 where there is none to spill to."""
    return min(execution.memory.disk.resolve(None, free), free) if free else 0


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


def _part(count: int | None, processes: int) -> int | None:
    """Equal share of a number that may be unknown."""
    return None if count is None else count // processes


def _least(*counts: int | None) -> int | None:
    """The smallest of the known numbers; None when none is known."""
    return min((count for count in counts if count is not None), default=None)


def _host(address: str) -> str:
    return urlsplit(address).hostname or address
