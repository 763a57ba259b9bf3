"""The session of this process: with threads, and in the thread that asks."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from laddu_dask.errors import DataError
from laddu_dask.memory import MAX_BYTES, LeasePool, LocalRoom, Room
from laddu_dask.runtime.local import LocalSession

ROOM = LocalRoom(LeasePool("host", MAX_BYTES))


class Payload:
    """Says on which threads it was used."""

    tasks = (0, 1, 2)

    def __init__(self, broken: int | None = None) -> None:
        self.threads: list[threading.Thread] = []
        self.broken = broken

    def prepare(self, partition: int, room: Room) -> Any:
        self.threads.append(threading.current_thread())
        if partition == self.broken:
            raise DataError("partition 1 is broken")
        return partition

    def evaluate(self, mode: Any, frontiers: Any, prepared: Any, each: Any) -> list[Any]:
        assert prepared == [0, 1, 2]
        return list(each(self._sums, prepared))

    def _sums(self, partition: int) -> list[str]:
        self.threads.append(threading.current_thread())
        return [f"sum of {partition}"]


@pytest.mark.parametrize("threads", [1, 2])
def test_one_thread_is_that_of_the_caller(threads: int) -> None:
    payload: Any = Payload()
    with LocalSession(payload, threads, ROOM) as session:
        assert session.evaluate("value", []) == [[f"sum of {k}"] for k in range(3)]
        assert len(payload.threads) == 6
        here = [thread is threading.current_thread() for thread in payload.threads]
        assert here == [threads == 1] * 6


@pytest.mark.parametrize("threads", [1, 2])
def test_failures_reach_the_caller(threads: int) -> None:
    payload: Any = Payload(broken=1)
    with pytest.raises(DataError, match="partition 1 is broken"):
        LocalSession(payload, threads, ROOM)


def test_without_a_cluster_distributed_is_not_loaded() -> None:
    """A quarter of a second and 25 MiB that a fit on one machine does not need."""
    script = """
import sys
import numpy as np
import laddu_dask as ld
a = ld.parameter("a", initial=0.5)
data = ld.Dataset.from_arrays(scalars={"x": np.linspace(1, 2, 50)}, weights=np.ones(50))
model = ld.Model(a * ld.scalar("x") + 1)
term = ld.NLL(model, data=data, accepted_mc=data)
ld.Likelihood([term]).value_and_gradient([0.4])
model.evaluate(data)
print("distributed" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
