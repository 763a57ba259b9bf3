"""Passes as Dask tasks with a tree of merges: the bits, counts and errors of the direct way."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

import laddu_dask as ld
from laddu_dask.data import ArrayFragment, Batch
from laddu_dask.errors import AssumptionError, DataError, ExecutionError
from laddu_dask.kernels import Accumulator
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.runtime import Execution, Model, Pass, Reducer, cluster, tasks
from laddu_dask.runtime.tasks import TaskSession, choose_route
from laddu_dask.runtime.tree import FAN_IN, Outcome, merged

# However the tests are imported, workers get the classes of this file with the work.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

A, B = ld.parameter("a", initial=0.5), ld.parameter("b", initial=-0.25)
X = ld.scalar("x")
MODEL = Model((A * X + B).exp() + X**2)
PROGRAMS = MODEL.compiled("linear").programs
POINTS = np.array([[0.5, -0.25], [1.5, 0.125], [-0.7, 0.3]])

#: Seventeen partitions of one tile each, and a few events more.
N = 17 * TILE - 100


def events(n: int = N) -> ld.Dataset:
    rng = np.random.default_rng(4)
    weights = rng.normal(size=n) * 10.0 ** rng.integers(-9, 9, n)
    return ld.Dataset.from_arrays(scalars={"x": rng.uniform(-1, 1, n)}, weights=weights)


def frontiers(points: Any) -> Any:
    invariants = MODEL.compiled("linear").invariants
    return np.stack([invariants.frontier(np.array(point)) for point in points])


def sums(mode: Any, *datasets: ld.Dataset, once: bool = False, **options: Any) -> list[Any]:
    passes = [Pass(f"sample {i}", dataset, PROGRAMS) for i, dataset in enumerate(datasets)]
    rows = frontiers(POINTS[:1] if mode == "weights" else POINTS)
    execution = Execution(**({"backend": "interpreter"} | options))
    with closing(Reducer(passes, execution, once=once)) as reducer:
        return reducer.reduce_many(mode, [rows] * len(datasets))


# the tree ----------------------------------------------------------------------------------


def total(values: Sequence[float], first: int = 0) -> Accumulator:
    accumulator = Accumulator(1)
    accumulator.add_rows(np.array([values], dtype=float), first)
    return accumulator


@given(
    st.lists(st.floats(-1e200, 1e200), min_size=1, max_size=40),
    st.lists(st.integers(1, 5), min_size=1),
)
def test_every_tree_makes_the_same_sum(values: list[float], sizes: list[int]) -> None:
    """AC-09, T-04, T-01: of any shape; and leaves stay as they are, for a task may run again."""
    leaves = [Outcome(1, (total([value], k),)) for k, value in enumerate(values)]
    level, step = leaves, 0
    while len(level) > 1:
        above = []
        while level:
            size = sizes[step % len(sizes)] + (len(level) > 1)
            above.append(merged(level[:size]))
            level, step = level[size:], step + 1
        level = above
    assert level[0].sums == (total(values),)
    assert level[0].partitions == len(values)
    assert [leaf.sums[0] for leaf in leaves] == [total([v], k) for k, v in enumerate(values)]


def test_the_lowest_partition_complains() -> None:
    """T-36, CO-05: whichever was first; and what cannot be read before what contradicts."""
    fine = Outcome(1, (total([1.0]),))
    late = Outcome.of_error(7, DataError("seven", event=7), "tcp://w:1")
    early = Outcome.of_error(3, DataError("three", event=3), "tcp://w:2")
    other = Outcome.of_error(5, AssumptionError("", label="s", findings={"ab": "open"}), "")
    for order in ([fine, late, other, early], [early, merged([late, fine]), other]):
        found = merged(order)
        error = found.error()
        assert isinstance(error, DataError)
        assert (str(error), error.event) == ("three", 3)
        assert found.partitions == 4
    both = Outcome.of_error(6, AssumptionError("", label="s", findings={"cd": "open"}), "")
    error = merged([fine, other, both]).error()
    assert isinstance(error, AssumptionError)
    assert (error.label, error.findings) == ("s", {"ab": "open", "cd": "open"})
    assert merged([fine, fine]).error() is None


def test_which_way() -> None:
    assert choose_route(once=True, workers=1) == "tasks"
    assert choose_route(once=False, workers=tasks.WIDE) == "direct"
    assert choose_route(once=False, workers=tasks.WIDE + 1) == "tasks"


# the same bits -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    """Sums of this process, in one partition."""
    modes = ("weights", "value", "gradient")
    return {mode: sums(mode, events(), events(5), partitions=1, threads=1) for mode in modes}


@pytest.mark.cluster
@pytest.mark.parametrize("partitions", [1, 3, 17])
@pytest.mark.parametrize("way", ["direct", "tasks", "tasks that keep"])
def test_the_same_bits(
    here: Any, client: Client, monkeypatch: pytest.MonkeyPatch, way: str, partitions: int
) -> None:
    """AC-09, RD-07, AX-66: directly and by tasks, for one and more levels of the tree."""
    assert FAN_IN < 17
    if way == "tasks that keep":
        monkeypatch.setattr(tasks, "WIDE", 1)
    for mode, expected in here.items():
        options = {"cluster": client, "partitions": partitions, "once": way == "tasks"}
        found = sums(mode, events(), events(5), **options)
        assert found == expected
        assert [own[0].count for own in found] == [N, 5]


@pytest.mark.cluster
def test_one_shot_passes_open_no_session(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistics of a separable integral; its likelihood has the bits of this process."""
    opened = []
    real = cluster.ClusterSession.__init__

    def spy(self: Any, client: Any, payload: Any, *args: Any, **options: Any) -> None:
        opened.append([recipe.label for recipe in payload.payload.recipes])
        real(self, client, payload, *args, **options)

    monkeypatch.setattr(cluster.ClusterSession, "__init__", spy)
    data, mc = events(2000).with_weights(np.ones(2000)), events(3000).with_weights(np.ones(3000))
    term = ld.ExtendedNLL((A * X + 2.0).norm_sqr(), data=data, accepted_mc=mc, name="line")
    with ld.Likelihood([term]) as local:
        expected = local.value([0.75])
    with ld.Likelihood([term], ld.Execution(cluster=client, partitions=2)) as likelihood:
        assert likelihood.value([0.75]) == expected
    assert opened == [["line/data"]]


