"""The session of this process: with threads, and in the thread that asks."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from laddu_dask.errors import DataError
from laddu_dask.runtime.local import LocalSession


class Payload:
    """Says on which threads it was used."""

    tasks = (0, 1, 2)

    def __init__(self, broken: int | None = None) -> None:
        self.threads: list[threading.Thread] = []
        self.broken = broken

    def prepare(self, partition: int) -> Any:
        self.threads.append(threading.current_thread())
        if partition == self.broken:
            raise DataError("partition 1 is broken")
        return partition

    def evaluate(self, request: bytes, prepared: Any, pool: Any, cancelled: Any) -> list[bytes]:
        assert prepared == [0, 1, 2]
        return list(pool.map(self._record, prepared))

    def _record(self, partition: int) -> bytes:
        self.threads.append(threading.current_thread())
        return bytes([partition])


@pytest.mark.parametrize("threads", [1, 2])
def test_one_thread_is_that_of_the_caller(threads: int) -> None:
    payload: Any = Payload()
    with LocalSession(payload, threads) as session:
        assert session.evaluate(b"") == {0: b"\0", 1: b"\1", 2: b"\2"}
        assert len(payload.threads) == 6
        here = [thread is threading.current_thread() for thread in payload.threads]
        assert here == [threads == 1] * 6


@pytest.mark.parametrize("threads", [1, 2])
def test_failures_reach_the_caller(threads: int) -> None:
    payload: Any = Payload(broken=1)
    with pytest.raises(DataError, match="partition 1 is broken"):
        LocalSession(payload, threads)
