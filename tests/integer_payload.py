"""A payload of integers, so that "equal" means equal bit for bit, which obeys orders."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from laddu_dask.errors import DataError, EvaluationError
from laddu_dask.memory import MAX_BYTES, LeasePool, LocalRoom, Room
from laddu_dask.runtime.cluster import ClusterSession

ROOM = LocalRoom(LeasePool("host", MAX_BYTES))
PARTITIONS = 12
GIVE_UP = 30.0
"""Bound on waiting for something that comes by itself; no test depends on how long it takes."""

# However the tests are imported, workers get the payload with the session.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Integers:
    """Sum of theta . rows and its gradient over rows of integers; obeys orders in the request."""

    def __init__(self, folder: Path, seed: int = 0, bad_recipe: str = "") -> None:
        self.folder = folder
        self.seed = seed
        self.bad_recipe = bad_recipe

    def prepare(self, partition: int, room: Room) -> Any:
        if self.bad_recipe == "data" and partition == 5:
            raise DataError("a.parquet has no column 'px'", file="a.parquet", column="px")
        if self.bad_recipe == "crash" and partition == 5:
            raise ZeroDivisionError("division by zero")
        if self.bad_recipe == "hold":
            self.become_victim()
        if self.bad_recipe == "eat" and partition == 5:
            eaten = []
            while True:  # until somebody kills this process
                eaten.append(np.ones(1 << 22))
                time.sleep(0.01)
        return np.random.default_rng([self.seed, partition]).integers(-100, 100, (50, 4))

    def evaluate(
        self,
        request: bytes,
        prepared: Sequence[Any],
        pool: Executor,
        cancelled: Callable[[], bool],
    ) -> list[bytes]:
        orders = json.loads(request)
        theta = np.array(orders["theta"], np.int64)
        if orders.get("fail") == "model":
            raise EvaluationError(
                "the intensity is -1.5", term="signal", event=12345, value=np.float64(-1.5)
            )
        if orders.get("fail") == "bug":
            raise ZeroDivisionError("division by zero")
        records = []
        for rows in prepared:
            if cancelled():
                break
            if orders.get("hold"):
                self.become_victim()
            if orders.get("die") and np.array_equal(rows, self.prepare(5, ROOM)):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(orders.get("seconds", {}).get(str(os.getpid()), 0.0))
            records.append(pool.submit(one_record, rows, theta).result())
        return records

    def in_memory(self, prepared: Sequence[Any]) -> bool:
        return False  # orders may be to wait

    def become_victim(self) -> None:
        """The first process here names itself and waits to be killed; the others go on."""
        mine = self.folder / f"pid-{os.getpid()}"
        mine.write_text(str(os.getpid()))
        try:
            os.link(mine, self.folder / "victim")
        except FileExistsError:
            return
        time.sleep(GIVE_UP)


def one_record(rows: Any, theta: Any) -> bytes:
    t = rows @ theta
    return np.concatenate([[t @ t], 2 * (t @ rows)]).tobytes()


def request(*theta: int, **orders: Any) -> bytes:
    return json.dumps({"theta": theta or (1, 2, 3, 4), **orders}).encode()


def expected(payload: Integers, asked: bytes) -> dict[int, bytes]:
    theta = np.array(json.loads(asked)["theta"], np.int64)
    return {p: one_record(payload.prepare(p, ROOM), theta) for p in range(PARTITIONS)}


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + GIVE_UP
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.05)


def partitions_held(session: ClusterSession) -> list[int]:
    return sorted(info.partitions for info in session.worker_info())