def keys(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks if "laddu-p" in str(key)]


@pytest.mark.cluster
def test_nothing_stays_behind(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "WIDE", 1)
    passes = [Pass("sample", events(), PROGRAMS)]
    execution = Execution(cluster=client, partitions=5, backend="interpreter")
    with closing(Reducer(passes, execution)) as reducer:
        first = reducer.reduce_many("value", [frontiers(POINTS)])
        assert isinstance(reducer._session, TaskSession)
        assert reducer.reduce_many("value", [frontiers(POINTS)]) == first
        assert sum(worker.partitions for worker in reducer.worker_info()) >= 5
        assert sum("laddu-prep" in key for key in client.run_on_scheduler(keys)) == 5
    end = time.monotonic() + 60
    while client.run_on_scheduler(keys):
        assert time.monotonic() < end, "tasks stay on the scheduler"
        time.sleep(0.05)


# losses ------------------------------------------------------------------------------------


class Broken(ArrayFragment):
    """Cannot be read from event 5000 on; the later, the sooner it says so."""

    def cut(self, start: int, stop: int) -> Broken:
        piece = super().cut(start, stop)
        return Broken(piece.columns, piece.values, piece.weights, piece.offset)

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        if self.offset + self.rows > 5000:
            time.sleep(max(0.0, 0.5 - self.offset / 40_000))
            raise DataError(f"damaged at {self.offset}", event=self.offset)
        yield from super().read(columns, batch_rows)


