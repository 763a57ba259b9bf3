"""What a worker is and how much memory it has taken, measured inside the worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from laddu_dask.memory import Storage, peak_resident_bytes, resident_bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """Partitions of one data set in one process that were planned and are kept alike.

    Attributes
    ----------
    label
        The data set.
    planned, used
        Storage in the plan, and the first from there on that there was room for.
    partitions, events
        How many.
    reason
        Why the first of them is not kept as planned; empty if it is.
    """

    label: str
    planned: Storage
    used: Storage
    partitions: int
    events: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker of the cluster.

    Attributes
    ----------
    address
        Where it listens.
    nthreads
        Threads that Dask and our kernels may use.
    memory_limit
        Bytes granted to the worker; None for no limit.
    resident_bytes, peak_resident_bytes
        Resident memory of the process, now and at most so far.
    partitions
        Prepared partitions of the session that it holds.
    shrunk
        Partitions for which its memory ran out; their chunks are smaller than planned.
    moved_to_disk
        Partitions that Dask has moved from its memory to its disk. It reads them back in every
        evaluation: a budget was exceeded.
    measured
        Bytes that each data set took at most, kept ones included.
    growth
        By how many bytes the process grew at most since the session first worked in it.
    name
        Its name in plans: the address of a worker, "" for this process.
    kept
        How its partitions are kept.
    """

    address: str
    nthreads: int
    memory_limit: int | None
    resident_bytes: int
    peak_resident_bytes: int
    partitions: int
    shrunk: int = 0
    moved_to_disk: int = 0
    measured: Mapping[str, int] = field(default_factory=dict)
    growth: int = 0
    name: str = ""
    kept: tuple[Kept, ...] = ()


async def describe_worker(dask_worker: Any, session: str) -> WorkerInfo:
    """Body of a `client.run`: asynchronous, so that it answers between two steps of the loop."""
    from laddu_dask.runtime.worker_plugin import plugin_name  # only workers need distributed

    service = dask_worker.plugins.get(plugin_name(session))
    gauge = None if service is None else getattr(service.payload, "high_water", None)
    kept = None if service is None else getattr(service.payload, "kept", None)
    return WorkerInfo(
        address=dask_worker.address,
        nthreads=dask_worker.state.nthreads,
        memory_limit=dask_worker.memory_manager.memory_limit,
        resident_bytes=resident_bytes(),
        peak_resident_bytes=peak_resident_bytes(),
        partitions=0 if service is None else len(service.keys),
        shrunk=0 if service is None else len(getattr(service.payload, "shrunk", ())),
        moved_to_disk=0 if service is None else len(service.on_disk()),
        measured={} if gauge is None else gauge.measured,
        growth=0 if gauge is None else gauge.growth,
        name=dask_worker.address,
        kept=() if kept is None else kept([*service.keys]),
    )
