"""Which workers can prepare a partition: tables in, placements out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import laddu_dask as ld
from laddu_dask.data import Fragment, ParquetFragment
from laddu_dask.data.fetched import fetched
from laddu_dask.data.footer import FileStamp
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.runtime.file_reach import problems_here
from laddu_dask.runtime.locality import Placement, Reach, apart, place, wishes
from laddu_dask.runtime.partitions import Partition, partition_dataset

WORKERS = frozenset({"w1", "w2", "w3"})


def reach(**unreadable: str) -> Reach:
    """Files by the workers that cannot read them: ``a="12"``."""
    return Reach(
        WORKERS,
        {
            f"/data/{file}.parquet": {f"w{digit}": "cannot be found" for digit in digits}
            for file, digits in unreadable.items()
        },
    )


def partition(tmp_path: Path, *parts: tuple[str, int]) -> Partition:
    """Rows of files of these names, as (file, rows)."""
    path = tmp_path / "any.parquet"
    if not path.exists():
        pq.write_table(pa.table({"x": np.zeros(10_000)}), path)
    (whole,) = ld.read_parquet(path).fragments
    fragments: list[Fragment] = []
    for file, rows in parts:
        stamp = FileStamp(f"/data/{file}.parquet", f"{file}.parquet", 1, 1, 10_000)
        fragments.append(replace(whole.cut(0, rows), stamp=stamp))  # type: ignore[type-var]  # all fragments are dataclasses
    return Partition(0, tuple(fragments))


def test_everybody_reads_everything(tmp_path: Path) -> None:
    """No restriction: any worker, and any that joins later."""
    assert place(partition(tmp_path, ("a", 10), ("b", 10)), reach()) == Placement(None)
    assert place(partition(tmp_path, ("a", 10)), reach(b="12")) == Placement(None)
    arrays = ld.Dataset.from_arrays(scalars={"x": np.zeros(5)})
    (only,) = partition_dataset(arrays, 1)
    assert place(only, reach(a="123")) == Placement(None)


def test_readers_of_all_files(tmp_path: Path) -> None:
    both = partition(tmp_path, ("a", 10), ("b", 10))
    assert place(both, reach(a="1")) == Placement(frozenset({"w2", "w3"}))
    assert place(both, reach(a="1", b="2")) == Placement(frozenset({"w3"}))
    assert wishes([Placement(None), place(both, reach(a="1", b="2"))]) == {1: {"w3"}}


def test_a_few_rows_travel(tmp_path: Path) -> None:
    """Those of the smaller part, to where the larger one is."""
    split = reach(a="23", b="1")
    assert place(partition(tmp_path, ("a", 4000), ("b", 512)), split) == Placement(
        frozenset({"w1"}), (1,)
    )
    assert place(partition(tmp_path, ("a", 300), ("b", 5), ("a", 5)), split) == Placement(
        frozenset({"w1"}), (1,)
    )
    assert place(partition(tmp_path, ("a", 7), ("b", 8)), split) == Placement(
        frozenset({"w2", "w3"}), (0,)
    )
    everywhere_else = reach(a="23", b="13", c="12")
    three = partition(tmp_path, ("a", 10), ("b", 30), ("c", 20))
    assert place(three, everywhere_else) == Placement(frozenset({"w2"}), (0, 2))


def test_many_rows_do_not_travel(tmp_path: Path) -> None:
    """A cut in the middle of files that lie apart is refused with the way out."""
    apart = partition(tmp_path, ("a", 5000), ("b", TILE + 1))
    with pytest.raises(
        ld.DataError,
        match=r"events from 0 to 6025 lie in 2 files .*/data/a.parquet \(read by w1\) and "
        r"/data/b.parquet \(read by w2, w3\).*partitioning='file_groups'",
    ) as caught:
        place(apart, reach(a="23", b="1"))
    assert caught.value.file == "/data/b.parquet"


@settings(max_examples=100)
@given(
    st.lists(st.integers(1, 3 * TILE), min_size=1, max_size=8),
    st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=8, max_size=8),
)
def test_whole_files_can_lie_anywhere(rows: list[int], holders: list[set[int]]) -> None:
    """File groups never ask for too many rows, and every fragment can be read where it should."""
    workers = frozenset("abcd")
    fragments: list[Any] = []
    problems = {}
    for number, (count, holding) in enumerate(zip(rows, holders, strict=False)):
        able = {"abcd"[index] for index in holding}
        file = f"/data/{number}.parquet"
        stamp = FileStamp(file, file, 1, 1, count)
        fragments.append(
            ParquetFragment(stamp, 0, count, 0, 0, count, sum(rows[:number]), weight=None)
        )
        if able != workers:
            problems[file] = dict.fromkeys(workers - able, "cannot be found")
    known = Reach(workers, problems)
    dataset = ld.Dataset(ld.data.Schema(("x",)), tuple(fragments), "anywhere")
    for partition in partition_dataset(dataset, None, "file_groups"):
        placement = place(partition, known)
        travelling = [partition.fragments[position] for position in placement.travelling]
        assert sum(fragment.rows for fragment in travelling) <= TILE
        assert all(known.readers([fragment.file]) for fragment in travelling)
        stay = [fragment for fragment in partition.fragments if fragment not in travelling]
        common = known.readers([fragment.file for fragment in stay])
        assert (placement.readers or workers) <= common
        assert placement.readers is None or placement.readers
        pieces = list(apart(partition, known))
        assert [part for piece, _ in pieces for part in piece.fragments] == [*partition.fragments]
        ends = np.cumsum([partition.first_event, *(piece.events for piece, _ in pieces)])
        assert [piece.first_event for piece, _ in pieces] == ends[:-1].tolist()
        for piece, able in pieces:
            assert (able or workers) == known.readers([part.file for part in piece.fragments])


def test_a_file_that_nobody_can_read() -> None:
    """Names the file and the workers, and says what the user most likely forgot."""
    reach(a="12", b="3").refuse_unreadable()
    with pytest.raises(
        ld.DataError,
        match=r"none of the 3 workers can read /data/b.parquet, which was there for the client "
        r".*\(w1: cannot be found; w2: cannot be found; w3: cannot be found\).*mounted alike",
    ) as caught:
        reach(a="1", b="123", c="123").refuse_unreadable()
    assert caught.value.file == "/data/b.parquet"
    assert caught.value.workers == ("w1", "w2", "w3")


def test_what_a_process_says_about_files(tmp_path: Path) -> None:
    """Missing and changed files, in a few words; nothing about the others."""
    paths = [tmp_path / f"{name}.parquet" for name in ("good", "gone", "longer", "later")]
    for path in paths:
        pq.write_table(pa.table({"x": [1.0]}), path)
    stamps = [fragment.stamp for fragment in ld.read_parquet(paths).fragments]
    os.remove(paths[1])
    paths[2].write_bytes(paths[2].read_bytes() + b" ")
    os.utime(paths[3], ns=(0, 0))
    found = problems_here([stamp for stamp in stamps if stamp is not None])
    assert list(found) == [str(path) for path in paths[1:]]
    gone, longer, later = found.values()
    assert gone.startswith("cannot be found on the machine ")
    assert gone.endswith("No such file or directory")
    assert longer.startswith("is not the file it was when the data set was opened (it has ")
    assert "modified at 0 ns" in later


def test_rows_that_were_fetched(tmp_path: Path) -> None:
    """They need no file any more, and messages still name it."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(9.0), "weight": np.arange(9.0)}), path)
    (fragment,) = ld.read_parquet(path).fragments
    some = fetched(fragment.cut(2, 8), ["x"]).cut(1, 4)
    os.remove(path)
    (batch,) = some.read(["x"], 100)
    assert batch.values.tolist() == [[3.0, 4.0, 5.0]]
    assert batch.weights.tolist() == [3.0, 4.0, 5.0]
    (plain,) = some.unweighted().read(["x"], 100)
    assert plain.weights.tolist() == [1.0, 1.0, 1.0]
    assert (some.rows, some.offset, some.locate(2), some.stamp) == (3, 3, 5, None)
    assert (some.label, some.file) == ("a.parquet, row group 0", str(path))
    assert some.fingerprint == fragment.cut(3, 6).fingerprint
    with pytest.raises(ld.DataError, match="column 'y'"):
        list(some.read(["y"], 10))