def of_kind(kind: type[ArrayFragment], dataset: ld.Dataset) -> ld.Dataset:
    (piece,) = dataset.fragments
    assert isinstance(piece, ArrayFragment)
    made = kind(piece.columns, piece.values, piece.weights, piece.offset)
    return ld.Dataset(dataset.schema, (made,), "arrays of a kind")


@pytest.mark.cluster
@pytest.mark.parametrize("keep", [False, True])
def test_the_first_error_is_raised(
    client: Client, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """CO-05, CO-06, BL-05, T-36, T-53: as its own class, of the lowest event, once."""
    monkeypatch.setattr(tasks, "WIDE", 1)
    with pytest.raises(DataError, match="damaged at 4096") as caught:
        sums("value", of_kind(Broken, events()), cluster=client, partitions=17, once=not keep)
    assert caught.value.event == 4096
    assert caught.value.label == "sample 0"


class Short(ArrayFragment):
    """Gives a row less than it promises; the reader notices."""

    def cut(self, start: int, stop: int) -> Short:
        piece = super().cut(start, stop)
        return Short(piece.columns, piece.values, piece.weights, piece.offset)

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        for batch in super().read(columns, batch_rows):
            yield Batch(batch.start, batch.values[:, :-1], batch.weights[:-1])


@pytest.mark.cluster
def test_rows_are_counted(client: Client) -> None:
    with pytest.raises(DataError, match="gave 1023 events where its description promised 1024"):
        sums("value", of_kind(Short, events()), cluster=client, partitions=17, once=True)


@pytest.mark.cluster
def test_a_lost_branch_is_noticed(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """CO-04: three of four leaves."""
    grow = TaskSession._tree

    def careless(self: Any, name: str, futures: Any, everything: Any) -> Any:
        return grow(self, name, futures[:3], everything)

    monkeypatch.setattr(TaskSession, "_tree", careless)
    with pytest.raises(ExecutionError, match="3 of 4 partitions arrived"):
        sums("value", events(), cluster=client, partitions=4, once=True)


class Deadly(ArrayFragment):
    """Kills the first process that reads the tenth partition."""

    folder: Path

    def cut(self, start: int, stop: int) -> Deadly:
        piece = super().cut(start, stop)
        made = Deadly(piece.columns, piece.values, piece.weights, piece.offset)
        made.__dict__["folder"] = self.folder
        return made

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        if self.offset == 9 * TILE:
            mine = self.folder / f"pid-{os.getpid()}"
            mine.touch()
            try:
                os.link(mine, self.folder / "victim")
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        yield from super().read(columns, batch_rows)


@pytest.mark.cluster
def test_a_killed_worker_changes_no_bit(here: Any, mortal_client: Client, tmp_path: Path) -> None:
    """CO-06: Dask runs what was lost again; every partition counts once."""
    dataset = of_kind(Deadly, events())
    dataset.fragments[0].__dict__["folder"] = tmp_path
    found = sums("gradient", dataset, cluster=mortal_client, partitions=17, once=True)
    assert (tmp_path / "victim").exists()
    assert found[0] == here["gradient"][0]


@pytest.mark.cluster
def test_kept_partitions_outlive_their_worker(
    here: Any, mortal_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-55: what a killed worker held is prepared again, and the next sums have the same bits."""
    monkeypatch.setattr(tasks, "WIDE", 1)
    passes = [Pass("sample", events(), PROGRAMS)]
    execution = Execution(cluster=mortal_client, partitions=5, backend="interpreter")
    with closing(Reducer(passes, execution)) as reducer:
        for _ in range(2):
            (found,) = reducer.reduce_many("gradient", [frontiers(POINTS)])
            assert found == here["gradient"][0]
            mortal_client.wait_for_workers(2, timeout=120)
            pids = mortal_client.run(os.getpid)
            os.kill(next(iter(pids.values())), signal.SIGKILL)
        (found,) = reducer.reduce_many("gradient", [frontiers(POINTS)])
        assert found == here["gradient"][0]
