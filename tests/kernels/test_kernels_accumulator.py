"""Order-free exact sums."""

from __future__ import annotations

import copy
import math
import pickle
import random
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.compiler import Program
from laddu_dask.kernels import Accumulator, get_backend, padded
from laddu_dask.kernels.accumulator import (
    LANES,
    LEVEL_MAX,
    LEVEL_MIN,
    LIMIT,
    TILE,
    TILE_LIMIT,
    lane_sums,
)

Array = NDArray[Any]
IDENTITY = Program((("input", (), "0"),), 1, 0, (0,))
ADDERS = ["add_rows", "compiled"]


def add(state: Accumulator, values: Iterable[float], first: int = 0, how: str = "add_rows") -> None:
    row = np.array(list(values), dtype=float)
    if how == "add_rows":
        state.add_rows(row[np.newaxis], first)
        return
    rows = np.zeros((1, padded(row.size)))
    rows[0, : row.size] = row
    get_backend("cpu").compile(IDENTITY).bind(rows, row.size, first)(np.empty(0), state)


def total(values: Iterable[float], how: str = "add_rows") -> Accumulator:
    state = Accumulator(1)
    add(state, values, 0, how)
    return state


def chunked(values: Sequence[float], size: int, how: str = "add_rows") -> Accumulator:
    """Each chunk a state of its own, merged."""
    result = Accumulator(1)
    for start in range(0, len(values), size):
        part = Accumulator(1)
        add(part, values[start : start + size], start, how)
        result.merge(part)
    return result


def value(state: Accumulator) -> float:
    (number,) = state.round()
    return float(number)


@pytest.mark.parametrize("how", ADDERS)
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e16, 1, -1e16], 1.0),
        ([1, 1e100, 1, -1e100], 0.0),
        ([], 0.0),
        ([0.1] * 1_000_000, 100_000.0),
    ],
)
def test_sums_that_defeat_plain_loops(how: str, values: list[float], expected: float) -> None:
    """AX-31. One ulp of 1e100 is beyond three bins: what they drop is bounded, and stated."""
    assert value(total(values, how)) == expected
    if expected == 0 and values:
        assert abs(expected - math.fsum(values)) <= dropped(values)


def test_merging_keeps_the_residual() -> None:
    """AX-31, AC-04, T-01."""
    state = total([1e16, 1])
    state.merge(total([-1e16]))
    assert value(state) == 1.0


def dropped(values: Sequence[float]) -> float:
    """Bound of what three bins leave out."""
    return len(values) * 2.0**-80 * max(map(abs, values), default=0.0)


@pytest.mark.parametrize(
    ("how", "size"),
    [("add_rows", n) for n in (1, 7, 32, 1000, 3000)] + [("compiled", n * TILE) for n in (1, 2, 3)],
)
def test_cancelling_triples(how: str, size: int) -> None:
    """AX-31b, DK-15: one result for any chunking.

    The exact sum is 100, a plain sum gives 99.99998. Here terms of 1e12 cancel completely, so that
    the digits below 2**-40, which three bins drop, show in the sum; they stay within the bound.
    """
    values = [x for k in range(1000) for x in (1e12 + k, 0.1, -(1e12 + k))]
    assert math.fsum(values) == 100.0
    found = value(chunked(values, size, how))
    assert found.hex() == value(total(values, how)).hex()
    assert abs(found - 100.0) <= dropped(values) < 3e-9


@pytest.mark.parametrize("how", ADDERS)
@pytest.mark.parametrize("size", [1, 7, 32, 100, 1000])
def test_harmonic_sum(how: str, size: int) -> None:
    """AX-66, T-05: correctly rounded, so one ulp above what compensated pairs give."""
    values = [1 / k for k in range(1, 1001)]
    assert value(chunked(values, size, how)) == math.fsum(values)
    assert value(chunked(values, size, how)) == pytest.approx(7.485470860550345, abs=1e-15)


ordinary = st.floats(-1e3, 1e3)
anything = st.floats(allow_nan=False, allow_infinity=False).filter(lambda v: abs(v) < LIMIT)
mixed = st.one_of(
    ordinary, anything, st.floats(-1e-300, 1e-300), st.sampled_from([0.0, -0.0, 5e-324, 1.0])
)


@given(st.lists(ordinary, max_size=200))
def test_rounded_once(values: list[float]) -> None:
    """The nearest double to a sum that misses no more than the bound."""
    exact = sum(map(Fraction, values), Fraction(0))
    found = value(total(values))
    assert abs(Fraction(found) - exact) <= Fraction(math.ulp(found)) / 2 + Fraction(dropped(values))


@given(st.lists(st.integers(-(2**60), 2**60).map(lambda n: n * 2.0**-60), max_size=200))
def test_correctly_rounded(values: list[float]) -> None:
    """Digits above 2**-80 of the largest value are all kept, and give the result of `math.fsum`."""
    assert value(total(values)) == math.fsum(values) + 0.0


