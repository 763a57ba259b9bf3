"""The in-process session: the same payload on threads, without scheduler or open port."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Protocol

from laddu_dask.errors import ExecutionError
from laddu_dask.memory import host_memory, peak_resident_bytes, resident_bytes
from laddu_dask.runtime.payload import Prepared, ReductionPayload
from laddu_dask.runtime.worker_info import WorkerInfo


class Session(Protocol):
    """Prepared partitions that answer requests; in this process or on a cluster."""

    def evaluate(self, request: bytes, effort: float = 1.0) -> dict[int, bytes]:
        """One record per partition; `effort` as a multiple of what an evaluation usually takes."""

    def worker_info(self) -> tuple[WorkerInfo, ...]:
        """Memory and threads of every process."""

    def close(self) -> None:
        """Release everything."""


class _CallingThread(Executor):
    """A pool without threads: handing one thread's work to another would only cost time."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Call at once."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **options))
        except Exception as error:
            future.set_exception(error)
        return future


class LocalSession:
    """Partitions prepared and evaluated by threads of this process.

    Parameters
    ----------
    payload
        What to prepare and evaluate.
    threads
        Size of the thread pool.
    """

    def __init__(self, payload: ReductionPayload, threads: int) -> None:
        self._payload = payload
        self._threads = threads
        self._pool: Executor = (
            ThreadPoolExecutor(threads, thread_name_prefix="laddu-kernel")
            if threads > 1
            else _CallingThread()
        )
        self._prepared: list[Prepared] = []
        try:
            self._prepared = list(self._pool.map(payload.prepare, range(len(payload.tasks))))
        except BaseException:
            self.close()
            raise

    def evaluate(self, request: bytes, effort: float = 1.0) -> dict[int, bytes]:
        """One record per partition."""
        if len(self._prepared) != len(self._payload.tasks):
            raise ExecutionError("this session is closed; make a new likelihood", option="cluster")
        records = self._payload.evaluate(request, self._prepared, self._pool, lambda: False)
        return dict(enumerate(records))

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
            ),
        )

    def close(self) -> None:
        """Stop the threads and drop the partitions."""
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
