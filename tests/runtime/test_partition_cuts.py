"""Cutting events into partitions, and the share of the busiest process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import laddu_dask as ld
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.memory import HostMemory, host_memory
from laddu_dask.runtime.capacity import Capacity, cluster_capacity
from laddu_dask.runtime.partitions import SNAP, cut_points, partition_dataset

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


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 8000), st.integers(1, 450), st.integers(300, 2100))
def test_partitions_hold_every_event_once(n: int, count: int, piece: int) -> None:
    """In order, with the global index of their first event, and none for nothing."""
    whole = ld.Dataset.from_arrays(scalars={"x": np.arange(float(n))})
    fragments = tuple(
        fragment.cut(start, min(start + piece, fragment.rows))
        for fragment in whole.fragments
        for start in range(0, fragment.rows, piece)
    )
    dataset = ld.Dataset(whole.schema, fragments, "pieces")
    partitions = partition_dataset(dataset, count)
    assert 1 <= len(partitions) <= max(min(count, -(-n // TILE)), 1)
    assert all(partition.events for partition in partitions) or n == 0
    found: list[float] = []
    for partition in partitions:
        assert partition.first_event == len(found)
        rows = [
            batch.values[0]
            for fragment in partition.fragments
            for batch in fragment.read(["x"], 50)
        ]
        found += np.concatenate(rows).tolist() if rows else []
        assert partition.first_event + partition.events == len(found)
    assert found == list(range(n))


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


@pytest.mark.parametrize(
    ("threads", "sizes", "share"),
    [
        ((4,), [10, 10, 10], 30),  # one process has everything
        ((1, 1), [10, 10], 10),
        ((1, 1), [100], 100),  # a partition is not divided
        ((1, 1), [10, 20, 30], 50),  # two of three, at worst the largest
        ((3, 1), [10] * 8, 60),  # in proportion to threads
        ((1,) * 8, [5, 0, 0], 5),
        ((2, 2), [], 0),
    ],
)
def test_share_of_the_busiest_process(
    threads: tuple[int, ...], sizes: list[int], share: int
) -> None:
    """DK-06: what a plan has to count with."""
    assert Capacity(threads, 10**9, 0).largest_share(sizes) == share


def test_capacity_of_workers() -> None:
    """DK-06: neighbours share a machine, Dask's limit counts, and what is unknown stays unknown."""

    class Cluster:
        """What a client tells of its workers."""

        def scheduler_info(self, n_workers: int) -> dict[str, Any]:
            assert n_workers == -1  # all of them; the default tells of five
            return {
                "workers": {
                    "tcp://a:1": {"nthreads": 4, "memory_limit": 1000},
                    "tcp://a:2": {"nthreads": 2, "memory_limit": 0},
                    "tcp://b:1": {"nthreads": 1, "memory_limit": 500},
                }
            }

        def run(self, function: Any) -> dict[str, Any]:
            if function is not host_memory:  # free bytes on the disks, of which a has one
                return {"tcp://a:1": 1000, "tcp://a:2": 1000, "tcp://b:1": 700}
            return {
                "tcp://a:1": HostMemory(8000, 6000),
                "tcp://a:2": HostMemory(8000, 6000),
                "tcp://b:1": HostMemory(None, None),
            }

    def budget(memory: Any) -> int:
        found = cluster_capacity(Cluster(), ld.Execution(memory=memory))
        assert found.threads == (4, 2, 1)
        assert (found.total_threads, found.widest) == (7, 4)
        assert found.disk == 250  # half of half of the disk of a
        return found.budget

    assert budget("400 B") == 400
    assert budget("10% total") == 50  # of the limit on b; 100 and 400 on a
    assert budget("10% available") == 30  # Dask spills from 60 % of 500 on
    assert budget(None) == 240  # 80 % of that
