"""Shares: in proportion, within the room there is, and whole in the end."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laddu_dask.memory.shares import apportion, deal, fair_shares


@pytest.mark.parametrize(
    ("weights", "rooms", "total", "given_bytes"),
    [
        ([1, 1], [100, 100], 80, [40, 40]),  # there is room
        ([3, 1], [100, 100], 80, [60, 20]),  # in proportion to threads
        ([1, 1], [100, 10], 80, [70, 10]),  # a small one does not shrink the big one
        ([1, 1, 1], [100, 10, 20], 100, [70, 10, 20]),
        ([1, 1], [50, 10], 80, [60, 20]),  # nobody has room for 20 of it
        ([1, 1], [0, 0], 80, [40, 40]),
        ([2, 1], [5, 5], 0, [0, 0]),
    ],
)
def test_shares(weights: list[int], rooms: list[int], total: int, given_bytes: list[int]) -> None:
    """DK-06: heterogeneous workers."""
    shares = fair_shares(weights, rooms, total)
    assert sum(shares) == 1
    assert [share * total for share in shares] == given_bytes


WORKERS = st.lists(st.tuples(st.integers(1, 64), st.integers(0, 10**12)), min_size=1, max_size=8)


@given(WORKERS, st.integers(1, 10**13))
def test_nobody_gets_more_than_its_room_while_another_has_some(
    workers: list[tuple[int, int]], total: int
) -> None:
    """DK-06: what is given is within the rooms, or all rooms are full."""
    weights, rooms = [w for w, _ in workers], [room for _, room in workers]
    shares = fair_shares(weights, rooms, total)
    assert sum(shares) == 1
    parts = [share * total for share in shares]
    if total <= sum(rooms):
        assert all(part <= room for part, room in zip(parts, rooms, strict=True))
        per_weight = max(part / weight for part, weight in zip(parts, weights, strict=True))
        for part, room, weight in zip(parts, rooms, weights, strict=True):
            assert part == room or part == per_weight * weight
    else:
        assert all(part >= room for part, room in zip(parts, rooms, strict=True))


@given(st.integers(0, 1000), st.lists(st.integers(1, 50), min_size=1, max_size=9))
def test_whole_numbers_add_up(count: int, weights: list[int]) -> None:
    shares = [Fraction(weight, sum(weights)) for weight in weights]
    counts = apportion(count, shares)
    assert sum(counts) == count
    assert all(
        int(count * s) <= n <= int(count * s) + 1 for n, s in zip(counts, shares, strict=True)
    )
    dealt = deal(counts)
    assert Counter(dealt) == Counter({n: c for n, c in enumerate(counts) if c})


def test_what_is_dealt_is_spread() -> None:
    """Neighbours in a file go to different workers, so that all begin with something."""
    assert deal([4, 2]) == [0, 1, 0, 0, 1, 0]
    assert deal([2, 2]) == [0, 1, 0, 1]