def reference(values: Iterable[float]) -> tuple[int, list[int]]:
    """Level and digit sums by their definition, in integers of any length."""
    good = [Fraction(v) for v in values]
    level = LEVEL_MIN
    while any(abs(v) >= Fraction(2) ** (40 * (level + 1) - 1) for v in good):
        level += 1
    sums = []
    for j in range(level, level - 3, -1):
        unit = Fraction(2) ** (40 * j)
        digits = [round(v / unit) for v in good]  # half to even
        good = [v - d * unit for v, d in zip(good, digits, strict=True)]
        sums.append(sum(digits))
    return level, sums


@settings(max_examples=200, deadline=None)
@given(st.lists(mixed, max_size=30))
def test_state_is_the_definition(values: list[float]) -> None:
    """The digits of each number depend on it alone."""
    level, sums = reference(values)
    state = total(values)
    assert state.levels.tolist() == [level]
    assert [(int(h) << 26) + int(low) for h, low in state.words[0]] == sums
    assert state.count == len(values)
    tiles = Accumulator(1)
    tiles.add_tiles(np.array([values], dtype=float).reshape(1, -1), 0)
    assert total(values, "compiled") == tiles


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=300))
def test_lane_sums_keep_their_errors(values: list[float]) -> None:
    """AC-04: what a lane sum of the first row rounds off is added as well."""
    rows = np.array([values])
    lanes = lane_sums(rows).reshape(-1, 2, LANES)
    for k in range(LANES):
        exact = sum(map(Fraction, values[k::LANES]), Fraction(0))
        found = sum((Fraction(x) for x in lanes[:, :, k].ravel().tolist()), Fraction(0))
        assert abs(found - exact) <= Fraction(2) ** -95 * sum(map(abs, map(Fraction, values)))


@settings(max_examples=100, deadline=None)
@given(st.lists(mixed, max_size=60), st.randoms(use_true_random=False), st.data())
def test_order_partition_and_merge_do_not_matter(
    values: list[float], order: random.Random, data: st.DataObject
) -> None:
    """DK-15: states are equal as integers, however the events were dealt out."""
    for how in ADDERS:
        shuffled = [v for v in values if how == "add_rows" or abs(v) < TILE_LIMIT]
        expected = total(shuffled)
        order.shuffle(shuffled)
        states = [Accumulator(1) for _ in range(data.draw(st.integers(1, 5)))]
        for number in shuffled:
            add(order.choice(states), [number], 0, how)
        while len(states) > 1:
            order.shuffle(states)
            other = states.pop()
            states[-1].merge(other)
        assert states[0] == expected
        assert value(states[0]).hex() == value(expected).hex()


@pytest.mark.parametrize("how", ADDERS)
@pytest.mark.parametrize("where", [0, 1, 1300, 2598, 2599])
def test_one_large_number_among_many(how: str, where: int) -> None:
    """The level rises once, at any time, with the same result."""
    values = np.random.default_rng(3).normal(size=2600)
    values[where] = 1e100
    moved = np.roll(values, 77)
    assert total(values, how) == total(moved, how) == chunked(values.tolist(), 100, how)
    assert total(values, how).levels[0] == 8


@pytest.mark.parametrize("how", ADDERS)
def test_every_level(how: str) -> None:
    """From the smallest subnormal to the limit, each number alone comes back exactly."""
    limit, top = (LIMIT, 999) if how == "add_rows" else (TILE_LIMIT, 989)
    for exponent in range(-1074, top):
        number = math.ldexp(1.0, exponent)
        assert value(total([number], how)) == number
        assert value(total([-number * 0.75 if exponent > -1072 else -number], how)) < 0
    edge = math.nextafter(limit, 0)
    assert value(total([edge], how)) == edge
    assert total([edge], how).levels[0] == LEVEL_MAX


@pytest.mark.parametrize("how", ADDERS)
def test_subnormals(how: str) -> None:
    values = [5e-324] * 1000 + [-1e-310, 2.5e-320]
    assert value(total(values, how)) == math.fsum(values)
    assert total(values, how).levels[0] == LEVEL_MIN


@pytest.mark.parametrize("how", ADDERS)
@pytest.mark.parametrize("values", [[-0.0], [0.0, -0.0], [1.0, -1.0], [], [-5e-324, 5e-324]])
def test_zero_is_positive(how: str, values: list[float]) -> None:
    result = value(total(values, how))
    assert result == 0
    assert math.copysign(1, result) == 1


@pytest.mark.parametrize("how", ADDERS)
def test_large_numbers(how: str) -> None:
    rng = np.random.default_rng(8)
    size = 1e300 if how == "add_rows" else 1e296
    values = np.concatenate([rng.normal(size=500) * size, rng.normal(size=500) * size * 1e-15])
    assert value(total(values, how)) == math.fsum(values)


@pytest.mark.parametrize("how", ADDERS)
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_beyond_the_range_are_infinite(how: str, sign: int) -> None:
    largest = sign * math.nextafter(LIMIT if how == "add_rows" else TILE_LIMIT, 0)
    state = total([largest] * 2000, how)
    assert value(state) == 2000 * largest
    for _ in range(35):
        state.merge(Accumulator.from_bytes(state.to_bytes()))
    assert value(state) == sign * math.inf
    assert state.count == 2000 * 2**35


