"""Cutting a data set into partitions: contiguous ranges of events, of whole tiles."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from laddu_dask.data import Dataset, Fragment
from laddu_dask.kernels.accumulator import TILE

#: How partitions are cut. ``contiguous``: nearly equal, at ends of row groups where these are near.
#: ``file_groups``: whole files. ``rows``: equal numbers of rows, wherever files end.
Partitioning = Literal["contiguous", "file_groups", "rows"]

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


def cut_points(fragment_rows: Sequence[int], count: int, tile: int = TILE) -> list[int]:
    """Event indices at which `count` partitions begin and end, ascending, from 0 to the total.

    Cuts are whole tiles, so that every sum within a tile is made in one place.
    """
    total = sum(fragment_rows)
    boundaries = [b for b in (0, *accumulate(fragment_rows)) if b % tile == 0]
    reach = SNAP * total / count
    points = [0]
    for i in range(1, count):
        ideal = i * total // count
        place = bisect_left(boundaries, ideal)
        near = min(boundaries[max(place - 1, 0) : place + 1], key=lambda b: (abs(b - ideal), b))
        cut = near if abs(near - ideal) <= reach else tile * round(ideal / tile)
        points.append(min(max(points[-1], cut), total))
    return [*points, total]


def equal_cuts(total: int, count: int, tile: int = TILE) -> list[int]:
    """Cuts after equal numbers of whole tiles; the last partition has what is left.

    With tiles of one row, partition r of n has the rows [r total / n, (r + 1) total / n), divided
    as integers.
    """
    tiles = -(-total // tile)
    return [min(tile * (i * tiles // count), total) for i in range(count + 1)]


def group_cuts(group_rows: Sequence[int], count: int | None = None, tile: int = TILE) -> list[int]:
    """Cuts at the ends of groups of rows, each moved to the nearest end of a tile.

    A tile that lies in two groups goes with one of them: sums are the same however events are cut,
    and a group has at most half a tile that is read elsewhere.

    Parameters
    ----------
    group_rows
        Rows of each group, in order.
    count
        Most partitions, each of consecutive groups and as equal as these allow; None for one per
        group.
    """
    ends = [0, *accumulate(group_rows)]
    total = ends[-1]
    if count is not None and count < len(group_rows):
        chosen = [0]
        for i in range(1, count):
            ideal = i * total / count
            place = bisect_left(ends, ideal)
            chosen.append(min(ends[max(place - 1, 0) : place + 1], key=lambda e: abs(e - ideal)))
        ends = [*chosen, total]
    inner = (min(tile * ((end + tile // 2) // tile), total) for end in ends[1:-1])
    return [0, *inner, total] if len(ends) > 1 else [0, total]


def partition_dataset(
    dataset: Dataset,
    count: int | None,
    partitioning: Partitioning = "contiguous",
    longest: int | None = None,
) -> tuple[Partition, ...]:
    """Cut a data set into partitions with events: `count` of them, or fewer if there are too few.

    A tile is not divided, so more partitions than tiles would only be empty. A data set without
    events has one partition, which says so. Without a count there is one partition for each file,
    which only ``file_groups`` offers. One of more than `longest` events is cut again, into whole
    tiles. Takes time in proportion to fragments and partitions.
    """
    fragments = dataset.fragments
    rows = [fragment.rows for fragment in fragments]
    most = max(-(-sum(rows) // TILE), 1)
    if partitioning == "file_groups":
        points = group_cuts(_groups(fragments), count)
    else:
        assert count is not None, "only files say how many partitions there should be"
        wanted = max(min(count, most), 1)
        if partitioning == "rows":
            points = equal_cuts(sum(rows), wanted)
        else:
            points = cut_points(rows, wanted)
    if longest is not None:
        points = _shortened(points, longest)
    starts = [0, *accumulate(rows)]
    partitions: list[Partition] = []
    for start, stop in pairwise(points):
        if start < stop or (points[-1] == 0 and not partitions):
            partitions.append(Partition(start, _between(fragments, starts, start, stop)))
    return tuple(partitions)


def _shortened(points: Sequence[int], longest: int) -> list[int]:
    """Cuts with others between them where they are too far apart."""
    step = max(longest // TILE, 1) * TILE
    between = [range(start, stop, step) or (start,) for start, stop in pairwise(points)]
    return [*(cut for cuts in between for cut in cuts), points[-1]]


def _groups(fragments: Sequence[Fragment]) -> list[int]:
    """Rows of each file; of each piece or array where there is no file."""
    rows: list[int] = []
    last: tuple[str | None, str] | None = None
    for fragment in fragments:
        name = (fragment.file, "" if fragment.file else fragment.label)
        if name == last:
            rows[-1] += fragment.rows
        else:
            rows.append(fragment.rows)
        last = name
    return rows


def _between(
    fragments: Sequence[Fragment], starts: Sequence[int], start: int, stop: int
) -> tuple[Fragment, ...]:
    """The events [start, stop), of those fragments alone that hold them."""
    pieces = []
    place = bisect_right(starts, start) - 1
    while place < len(fragments) and starts[place] < stop:
        first, last = starts[place], starts[place + 1]
        low, high = max(start, first), min(stop, last)
        if low < high:
            pieces.append(fragments[place].cut(low - first, high - first))
        place += 1
    return tuple(pieces)
