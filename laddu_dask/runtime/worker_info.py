"""What a worker is and how much memory it has taken, measured inside the worker."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laddu_dask.runtime.worker_plugin import plugin_name

STATUS = Path("/proc/self/status")


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
    """

    address: str
    nthreads: int
    memory_limit: int | None
    resident_bytes: int
    peak_resident_bytes: int
    partitions: int


def resident_memory() -> tuple[int, int]:
    """Bytes of resident memory of this process: now, and the peak.

    Linux keeps both under /proc. Its peak is preferred to `getrusage`, which there also counts
    the process that this one was forked from. Elsewhere only the peak of `getrusage` is known,
    in bytes on macOS, in KiB otherwise; it stands for both.
    """
    if STATUS.exists():
        lines = (line.split() for line in STATUS.read_text().splitlines())
        kib = {words[0]: int(words[1]) for words in lines if words[0] in ("VmRSS:", "VmHWM:")}
        return 1024 * kib["VmRSS:"], 1024 * kib["VmHWM:"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
    return peak, peak


async def describe_worker(dask_worker: Any, session: str) -> WorkerInfo:
    """Body of a `client.run`: asynchronous, so that it answers between two steps of the loop."""
    service = dask_worker.plugins.get(plugin_name(session))
    resident, peak = resident_memory()
    return WorkerInfo(
        address=dask_worker.address,
        nthreads=dask_worker.state.nthreads,
        memory_limit=dask_worker.memory_manager.memory_limit,
        resident_bytes=resident,
        peak_resident_bytes=peak,
        partitions=0 if service is None else len(service.keys),
    )
