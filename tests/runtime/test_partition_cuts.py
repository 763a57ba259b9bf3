"""Cutting events into partitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import laddu_dask as ld
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.runtime.partitions import (
    SNAP,
    cut_points,
    equal_cuts,
    group_cuts,
    partition_dataset,
)

ROWS = st.lists(st.integers(0, 20000) | st.integers(0, 20).map(lambda n: n * TILE), max_size=12)


@given(ROWS, st.integers(1, 60))
def test_cut_points_cover_everything_once(rows: list[int], count: int) -> None:
    """From 0 to the total, ascending, one more than there are partitions."""
    points = cut_points(rows, count)
    assert len(points) == count + 1
    assert (points[0], points[-1]) == (0, sum(rows))
    assert points == sorted(points)


@given(ROWS, st.integers(1, 60))
def test_partitions_are_nearly_equal(rows: list[int], count: int) -> None:
    """A cut moves by at most SNAP of a share, or to a whole tile."""
    points = cut_points(rows, count)
    share = sum(rows) / count
    assert max(np.diff(points)) <= (1 + 2 * SNAP) * share + TILE + 1
    assert all(point % TILE == 0 for point in points if point < sum(rows))


def test_cuts_prefer_fragment_boundaries() -> None:
    """Row groups near an ideal cut stay whole; far ones are divided."""
    t = TILE
    assert cut_points([90 * t, 110 * t, 100 * t], 3) == [0, 90 * t, 200 * t, 300 * t]
    assert cut_points([300 * t], 3) == [0, 100 * t, 200 * t, 300 * t]
    assert cut_points([10 * t, 290 * t], 3) == [0, 100 * t, 200 * t, 300 * t]
    # A boundary inside a tile is no place for a cut.
    assert cut_points([90 * t + 1, 210 * t - 1], 3) == [0, 100 * t, 200 * t, 300 * t]
    assert cut_points([2 * t + 10], 4) == [0, t, t, 2 * t, 2 * t + 10]
    assert cut_points([100], 3) == [0, 0, 0, 100]


@pytest.mark.parametrize("cuts", [equal_cuts, lambda n, k, tile: cut_points([n], k, tile)])
@pytest.mark.parametrize(
    ("total", "count", "points"),
    [(10, 3, [0, 3, 6, 10]), (2, 4, [0, 0, 1, 1, 2]), (0, 2, [0, 0, 0]), (7, 7, [*range(8)])],
)
def test_table_of_contiguous_cuts(cuts: Any, total: int, count: int, points: list[int]) -> None:
    """DA-14: 10 rows in 3 are [0, 3), [3, 6), [6, 10); 2 rows in 4 have the sizes 0, 1, 0, 1.

    That table is for tiles of one row.
    """
    assert cuts(total, count, 1) == points


def test_rows_are_equal_numbers_of_tiles() -> None:
    """DA-14, rows: ends of row groups are not looked at."""
    t = TILE
    assert equal_cuts(10 * t, 3) == [0, 3 * t, 6 * t, 10 * t]
    assert equal_cuts(9 * t + 7, 5) == [0, 2 * t, 4 * t, 6 * t, 8 * t, 9 * t + 7]
    assert equal_cuts(5, 1) == [0, 5]
    assert equal_cuts(10**12, 10**6)[-2:] == [t * (10**12 // t * 999_999 // 10**6), 10**12]


@pytest.mark.parametrize(
    ("groups", "count", "points"),
    [
        ([3, 4, 5], None, [0, 3, 7, 12]),
        ([3, 4, 5], 3, [0, 3, 7, 12]),
        ([3, 4, 5], 9, [0, 3, 7, 12]),  # a file is not divided
        ([3, 4, 5], 2, [0, 7, 12]),
        ([3, 4, 5], 1, [0, 12]),
        ([1, 1, 1, 97], 2, [0, 3, 100]),  # the nearest end there is
        ([97, 1, 1, 1], 2, [0, 97, 100]),
        ([5, 0, 5], None, [0, 5, 5, 10]),
        ([], None, [0, 0]),
    ],
)
def test_table_of_file_groups(groups: list[int], count: int | None, points: list[int]) -> None:
    """DA-14: whole files; so many that the groups are as equal as files allow."""
    assert group_cuts(groups, count, 1) == points


def test_file_groups_move_to_the_nearest_tile() -> None:
    """A tile in which a file ends goes with the file that has more of it."""
    t = TILE
    assert group_cuts([t + 1, t], None) == [0, t, 2 * t + 1]
    assert group_cuts([t - 1, t], None) == [0, t, 2 * t - 1]
    assert group_cuts([t // 2, t], None) == [0, t, t + t // 2]
    assert group_cuts([t // 2 - 1, t], None) == [0, 0, t + t // 2 - 1]
    assert group_cuts([10, 10, 10], None) == [0, 0, 0, 30]


@given(st.lists(st.integers(0, 5000), max_size=12), st.none() | st.integers(1, 15))
def test_file_groups_cover_everything_once(groups: list[int], count: int | None) -> None:
    """Ascending from 0 to the total, whole tiles, at most half a tile from the end of a file."""
    points = group_cuts(groups, count)
    ends = np.cumsum([0, *groups])
    assert (points[0], points[-1]) == (0, ends[-1])
    assert points == sorted(points)
    assert all(point % TILE == 0 for point in points if point < ends[-1])
    assert all(np.abs(ends - point).min() <= TILE // 2 for point in points)
    assert len(points) - 1 == max(min(len(groups), count or len(groups)), 1)


POLICIES: list[Any] = ["contiguous", "rows", "file_groups"]


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None, max_examples=50)
@given(n=st.integers(0, 8000), count=st.integers(1, 450), piece=st.integers(300, 2100))
def test_partitions_hold_every_event_once(policy: Any, n: int, count: int, piece: int) -> None:
    """In order, with the global index of their first event, and none for nothing."""
    columns = {"x": np.arange(float(n))}
    dataset = ld.Dataset.from_batches(
        lambda k: {"x": columns["x"][k * piece : (k + 1) * piece]},
        ["x"],
        rows=[min(piece, n - start) for start in range(0, n, piece)],
        identity="pieces",
    )
    partitions = partition_dataset(dataset, count, policy)
    assert 1 <= len(partitions) <= max(min(count, -(-n // TILE)), 1)
    assert all(partition.events for partition in partitions) or n == 0
    found: list[float] = []
    for partition in partitions:
        assert partition.first_event == len(found)
        assert partition.first_event % TILE == 0
        rows = [
            batch.values[0]
            for fragment in partition.fragments
            for batch in fragment.read(["x"], 50)
        ]
        found += np.concatenate(rows).tolist() if rows else []
        assert partition.first_event + partition.events == len(found)
    assert found == list(range(n))


class _Counted:
    """A fragment that counts how often anything is asked of any."""

    asked = 0

    def __init__(self, offset: int, rows: int, file: str) -> None:
        self._facts = {"offset": offset, "rows": rows, "file": file, "label": file}

    def __getattr__(self, name: str) -> Any:
        _Counted.asked += 1
        return self._facts[name]

    def cut(self, start: int, stop: int) -> _Counted:
        _Counted.asked += 1
        return _Counted(self._facts["offset"] + start, stop - start, self._facts["file"])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("count", [1, 50, 5000])
def test_work_is_in_proportion_to_row_groups(policy: Any, count: int) -> None:
    """5 000 row groups in 100 files of very different size: a handful of questions about each."""
    sizes = [300 + 37 * (number % 91) for number in range(5000)]
    offsets = np.cumsum([0, *sizes]).tolist()
    fragments: Any = tuple(
        _Counted(offset, size, f"{int(number**0.5)}.parquet")
        for number, (offset, size) in enumerate(zip(offsets, sizes, strict=False))
    )
    dataset = ld.Dataset(ld.data.Schema(("x",)), fragments, "many")
    _Counted.asked = 0
    partitions = partition_dataset(dataset, count, policy)
    assert sum(partition.events for partition in partitions) == sum(sizes)
    assert _Counted.asked < 8 * (len(sizes) + len(partitions))


def test_file_groups_without_a_count_are_files() -> None:
    """And arrays, having no file, are one group; pieces of a function are one each."""

    def sizes(dataset: ld.Dataset, count: int | None = None) -> list[int]:
        return [p.events for p in partition_dataset(dataset, count, "file_groups")]

    rows = [3 * TILE, TILE, 2 * TILE + 100, 50]
    pieces = ld.Dataset.from_batches(lambda k: {}, ["x"], rows=rows, identity="p")
    assert sizes(pieces) == [3 * TILE, TILE, 2 * TILE, 150]
    assert sizes(pieces, 2) == [3 * TILE, 3 * TILE + 150]
    assert sizes(ld.Dataset.from_arrays(scalars={"x": np.zeros(200_000)})) == [200_000]
    assert sizes(ld.Dataset.from_arrays(scalars={"x": np.zeros(0)})) == [0]


@pytest.mark.parametrize(
    ("n", "count", "sizes"),
    [
        (3 * TILE, 3, [TILE] * 3),
        (3 * TILE, 2, [2 * TILE, TILE]),
        (3 * TILE + 5, 10**9, [TILE, TILE, TILE + 5]),
        (1, 10**9, [1]),
        (0, 10**9, [0]),
    ],
)
def test_no_more_partitions_than_tiles(n: int, count: int, sizes: list[int]) -> None:
    """More would be empty; a thousand million of them are made in no time."""
    dataset = ld.Dataset.from_arrays(scalars={"x": np.zeros(n)})
    assert [partition.events for partition in partition_dataset(dataset, count)] == sizes


@pytest.mark.parametrize("longest", [1, 1024, 3000, 10**6])
def test_partitions_that_are_too_long_are_cut_again(longest: int) -> None:
    """Into whole tiles; nothing else moves."""
    data = ld.Dataset.from_arrays(scalars={"x": np.zeros(10_000)})
    for count in (1, 3):
        whole = partition_dataset(data, count)
        short = partition_dataset(data, count, longest=longest)
        assert {p.first_event for p in whole} <= {p.first_event for p in short}
        assert sum(p.events for p in short) == 10_000
        assert all(p.first_event % 1024 == 0 for p in short)
        assert max(p.events for p in short) <= max(longest // 1024, 1) * 1024
    (empty,) = partition_dataset(ld.Dataset.from_arrays(scalars={"x": []}), 1, longest=longest)
    assert empty.events == 0
