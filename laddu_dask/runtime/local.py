"""The in-process session: the same payload on threads, without scheduler or open port."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from laddu_dask.errors import ExecutionError
from laddu_dask.forks import renewed
from laddu_dask.kernels import Accumulator
from laddu_dask.memory import Room, host_memory, peak_resident_bytes, resident_bytes
from laddu_dask.runtime.payload import Each, Mode, Prepared, ReductionPayload
from laddu_dask.runtime.worker_info import WorkerInfo

Array = npt.NDArray[np.float64]


class Session(Protocol):
    """Prepared partitions that answer requests; in this process or on a cluster."""

    def evaluate(
        self, mode: Mode, frontiers: Sequence[Array], effort: float
    ) -> list[list[Accumulator]]:
        """Sums of each partition in order, an accumulator per parameter set.

        `frontiers` has the frontier values of each pass, shape (sets, values); `effort` is a
        multiple of what an evaluation usually takes.
        """

    def worker_info(self) -> tuple[WorkerInfo, ...]:
        """Memory and threads of every process."""

    def close(self) -> None:
        """Release everything."""


class LocalSession:
    """Partitions prepared and evaluated by threads of this process.

    Parameters
    ----------
    payload
        What to prepare and evaluate.
    threads
        Threads that do it; a single one is that of the caller.
    room
        Where partitions may be kept.
    """

    def __init__(self, payload: ReductionPayload, threads: int, room: Room) -> None:
        self._payload = payload
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        if threads > 1:
            self._pool = renewed(
                self, "_pool", partial(ThreadPoolExecutor, threads, "laddu-kernel")
            )
        self._prepared: list[Prepared] = []
        try:
            numbers = range(len(payload.tasks))
            self._prepared = list(self._each(lambda n: payload.prepare(n, room), numbers))
        except BaseException:
            self.close()
            raise

    @property
    def _each(self) -> Each:
        return map if self._pool is None else self._pool.map

    def evaluate(
        self, mode: Mode, frontiers: Sequence[Array], effort: float = 1.0
    ) -> list[list[Accumulator]]:
        """Sums of each partition; threads always answer, so `effort` does not matter."""
        if len(self._prepared) != len(self._payload.tasks):
            raise ExecutionError("this session is closed; make a new likelihood", option="cluster")
        return self._payload.evaluate(mode, frontiers, self._prepared, self._each)

    def worker_info(self) -> tuple[WorkerInfo, ...]:
        """This process."""
        return (
            WorkerInfo(
                address=f"this process ({socket.gethostname()}, pid {os.getpid()})",
                nthreads=self._threads,
                memory_limit=host_memory().total,
                resident_bytes=resident_bytes(),
                peak_resident_bytes=peak_resident_bytes(),
                partitions=len(self._prepared),
                shrunk=len(self._payload.shrunk),
                measured=self._payload.high_water.measured,
                growth=self._payload.high_water.growth,
                kept=self._payload.kept(range(len(self._prepared))),
            ),
        )

    def close(self) -> None:
        """Stop the threads and drop the partitions."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._prepared = []

    def __enter__(self) -> LocalSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
