"""Footprints and the rules that fit chunks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laddu_dask.errors import MemoryBudgetError
from laddu_dask.memory import MAX_BYTES, Fit, Footprint, fit_chunk, fit_resident

counts = st.integers(0, MAX_BYTES)


@pytest.mark.parametrize(
    ("fixed", "per_event", "available", "limit", "expected"),
    [
        (100, 8, 1000, 1000, (8, 112, 996)),
        (101, 0, 100, 0, (1, 0, 101)),
        (0, 0, 100, 200, (1, 100, 100)),
    ],
)
def test_fit(
    fixed: int, per_event: int, available: int, limit: int, expected: tuple[int, int, int]
) -> None:
    """MD-02, AX-40, T-46."""
    fit = fit_chunk("x", Footprint(fixed, per_event), available, limit)
    assert (fit.bytes_per_event, fit.chunk_events, fit.peak_bytes) == expected


@pytest.mark.parametrize(
    ("fixed", "per_event", "available", "requested"),
    [(100, 1, 100, 101), (101, 1, 100, 102), (MAX_BYTES, 1, MAX_BYTES, MAX_BYTES)],
)
def test_fit_refuses(fixed: int, per_event: int, available: int, requested: int) -> None:
    """MD-02, AX-40: not even one event fits; the request saturates."""
    with pytest.raises(MemoryBudgetError, match="signal/data") as caught:
        fit_chunk("signal/data", Footprint(fixed, per_event), available, 1)
    error = caught.value
    assert (error.label, error.requested, error.remaining) == ("signal/data", requested, available)


def test_resident_fit() -> None:
    """MD-03, AX-41: the per-event part is not raised to 1 here."""
    fit = fit_resident("x", Footprint(100, 8), 1000, events=100, chunk=25)
    assert fit == Fit("x", 100, 8, 25, 900)
    fit = fit_resident("x", Footprint(100, 0), 100, events=100, chunk=25)
    assert (fit.bytes_per_event, fit.peak_bytes) == (0, 100)
    with pytest.raises(MemoryBudgetError) as caught:
        fit_resident("x", Footprint(100, 8), 899, events=100, chunk=25)
    assert (caught.value.requested, caught.value.remaining) == (900, 899)


@given(counts, counts, counts, counts)
@settings(deadline=None)
def test_fit_takes_the_largest_chunk(
    fixed: int, per_event: int, available: int, limit: int
) -> None:
    """MD-02: within the budget, and one event more would not be or is not there."""
    footprint = Footprint(fixed, per_event)
    least = fixed + max(per_event, 1)
    if limit > 0 and least > available:
        with pytest.raises(MemoryBudgetError) as caught:
            fit_chunk("x", footprint, available, limit)
        assert caught.value.requested == min(least, MAX_BYTES)
        return
    chunk = fit_chunk("x", footprint, available, limit).chunk_events
    assert 0 <= chunk <= limit
    assert chunk == 0 or fixed + max(per_event, 1) * chunk <= available
    assert chunk == limit or fixed + max(per_event, 1) * (chunk + 1) > available


def test_arithmetic_saturates() -> None:
    """MD-01, T-45: nothing exceeds 2**64 - 1."""
    most = Footprint(MAX_BYTES, MAX_BYTES)
    assert most.peak(0) == most.peak(1) == most.peak(10**30) == MAX_BYTES
    assert most.plus(Footprint(1, 2)) == most.times(3) == Footprint(2**70, 2**70) == most
    assert Footprint(1, 2).plus(Footprint(3, 4)) == Footprint(4, 6)
    assert Footprint(1, 2).times(3).peak(10) == 63


def test_checked_arithmetic_raises() -> None:
    """MD-01: the error names the operation."""
    most = Footprint(MAX_BYTES, 0)
    assert most.peak(5, checked=True) == MAX_BYTES
    with pytest.raises(MemoryBudgetError, match="addition"):
        most.plus(Footprint(1, 0), checked=True)
    with pytest.raises(MemoryBudgetError, match="multiplication"):
        most.times(2, checked=True)
    with pytest.raises(MemoryBudgetError, match="peak") as caught:
        Footprint(0, 2).peak(2**63, checked=True)
    assert caught.value.requested == 2**64


def test_negative_bytes_are_refused() -> None:
    """MD-01."""
    with pytest.raises(MemoryBudgetError, match="fixed_bytes is -1"):
        Footprint(-1, 0)
