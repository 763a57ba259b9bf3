"""Streaming passes: the bits of resident ones, one chunk ahead, and memory of a few chunks."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import laddu_dask as ld
from laddu_dask.compiler import Assumptions
from laddu_dask.data import ArrayFragment, Batch
from laddu_dask.errors import DataError
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.runtime.partitions import partition_dataset
from laddu_dask.runtime.preparation import Recipe
from laddu_dask.runtime.tiers import StreamingPartition

N = 9 * TILE + 77
MODEL = ld.Model(
    (ld.parameter("a", initial=0.7) * ld.scalar("x") + 1.0) ** 2
    + ld.parameter("b", initial=0.1) * ld.scalar("y") ** 2
)


def columns(n: int = N) -> dict[str, Any]:
    random = np.random.default_rng(3)
    return {name: random.uniform(0.5, 1.5, n) for name in ("x", "y", "weight")}


def likelihood(data: ld.Dataset, **options: Any) -> ld.Likelihood:
    execution = ld.Execution(normalization="general", **options)
    return ld.Likelihood(
        [ld.NLL(MODEL, data=data, accepted_mc=data, name="t")], execution=execution
    )


class Slow(ArrayFragment):
    """Arrays that are read as if they lay in a file; notes every batch that was begun."""

    in_memory = False

    def cut(self, start: int, stop: int) -> Slow:
        piece = super().cut(start, stop)
        made = Slow(piece.columns, piece.values, piece.weights, piece.offset)
        made.__dict__["begun"] = self.__dict__["begun"]  # the fields of a fragment are frozen
        return made

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        begun: list[str] = self.__dict__["begun"]
        for start in range(0, self.rows, batch_rows):
            begun.append(threading.current_thread().name)
            piece = self.cut(start, min(start + batch_rows, self.rows))
            yield from ArrayFragment.read(piece, columns, batch_rows)


def slow_source() -> tuple[ld.Dataset, list[str]]:
    found = columns()
    whole = ArrayFragment(("x", "y"), np.array([found["x"], found["y"]]), found["weight"])
    slow = Slow(whole.columns, whole.values, whole.weights)
    begun = slow.__dict__["begun"] = []
    schema = ld.Dataset.from_arrays(
        scalars={"x": [1.0], "y": [1.0]}, weights=np.array([1.0])
    ).schema
    return ld.Dataset(schema, (slow,), "a slow source"), begun


def streaming(dataset: ld.Dataset, chunk: int = TILE) -> StreamingPartition:
    (partition,) = partition_dataset(dataset, 1)
    programs = MODEL.grouped("linear", Assumptions()).programs
    return StreamingPartition(Recipe("t", programs, "interpreter", chunk), partition)


def test_one_chunk_is_read_ahead() -> None:
    """DA-13: while a chunk is in use the next one is read, by another thread, and no more."""
    dataset, begun = slow_source()
    with closing(streaming(dataset).chunks()) as chunks:
        for number, chunk in enumerate(chunks):
            wanted = min(number + 2, 10)
            end = time.monotonic() + 60
            while len(begun) < wanted:
                assert time.monotonic() < end
                time.sleep(0.001)
            time.sleep(0.01)
            assert len(begun) == wanted
            assert chunk.first_event == number * TILE
    assert set(begun) == {"laddu-reader"}


def test_events_in_memory_are_not_read_ahead() -> None:
    """Nor is a source of a single chunk: there is nothing to overlap."""
    found = columns()
    data = ld.Dataset.from_arrays(scalars={"x": found["x"], "y": found["y"]})
    for partition in (streaming(data), streaming(data.with_weights(found["weight"]))):
        for _ in partition.chunks():
            assert not any(t.name == "laddu-reader" for t in threading.enumerate())
    dataset, begun = slow_source()
    assert len(list(streaming(dataset, 16 * TILE).chunks())) == 1
    assert begun == [threading.current_thread().name]


def _give_up(partition: StreamingPartition) -> None:
    for _ in partition.chunks():
        raise ZeroDivisionError


def test_an_abandoned_pass_leaves_no_thread() -> None:
    """Closed, forgotten, or stopped by an error of who uses the chunks; and none at its end."""
    dataset, begun = slow_source()
    chunks: Any = streaming(dataset).chunks()
    next(chunks)
    del chunks
    with pytest.raises(ZeroDivisionError):
        _give_up(streaming(dataset))
    with closing(likelihood(dataset, storage="streaming", threads=2)) as used:
        used.value()
    assert not any(t.name == "laddu-reader" for t in threading.enumerate())
    assert len(begun) > 4


def test_a_partition_travels_in_the_middle_of_a_pass() -> None:
    """Nothing of a thread is in a partition: its copy begins again."""
    dataset, _ = slow_source()
    partition = streaming(dataset)
    chunks = partition.chunks()
    first = next(chunks)
    partition.partition.fragments[0].__dict__.pop("begun")
    partition.partition.fragments[0].__dict__["begun"] = []
    copy = pickle.loads(pickle.dumps(partition.recipe))
    again = next(StreamingPartition(copy, partition.partition).chunks())
    assert again.columns.tobytes() == first.columns.tobytes()
    chunks.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3000 row groups of three events, and a file of one row group."""
    folder = tmp_path_factory.mktemp("events")
    whole = pa.table(columns())
    pq.write_table(whole.slice(0, 9000), folder / "a.parquet", row_group_size=3)
    pq.write_table(whole.slice(9000), folder / "b.parquet")
    return folder


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_the_bits_of_events_in_memory(file: Path, backend: str) -> None:
    """DA-07, DA-08, DP-09: thousands of row groups, files of different size, any chunk."""
    found = columns()
    scalars = {"x": found["x"], "y": found["y"]}
    arrays = ld.Dataset.from_arrays(scalars=scalars, weights=found["weight"])
    with closing(likelihood(arrays, backend=backend, threads=1)) as reference:
        value, gradient = reference.value_and_gradient()
        expected = value, gradient.tobytes()
    data = ld.read_parquet(file)
    assert len(data.fragments) == 3001
    for storage in ("streaming", "resident"):
        for threads, chunk in ((1, None), (1, 3 * TILE), (2, TILE)):
            options = {"storage": storage, "threads": threads, "chunk_events": chunk}
            with closing(likelihood(data, backend=backend, **options)) as used:
                value, gradient = used.value_and_gradient()
                assert (value, gradient.tobytes()) == expected


