"""Visits block by block: order, offsets, lengths, and how far anybody works ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from counting_source import counting

import laddu_dask as ld
from laddu_dask.runtime import cluster_link, scheduler_planner
from laddu_dask.runtime.capacity import Capacity, Process
from laddu_dask.runtime.window import AHEAD

X = ld.scalar("x")
MODEL = ld.Model(X + ld.parameter("offset", initial=0.5))
POINTS = {"first": [0.5], "second": [1.5]}


def events(x: Any) -> ld.Dataset:
    return ld.Dataset.from_arrays(scalars={"x": np.asarray(x, dtype=float)})


class Calls:
    """Remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[int, int, Any]] = []

    def __call__(self, offset: int, point: int, values: Any) -> None:
        self.shown.append((offset, point, values.real.tolist()))


def pieces(folder: Path) -> ld.Dataset:
    """Nine events in two files, in row groups of 2, 2, 1, 3 and 1."""
    for name, first, last, rows in (("a", 0, 5, 2), ("b", 5, 9, 3)):
        table = pa.table({"x": np.arange(first, last, dtype=float)})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=rows)
    return ld.read_parquet([folder / "a.parquet", folder / "b.parquet"], weight=None)


@pytest.mark.parametrize("chunk", [1, 2, 4, 100])
def test_offsets_count_events_of_the_data_set(tmp_path: Path, chunk: int) -> None:
    """T-38, T-31: over files and row groups, the same for all points.

    No block is longer than was asked for, whatever the source reads at once.
    """
    seen = Calls()
    execution = ld.Execution(chunk_events=chunk, backend="interpreter")
    MODEL.visit(pieces(tmp_path), POINTS, seen, execution)
    assert [point for _, point, _ in seen.shown] == [0, 1] * (len(seen.shown) // 2)
    firsts = seen.shown[::2]
    assert [offset for offset, _, _ in firsts] == [offset for offset, _, _ in seen.shown[1::2]]
    lengths = [len(values) for _, _, values in firsts]
    assert [offset for offset, _, _ in firsts] == np.cumsum([0, *lengths[:-1]]).tolist()
    assert max(lengths) <= chunk
    for point, offset in enumerate((0.5, 1.5)):
        values = np.concatenate([values for _, _, values in seen.shown[point::2]])
        np.testing.assert_array_equal(values, np.arange(9) + offset)


def test_every_data_set_counts_from_its_own_beginning() -> None:
    """T-38: a second visit does not go on where the first one ended."""
    execution = ld.Execution(chunk_events=2, backend="interpreter")
    shown = []
    for x in ([1, 2, 3], [4, 5]):
        seen = Calls()
        MODEL.visit(events(x), {"only": None}, seen, execution)
        shown.append(seen.shown)
    assert shown == [[(0, 0, [1.5, 2.5]), (2, 0, [3.5])], [(0, 0, [4.5, 5.5])]]


def test_nothing_is_read_before_it_is_wanted() -> None:
    """T-39: partitions are read one by one while the visit goes on, none ahead of its turn."""
    dataset, reads = counting(events(np.arange(4096.0)))
    so_far: list[int] = []
    execution = ld.Execution(partitions=4, chunk_events=1024, backend="interpreter")
    MODEL.visit(dataset, {"only": None}, lambda *_: so_far.append(len(reads)), execution)
    assert so_far == [1, 2, 3, 4]


class LateFuture:
    """The last submitted is done first, as it may be on a cluster."""

    status = "pending"

    def __init__(self, client: FakeClient, work: Callable[[], Any]) -> None:
        self.client, self.work = client, work
        self.value: Any = None

    def result(self, timeout: float) -> Any:
        for future in reversed(self.client.open):
            if future.value is None:
                future.value = future.work()
        self.client.open.remove(self)
        return self.value


class FakeClient:
    """Two workers of one thread; runs in this process what is sent."""

    status = "running"

    def __init__(self) -> None:
        self.open: list[LateFuture] = []
        self.most_open = self.submitted = 0
        self.cancelled: list[Any] = []

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {"tcp://a": {"nthreads": 1}, "tcp://b": {"nthreads": 1}}}

    def submit(self, function: Callable[..., Any], *args: Any, pure: bool) -> Any:
        if len(args) == 1:
            return args[0]  # what all tasks share
        self.open.append(LateFuture(self, lambda: function(*args)))
        self.submitted += 1
        self.most_open = max(self.most_open, len(self.open))
        return self.open[-1]

    def cancel(self, futures: list[Any]) -> None:
        self.cancelled = futures


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient()
    monkeypatch.setattr(cluster_link, "connect", lambda cluster: (client, False))
    workers = tuple(Process(name, 1, 1 << 30, 0) for name in ("tcp://a", "tcp://b"))
    monkeypatch.setattr(
        scheduler_planner, "capacity_of", lambda client, memory, patience: Capacity(workers)
    )
    return client


N = 32 * 1024
SPREAD = ld.Execution(cluster="tcp://nowhere:1", partitions=32, backend="interpreter")


def test_order_where_the_last_is_done_first(fake: FakeClient) -> None:
    """T-39: blocks come in order, and few wait for their turn, however many there are."""
    seen = Calls()
    MODEL.visit(events(np.arange(N)), POINTS, seen, SPREAD)
    assert [(offset, point) for offset, point, _ in seen.shown] == [
        (1024 * block, point) for block in range(32) for point in (0, 1)
    ]
    values = np.array([values for _, point, values in seen.shown if point == 1])
    np.testing.assert_array_equal(values.ravel(), np.arange(N) + 1.5)
    assert fake.submitted == 32
    assert fake.most_open == 2 * AHEAD


def test_a_visit_that_ends_early_gives_back_what_waits(fake: FakeClient) -> None:
    """T-39: nothing more is asked for, and what was is cancelled."""

    class EnoughError(Exception):
        pass

    def consume(offset: int, point: int, values: Any) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        MODEL.visit(events(np.arange(N)), POINTS, consume, SPREAD)
    assert fake.submitted < 32
    assert fake.cancelled == fake.open
    assert 0 < len(fake.cancelled) < 2 * AHEAD


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_callbacks_stay_on_the_thread_of_the_caller(backend: Any) -> None:
    """AX-37, T-41: with two threads as well; a closure over a plain list collects all values."""
    found: list[float] = []
    threads: set[int] = set()

    def consume(offset: int, point: int, values: Any) -> None:
        threads.add(threading.get_ident())
        found.extend(values.real)

    execution = ld.Execution(threads=2, chunk_events=1, backend=backend)
    MODEL.visit(events([1, 2, 3]), {"only": None}, consume, execution)
    assert threads == {threading.get_ident()}
    assert found == [1.5, 2.5, 3.5]


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("chunk", [1024, 2048])
def test_a_shorter_last_chunk_reads_nothing_of_the_one_before(backend: Any, chunk: int) -> None:
    """T-60: the events before are huge or not finite, the last five are one to five."""
    x = np.full(2053, 1e300)
    x[1000:2000] = np.inf
    x[2048:] = [1, 2, 3, 4, 5]
    seen = Calls()
    execution = ld.Execution(chunk_events=chunk, threads=1, backend=backend)
    MODEL.visit(events(x), {"only": None}, seen, execution)
    assert seen.shown[-1] == (2048, 0, [1.5, 2.5, 3.5, 4.5, 5.5])
    model = ld.Model(1 / X)
    data = events(np.concatenate([np.full(2048, np.inf), np.ones(5)]))
    (total,) = model.visit(data, {"only": None}, lambda *_: None, execution, "linear")
    assert total == 5.0
