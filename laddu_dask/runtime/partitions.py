"""Cutting a data set into partitions: contiguous ranges of events."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, pairwise

from laddu_dask.data import Dataset, Fragment
from laddu_dask.kernels.accumulator import TILE

#: A cut moves to a fragment boundary within this share of a partition: a row group is then read by
#: one worker. Results do not depend on where the cuts are.
SNAP = 0.25


@dataclass(frozen=True)
class Partition:
    """Consecutive events of a data set.

    Attributes
    ----------
    first_event
        Global index of the first event.
    fragments
        Where the events are read, in order.
    """

    first_event: int
    fragments: tuple[Fragment, ...]

    @property
    def events(self) -> int:
        """Number of events."""
        return sum(fragment.rows for fragment in self.fragments)


def cut_points(fragment_rows: list[int], count: int) -> list[int]:
    """Event indices at which `count` partitions begin and end, ascending, from 0 to the total.

    Cuts are whole tiles, so that every sum within a tile is made in one place.
    """
    total = sum(fragment_rows)
    boundaries = [b for b in (0, *accumulate(fragment_rows)) if b % TILE == 0]
    reach = SNAP * total / count
    points = [0]
    for i in range(1, count):
        ideal = i * total // count
        place = bisect_left(boundaries, ideal)
        near = min(boundaries[max(place - 1, 0) : place + 1], key=lambda b: (abs(b - ideal), b))
        cut = near if abs(near - ideal) <= reach else TILE * round(ideal / TILE)
        points.append(min(max(points[-1], cut), total))
    return [*points, total]


def partition_dataset(dataset: Dataset, count: int) -> tuple[Partition, ...]:
    """Cut a data set into partitions with events: `count` of them, or fewer if there are too few.

    A tile is not divided, so more partitions than tiles would only be empty. A data set without
    events has one partition, which says so.
    """
    rows = [fragment.rows for fragment in dataset.fragments]
    points = cut_points(rows, max(min(count, -(-sum(rows) // TILE)), 1))
    partitions = []
    for start, stop in pairwise(points):
        if start == stop and points[-1] > 0:
            continue
        pieces = []
        for fragment in dataset.fragments:
            low = max(start, fragment.offset)
            high = min(stop, fragment.offset + fragment.rows)
            if low < high:
                pieces.append(fragment.cut(low - fragment.offset, high - fragment.offset))
        partitions.append(Partition(start, tuple(pieces)))
    return tuple(partitions)
