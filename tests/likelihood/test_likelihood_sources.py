"""The same events from every kind of source, to the last bit, however they are cut and kept.

Covers DA-10, DA-14, DP-07, DK-15 and T-52.
"""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from counting_source import counting
from distributed import Client, get_worker
from two_wave_case import P4S, as_arrays, as_files, bits, model, table, two_waves

import laddu_dask as ld
from laddu_dask.errors import EvaluationError

# Functions below run on workers, which cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

COMPONENTS = tuple(f"{p4}_{part}" for p4 in P4S for part in ("e", "px", "py", "pz"))
PIECES = 7


def rows_of(whole: pa.Table, start: int, stop: int) -> pa.Table:
    return whole.slice(start, stop - start)


def pieces_of(whole: pa.Table, piece: int) -> Iterator[pa.RecordBatch]:
    """A seventh of the rows, in batches of ninety."""
    start, stop = (k * whole.num_rows // PIECES for k in (piece, piece + 1))
    yield from whole.slice(start, stop - start).to_batches(max_chunksize=90)


def from_batches(name: str, folder: Path, *, counted: bool = True) -> ld.Dataset:
    whole = table(name)
    ends = [k * whole.num_rows // PIECES for k in range(PIECES + 1)]
    return ld.Dataset.from_batches(
        partial(pieces_of, whole),
        p4s=P4S,
        weight="weight",
        rows=np.diff(ends).tolist() if counted else None,
        pieces=PIECES,
        identity=name,
    )


def from_ranges(name: str, folder: Path) -> ld.Dataset:
    whole = table(name)
    return ld.Dataset.from_ranges(
        partial(rows_of, whole), p4s=P4S, weight="weight", rows=whole.num_rows, identity=name
    )


def selected(name: str, folder: Path) -> ld.Dataset:
    """Two of each event, of which the first passes; in two files, row groups of 700."""
    whole = table(name)
    twice = whole.take(np.repeat(np.arange(whole.num_rows), 2))
    flagged = twice.append_column("copy", pa.array(np.tile([0.0, 1.0], whole.num_rows)))
    pq.write_table(flagged.slice(0, 501), folder / f"{name}-1.parquet")
    pq.write_table(flagged.slice(501), folder / f"{name}-2.parquet", row_group_size=700)
    both = ld.read_parquet(folder / f"{name}-*.parquet")
    return both.select(ld.scalar("copy") < 0.5).select(ld.scalar("beam_e") > 0.0)


SOURCES: dict[str, Callable[..., ld.Dataset]] = {
    "batches": from_batches,
    "uncounted": partial(from_batches, counted=False),
    "ranges": from_ranges,
    "selected": selected,
    "files": partial(as_files, cuts=[130, 340]),
}


@cache
def reference() -> tuple[str, ...]:
    """Arrays, one partition, one thread, in memory."""
    with two_waves(
        ld.Execution(threads=1, partitions=1),
        data=as_arrays("data"),
        accepted_mc=as_arrays("mc"),
    ) as likelihood:
        return bits(likelihood)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("storage", "partitions", "policy"),
    [
        *product(["resident", "streaming"], [1, 4], ["contiguous"]),
        *product(["spilled", "streaming"], [3], ["rows"]),
        *product(["resident"], [None, 2], ["file_groups"]),
    ],
)
def test_sources_storages_and_policies(
    source: str, storage: Any, partitions: Any, policy: Any, tmp_path: Path
) -> None:
    """The bits of arrays; with two threads."""
    execution = ld.Execution(storage=storage, partitions=partitions, partitioning=policy, threads=2)
    data, mc = (SOURCES[source](name, tmp_path) for name in ("data", "mc"))
    with two_waves(execution, data=data, accepted_mc=mc) as likelihood:
        assert bits(likelihood) == reference()
        assert likelihood.report().events == 5600


@pytest.mark.parametrize("source", SOURCES)
def test_event_by_event(source: str, tmp_path: Path) -> None:
    """Values in the order of the events."""
    data = SOURCES[source]("data", tmp_path)
    values = model().evaluate(data, execution=ld.Execution(partitions=3))
    assert values.tobytes() == model().evaluate(as_arrays("data")).tobytes()


@pytest.mark.cluster
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("policy", ["contiguous", "file_groups"])
def test_on_a_cluster(client: Client, source: str, policy: Any, tmp_path: Path) -> None:
    """The bits of two worker processes, which count what has to be counted."""
    execution = ld.Execution(cluster=client, partitions=4, partitioning=policy)
    data, mc = (SOURCES[source](name, tmp_path) for name in ("data", "mc"))
    with two_waves(execution, data=data, accepted_mc=mc) as likelihood:
        assert bits(likelihood) == reference()
    assert data.n_events == 600


def only_on_a_worker(piece: int) -> dict[str, Any]:
    """Rows that the client cannot make."""
    assert get_worker() is not None
    return {"x": np.arange(1.0, 2.0 + piece)}


@pytest.mark.cluster
def test_workers_count(client: Client) -> None:
    """DP-07: the client reads nothing; what was counted is remembered and travels with copies."""
    data = ld.Dataset.from_batches(only_on_a_worker, ["x"], rows=None, pieces=40, identity="w")
    chosen = data.select(ld.scalar("x") < 30.0)
    whole = ld.Model(ld.parameter("a", initial=2.0) * ld.scalar("x"))
    values = whole.evaluate(chosen, execution=ld.Execution(cluster=client), real=True)
    assert data.n_events == 40 * 41 // 2
    assert chosen.n_events == data.n_events - 11 * 12 // 2
    assert pickle.loads(cloudpickle.dumps(chosen)).n_events == chosen.n_events
    assert values.sum() == 2 * sum(sum(range(1, min(k, 29) + 1)) for k in range(1, 41))


@pytest.mark.cluster
def test_counting_on_workers_fails_like_counting_here(client: Client) -> None:
    """T-36: the error of the first piece that has one, as its own class."""

    def broken(piece: int) -> dict[str, Any]:
        return {"x": [1.0]} if piece < 3 else {"q": [1.0]}

    data = ld.Dataset.from_batches(broken, ["x"], rows=None, pieces=30, identity="b", name="toys")
    whole = ld.Model(ld.scalar("x"))
    with pytest.raises(ld.DataError, match="toys, piece 3: .*'x' missing; 'q' not declared"):
        whole.evaluate(data, execution=ld.Execution(cluster=client))


@pytest.mark.cluster
@pytest.mark.parametrize("select", [False, True])
def test_a_function_that_cannot_travel(client: Client, select: bool) -> None:
    """A clear error instead of one about the insides of Dask."""
    lock = threading.Lock()

    def guarded(start: int, stop: int) -> dict[str, Any]:
        with lock:
            return {"x": np.arange(1.0 + start, 1.0 + stop)}

    data = ld.Dataset.from_ranges(guarded, ["x"], rows=500, identity="lock", name="toys")
    data = data.select(ld.scalar("x") > 3.0) if select else data
    term = ld.NLL(ld.Model(ld.scalar("x")), data=data, accepted_mc=data)
    with (
        ld.Likelihood([term], ld.Execution(cluster=client)) as likelihood,
        pytest.raises(ld.DataError, match=r"cannot be sent to the workers .*lock"),
    ):
        likelihood.value()


def test_an_empty_selection_of_accepted_events() -> None:
    """Known only when they are counted, and then refused like any empty sample."""
    mc = as_arrays("mc").select(ld.scalar("beam_e") < 0.0)
    likelihood = two_waves(data=as_arrays("data"), accepted_mc=mc)
    with likelihood, pytest.raises(ld.DataError, match="accepted Monte Carlo sample has no events"):
        likelihood.value()


def test_nothing_is_counted_before_it_is_needed() -> None:
    """A likelihood is made without reading; a plan needs the numbers, and reads for them alone."""
    data = as_arrays("data").select(ld.scalar("beam_e") > 0.0)
    with two_waves(data=data, accepted_mc=as_arrays("mc")) as likelihood:
        assert not data.is_counted
        likelihood.plan()
        assert data.is_counted
        assert bits(likelihood) == reference()


def test_a_small_selection_ends_resident() -> None:
    """DP-07: after one more pass; without a limit on memory nothing is read again."""
    (mc,) = as_arrays("mc").fragments
    source, reads = counting(ld.Dataset(as_arrays("mc").schema, (mc,), "arrays"))
    chosen = source.select(ld.scalar("beam_e") > 0.0)
    with two_waves(data=as_arrays("data"), accepted_mc=chosen) as likelihood:
        plan = likelihood.plan()
        assert len(reads) == 1
        assert [decision.strategy for decision in plan.decisions] == ["resident", "resident"]
        assert bits(likelihood) == reference()
        read = len(reads)
        likelihood.value_and_gradient([0.5, 0.5])
        assert len(reads) == read


def test_a_bad_event_is_named_by_its_row(tmp_path: Path) -> None:
    """By its number among the selected events, and by the row of the file."""
    x = np.arange(50.0) - 20.0
    pq.write_table(pa.table({"x": x, "side": x % 5}), tmp_path / "run.parquet", row_group_size=15)
    data = ld.read_parquet(tmp_path / "run.parquet").select(ld.scalar("side") == 3.0)
    shape = ld.Model(ld.parameter("a", initial=1.0) * ld.scalar("x"))
    mc = ld.Dataset.from_arrays(scalars={"x": [1.0, 2.0]})
    term = ld.NLL(shape, data=data, accepted_mc=mc, name="signal")
    with (
        ld.Likelihood([term]) as likelihood,
        pytest.raises(EvaluationError, match=r"event 0 \(row 3 of run.parquet, row group 0\)"),
    ):
        likelihood.value()
