"""Visits on a real cluster: workers that die, callbacks that raise, errors, and no worker left."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from distributed import Client, LocalCluster

import laddu_dask as ld
from laddu_dask.data import ArrayFragment, Batch
from laddu_dask.errors import DataError, EvaluationError, ExecutionError
from laddu_dask.runtime import waiting
from laddu_dask.runtime.window import AHEAD

pytestmark = pytest.mark.cluster

# However the tests are imported, workers get the classes of this file with the work.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

GIVE_UP = 60.0
"""Bound on waiting for something that comes by itself; no test depends on how long it takes."""

X = ld.scalar("x")
MODEL = ld.Model(X * ld.parameter("a"))
POINTS = {"central": [0.5], "draw 0": [-1.5]}
PARTITIONS = 24
N = PARTITIONS * 1024


class Watched(ArrayFragment):
    """Notes every reading in a folder; fails, or kills its process once, where it is told to."""

    folder: Path
    orders: dict[str, int]

    @classmethod
    def made(cls, piece: ArrayFragment, folder: Path, orders: dict[str, int]) -> Watched:
        fragment = cls(piece.columns, piece.values, piece.weights, piece.offset)
        fragment.__dict__.update(folder=folder, orders=orders)
        return fragment

    def cut(self, start: int, stop: int) -> Watched:
        return self.made(super().cut(start, stop), self.folder, self.orders)

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        (self.folder / f"read-{self.offset}-{os.getpid()}-{time.monotonic_ns()}").touch()
        if self.offset >= self.orders.get("fails_at", N):
            # The later, the sooner: the first error to arrive is not that of the first event.
            time.sleep(max(0.0, 1.0 - self.offset / N))
            raise DataError(f"damaged at {self.offset}", event=self.offset)
        if self.offset == self.orders.get("kills_at"):
            mine = self.folder / f"pid-{os.getpid()}"
            mine.touch()
            try:
                os.link(mine, self.folder / "victim")
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        yield from super().read(columns, batch_rows)


def watched(folder: Path, x: Any = None, **orders: int) -> ld.Dataset:
    values = np.arange(float(N)) if x is None else x
    dataset = ld.Dataset.from_arrays(scalars={"x": values}, weights=np.full(N, 0.25))
    (piece,) = dataset.fragments
    assert isinstance(piece, ArrayFragment)
    return ld.Dataset(dataset.schema, (Watched.made(piece, folder, orders),), "watched")


def spread(client: Client) -> ld.Execution:
    return ld.Execution(cluster=client, partitions=PARTITIONS, backend="interpreter")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + GIVE_UP
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.05)


class Calls:
    """Remembers what it was shown, and does something after some blocks."""

    def __init__(self, after: int = -1, then: Callable[[], None] = lambda: None) -> None:
        self.places: list[tuple[int, int]] = []
        self.values: list[Any] = []
        self._after, self._then = after, then

    def __call__(self, offset: int, point: int, values: Any) -> None:
        self.places.append((offset, point))
        self.values.append(values.real)
        if len(self.places) == self._after:
            self._then()

    def check(self) -> None:
        """Every block once, in order, for every point."""
        assert self.places == [(1024 * k, p) for k in range(PARTITIONS) for p in (0, 1)]
        for p, factor in enumerate((0.5, -1.5)):
            np.testing.assert_array_equal(
                np.concatenate(self.values[p::2]), factor * np.arange(float(N))
            )


def test_workers_killed_in_mid_visit(mortal_client: Client, tmp_path: Path) -> None:
    """EV-05, EV-06, T-39: one while it reads, one that holds results; no block lost or doubled."""

    def kill_one() -> None:
        pids = mortal_client.run(os.getpid)
        os.kill(next(iter(pids.values())), signal.SIGKILL)

    seen = Calls(after=8, then=kill_one)
    dataset = watched(tmp_path, kills_at=12 * 1024)
    sums = MODEL.visit(dataset, POINTS, seen, spread(mortal_client), "linear")
    assert (tmp_path / "victim").exists()
    seen.check()
    total = 0.25 * N * (N - 1) / 2
    assert sums == [0.5 * total, -1.5 * total]


def test_the_window_is_bounded(client: Client, tmp_path: Path) -> None:
    """EV-05, T-39: with a slow consumer, workers are a few partitions ahead and wait."""
    ahead: list[int] = []

    def consume(offset: int, point: int, values: Any) -> None:
        time.sleep(0.02)
        ahead.append(len(list(tmp_path.glob("read-*"))) - offset // 1024)

    MODEL.visit(watched(tmp_path), {"only": [1.0]}, consume, spread(client))
    assert len(ahead) == PARTITIONS
    assert max(ahead) <= 2 * AHEAD + 1


def submitted(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks if "_all_blocks" in str(key)]


def test_what_a_callback_raises_ends_the_work(client: Client, tmp_path: Path) -> None:
    """EV-05, CO-10: it arrives unchanged, and the cluster does nothing more for nobody."""

    class Enough(Exception):  # noqa: N818 - a signal of the test
        pass

    def enough() -> None:
        raise Enough

    with pytest.raises(Enough):
        MODEL.visit(watched(tmp_path), POINTS, Calls(after=3, then=enough), spread(client))
    wait_until(lambda: not client.run_on_scheduler(submitted), "an idle cluster")
    assert len(list(tmp_path.glob("read-*"))) <= 2 * AHEAD + 2


def test_the_first_error_is_raised_once(client: Client, tmp_path: Path) -> None:
    """BL-05, T-36, CO-05: after all blocks before it, whichever arrived first."""
    seen = Calls()
    with pytest.raises(DataError, match="damaged at 10240") as caught:
        MODEL.visit(watched(tmp_path, fails_at=10 * 1024), POINTS, seen, spread(client))
    assert caught.value.event == 10240
    assert seen.places == [(1024 * k, p) for k in range(10) for p in (0, 1)]
    # Not tried again: every partition that could not be read was read once.
    reads = [path.name.split("-")[1] for path in tmp_path.glob("read-*")]
    assert len(reads) == len(set(reads))


def test_a_block_that_cannot_be_summed(client: Client, tmp_path: Path) -> None:
    """EV-05, EV-07, T-40: the name of the point, the lowest event; the block is not shown."""
    x = np.ones(N)
    x[[9000, 5000]] = -1.0
    seen = Calls()
    with pytest.raises(EvaluationError, match=r"^central: reduction failed: .* event 5000") as bad:
        MODEL.visit(watched(tmp_path, x), {"central": [1.0]}, seen, spread(client), "log")
    assert bad.value.event == 5000
    assert [offset for offset, _ in seen.places] == [0, 1024, 2048, 3072]


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that do not come back: a message after the patience, not a hang."""
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 2.0)
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        seen = Calls(after=2, then=lambda: cluster.scale(0))
        with pytest.raises(ExecutionError, match="the evaluation of events: no task finished"):
            MODEL.visit(watched(tmp_path), POINTS, seen, spread(client))