def test_what_comes_before_an_error_is_visited(tmp_path: Path) -> None:
    """DA-07, EV-05: the error names the event, and the blocks before it were seen."""
    found = columns()
    found["x"] = pa.array([None if i == 5 * TILE + 9 else x for i, x in enumerate(found["x"])])
    pq.write_table(pa.table(found), tmp_path / "a.parquet", row_group_size=2 * TILE)
    seen: list[int] = []
    data = ld.read_parquet(tmp_path)
    with pytest.raises(DataError, match=f"null at event {5 * TILE + 9}"):
        MODEL.visit(
            data,
            {"p": MODEL.default_parameters},
            lambda offset, _, values: seen.append(offset + len(values)),
            execution=ld.Execution(chunk_events=TILE),
        )
    assert seen[:4] == [TILE, 2 * TILE, 3 * TILE, 4 * TILE]
    assert seen[-1] <= 5 * TILE + 9
    assert not any(t.name == "laddu-reader" for t in threading.enumerate())


@pytest.mark.parametrize("row_group", [5000, 1_000_000])
def test_a_pass_holds_a_few_chunks(tmp_path: Path, row_group: int) -> None:
    """MP-06: memory of a streaming pass does not grow with the events, nor with row groups."""
    n = 1_000_000
    random = np.random.default_rng(0)
    found = {name: random.random(n) for name in ("x", "y", "weight", *"abcdefgh")}
    pq.write_table(pa.table(found), tmp_path / "a.parquet", row_group_size=row_group)
    code = (
        "import sys\n"
        "import laddu_dask as ld\n"
        "def peak():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return next(int(x.split()[1]) for x in lines if x.startswith('VmHWM')) * 1024\n"
        "total = sum((ld.scalar(name) for name in 'yabcdefgh'), ld.scalar('x'))\n"
        "model = ld.Model((ld.parameter('p', initial=1.0) * total + 1.0) ** 2)\n"
        "data = ld.read_parquet(sys.argv[1])\n"
        "small = ld.Dataset(data.schema, (data.fragments[0].cut(0, 5000),), 'some')\n"
        "for events in (small, data):\n"
        "    term = ld.NLL(model, data=events, accepted_mc=events, name='t')\n"
        "    run = ld.Execution(storage='streaming', threads=1, chunk_events=16384)\n"
        "    used = ld.Likelihood([term], execution=run)\n"
        "    used.value()\n"
        "    if events is small:\n"
        "        before = peak()\n"
        "print(peak() - before)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.parquet")],
        capture_output=True,
        text=True,
        check=True,
    )
    # The columns have 88 MB. Two chunks of 1.5 MB are read and one is prepared; the rest is what
    # Arrow decodes from, some pages of a megabyte, and what allocators do not give back at once.
    assert int(answer.stdout) < 40e6


def test_arrays_of_a_pass() -> None:
    """MP-06: two chunks of the source and two of prepared columns, counted to the byte."""
    n, chunk = 64 * TILE, 4 * TILE
    names = [f"c{k}" for k in range(10)]
    total = ld.scalar("c0")
    for name in names[1:]:
        total = total + ld.parameter(f"p{name}", initial=1.0) * ld.scalar(name)
    model = ld.Model(total**2)
    schema = ld.Dataset.from_arrays(scalars={name: [1.0] for name in names}).schema
    slow = Slow(tuple(names), np.random.default_rng(0).random((10, n)), None)
    slow.__dict__["begun"] = []
    (partition,) = partition_dataset(ld.Dataset(schema, (slow,), "a slow source"), 1)
    programs = model.grouped("linear", Assumptions()).programs
    recipe = Recipe("t", programs, "cpu", chunk)
    source, prepared = 8 * len(programs.columns), 8 * programs.prepare.n_outputs
    assert (source, prepared) == (80, 80)
    passes = StreamingPartition(recipe, partition)
    for _ in passes.chunks():  # compiles
        pass
    tracemalloc.start()
    try:
        for chunk_in_use in passes.chunks():
            del chunk_in_use  # as the loop over them in a reduction does
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Either side may be gathering a chunk to prepare it; the batches of this source have weights.
    assert peak < chunk * (2 * (source + 8) + 2 * source + 2 * (prepared + 8)) * 1.03