@pytest.mark.parametrize("how", ADDERS)
@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf, LIMIT, -LIMIT])
def test_bad_values(how: str, bad: float) -> None:
    """T-06, T-08: located, never summed."""
    state = Accumulator(1)
    add(state, [1.0, bad, 2.0, bad], 100, how)
    assert (state.count, state.first_bad, value(state)) == (2, 101, 3.0)
    earlier = Accumulator(1)
    add(earlier, [bad], 50, how)
    later = Accumulator(1)
    add(later, [4.0, bad], 200, how)
    state.merge(later)
    assert state.first_bad == 101
    state.merge(earlier)
    assert (state.count, state.first_bad, value(state)) == (3, 50, 7.0)


def test_a_bad_event_is_left_out_of_every_sum() -> None:
    rows = np.array([[1.0, 2.0, 4.0], [1.0, math.nan, 1.0], [1e200, 1e250, 0.0]])
    state, expected = Accumulator(3), Accumulator(3)
    state.add_rows(rows, 0)
    expected.add_rows(rows[:, [0, 2]], 0)
    np.testing.assert_array_equal(state.round(), [5.0, 2.0, 1e200])
    np.testing.assert_array_equal(state.levels, expected.levels)
    assert state.first_bad == 1


def test_sums_are_independent() -> None:
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(4, 3000)) * np.array([[1e-200], [1.0], [1e50], [0.0]])
    state = Accumulator(4)
    for start in range(0, 3000, 500):
        state.add_rows(rows[:, start : start + 500], start)
    np.testing.assert_array_equal(state.round(), [math.fsum(row) for row in rows])
    assert len(state) == 4


@given(st.lists(mixed, max_size=20), st.lists(mixed, max_size=20))
def test_record_round_trip(first: list[float], second: list[float]) -> None:
    state = total([*first, math.nan])
    again = Accumulator.from_bytes(state.to_bytes())
    assert again == state
    assert (again.count, again.first_bad) == (state.count, state.first_bad)
    state.merge(total(second))
    again.merge(Accumulator.from_bytes(total(second).to_bytes()))
    assert again == state
    assert len(state.to_bytes()) == 8 * (3 + 7)


def test_record_after_round_trip_works_in_compiled_code() -> None:
    state = Accumulator.from_bytes(total([1.0, 2.0]).to_bytes())
    add(state, [1e200, 4.0], 2, "compiled")
    assert state == total([1.0, 2.0, 1e200, 4.0])


@pytest.mark.parametrize("size", [8, 64, 88])
def test_damaged_records(size: int) -> None:
    record = total([1.0]).to_bytes()
    with pytest.raises(ld.LadduError, match="does not hold 1 sums"):
        Accumulator.from_bytes((record * 2)[:size])


def test_different_sizes_do_not_merge() -> None:
    with pytest.raises(ld.LadduError, match="accumulators of 1 and 2 sums"):
        Accumulator(1).merge(Accumulator(2))


def test_merging_does_not_touch_the_other() -> None:
    small, large = total([1.0]), total([1e100])
    record = small.to_bytes()
    large.merge(small)
    assert small.to_bytes() == record
    same = total([2.0])
    other = total([3.0])
    before = other.to_bytes()
    same.merge(other)
    add(same, [1e50])
    assert other.to_bytes() == before


def test_equality_is_that_of_the_sums() -> None:
    """Words may carry differently; the integers are the state."""
    merged = total([0.5])
    for _ in range(100):
        merged.merge(total([0.5]))
    assert merged == total([0.5] * 101)
    assert merged != total([0.5] * 100)
    assert merged != total([50.5])  # one event instead of 101
    assert (merged == 3) is False
    with pytest.raises(TypeError):
        hash(merged)


def test_many_merges_do_not_overflow() -> None:
    state = total([math.nextafter(0.5, 0)] * 1000)
    for _ in range(30):
        state.merge(Accumulator.from_bytes(state.to_bytes()))
    assert value(state) == 1000 * math.nextafter(0.5, 0) * 2**30


def test_copies_share_nothing_and_go_on_by_themselves() -> None:
    """A copy, also of another process, is where machine code adds to it."""
    state = total([1.0, 2.0**-80], "compiled")
    for other in (copy.copy(state), copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert other == state
        add(other, [3.0], 2, "compiled")
        assert other.round() == [4.0]
        assert (other.count, state.count) == (3, 2)


@pytest.mark.parametrize("events", [0, 1, 1000, 2**33])
@pytest.mark.parametrize("before", [[], [0.25, -3e200]])
def test_ones_are_added_at_once(events: int, before: list[float]) -> None:
    """The state that as many single ones leave, merged and rounded as they are."""
    found, other = Accumulator(2), Accumulator(2)
    for sums in (found, other):
        sums.add_rows(np.array([before, before]), 0)
    found.add_ones(events)
    if events < 10_000:
        other.add_rows(np.ones((2, events)), len(before))
        assert found == other
    assert found.count == len(before) + events
    if not before:
        assert found.round() == [events, events]
