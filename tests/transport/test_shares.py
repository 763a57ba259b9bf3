"""Shares of partitions: numbers in, numbers out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laddu_dask.runtime.shares import shares_by_pace, shares_by_threads, within_plan

WORKERS = st.integers(2, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 30), min_size=n, max_size=n),
        st.lists(st.floats(1e-4, 10.0), min_size=n, max_size=n),
    )
)


def named(values: list) -> dict:
    return {f"w{i}": value for i, value in enumerate(values)}


def test_shares_by_threads() -> None:
    assert shares_by_threads(12, {"a": 1, "b": 1}) == {"a": 6, "b": 6}
    assert shares_by_threads(12, {"a": 1, "b": 3}) == {"a": 3, "b": 9}
    assert shares_by_threads(7, {"a": 1, "b": 1}) == {"a": 3, "b": 3}


def test_a_slow_worker_gets_less() -> None:
    assert shares_by_pace({"a": 6, "b": 6}, {"a": 3.0, "b": 1.0}) == {"a": 3, "b": 9}
    assert shares_by_pace({"a": 6, "b": 6}, {"a": 100.0, "b": 1.0}) == {"a": 1, "b": 11}
    assert shares_by_pace({"a": 1, "b": 11}, {"a": 1.0, "b": 1.0}) == {"a": 6, "b": 6}


def test_little_gain_moves_nothing() -> None:
    assert shares_by_pace({"a": 6, "b": 6}, {"a": 1.1, "b": 1.0}) is None
    # Three times faster, but a saving of milliseconds is within the noise.
    assert shares_by_pace({"a": 6, "b": 6}, {"a": 0.003, "b": 0.001}) is None
    assert shares_by_pace({"a": 12}, {"a": 5.0}) is None
    assert shares_by_pace({"a": 12, "b": 0}, {"a": 5.0}) is None
    assert shares_by_pace({"a": 1, "b": 0}, {"a": 5.0, "b": 5.0}) is None


@given(WORKERS)
def test_shares_by_pace_keep_everything_and_gain(case: tuple[list[int], list[float]]) -> None:
    held, paces = named(case[0]), named(case[1])
    shares = shares_by_pace(held, paces)
    if shares is None:
        return
    assert sum(shares.values()) == sum(held.values())
    assert min(shares.values()) >= 1

    def seconds(numbers: dict[str, int]) -> float:
        return max(paces[w] * n for w, n in numbers.items())

    assert seconds(held) - seconds(shares) > 0.25 * seconds(held)
    # No single move makes it any better.
    assert all(
        seconds({**shares, slow: shares[slow] - 1, fast: shares[fast] + 1})
        >= seconds(shares) * (1 - 1e-12)
        for slow in shares
        for fast in shares
        if slow != fast and shares[slow] > 1
    )


@pytest.mark.parametrize(
    ("shares", "planned", "found"),
    [
        ({"a": 5, "b": 5}, {"a": 8, "b": 5}, {"a": 5, "b": 5}),  # within the plan
        ({"a": 5, "b": 5}, {"a": 8, "b": 2}, {"a": 8, "b": 2}),  # b has no room for more
        ({"a": 4, "b": 4, "new": 4}, {"a": 9, "b": 3}, {"a": 5, "b": 3, "new": 4}),
        ({"a": 6, "b": 6}, {"a": 4, "b": 2}, {"a": 7, "b": 5}),  # a third of them lost its worker
    ],
)
def test_shares_within_a_plan(
    shares: dict[str, int], planned: dict[str, int], found: dict[str, int]
) -> None:
    """DK-06, T-55: what is balanced for speed stays where there is room for it."""
    assert within_plan(shares, planned) == found
