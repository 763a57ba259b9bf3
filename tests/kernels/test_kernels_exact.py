"""Numbers without rounding: integers times powers of two, against fractions and mpmath."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laddu_dask.kernels import Accumulator
from laddu_dask.kernels.exact import NOTHING, Exact, log_ratio

DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(min_value=5e-324, allow_infinity=False)


def fraction(number: Exact) -> Fraction:
    return Fraction(number.integer) * Fraction(2) ** number.exponent


@given(DOUBLES, DOUBLES, DOUBLES)
def test_arithmetic_is_that_of_fractions(a: float, b: float, c: float) -> None:
    x, y, z = map(Exact.of, (a, b, c))
    found = x.times(y).minus(z).plus(x)
    assert fraction(found) == Fraction(a) * Fraction(b) - Fraction(c) + Fraction(a)


@given(DOUBLES, DOUBLES)
def test_one_rounding(a: float, b: float) -> None:
    """To the nearest double also where the sum of doubles is subnormal or rounds twice."""
    try:
        nearest = float(Fraction(a) * 3 + Fraction(b))
    except OverflowError:
        nearest = math.inf if Fraction(a) * 3 + Fraction(b) > 0 else -math.inf
    assert Exact.of(a).times(Exact(3, 0)).plus(Exact.of(b)).round() == nearest


@given(DOUBLES)
def test_a_double_is_itself(a: float) -> None:
    assert Exact.of(a).round() == a
    assert math.copysign(1.0, Exact.of(-0.0).round()) == 1.0


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_no_infinities(bad: float) -> None:
    with pytest.raises((OverflowError, ValueError)):
        Exact.of(bad)


@given(POSITIVE, POSITIVE)
def test_logarithm_of_a_quotient(a: float, b: float) -> None:
    """Two units in the last place, and the sign alone changes when the numbers are exchanged."""
    found = log_ratio(Exact.of(a), Exact.of(b))
    with mpmath.workdps(60):
        truth = mpmath.log(mpmath.mpf(a) / mpmath.mpf(b))
        assert abs(found - truth) <= 2 * math.ulp(float(truth))
    assert log_ratio(Exact.of(b), Exact.of(a)) == -found
    assert log_ratio(Exact.of(a), Exact.of(a)) == 0.0


@given(st.floats(1e-3, 1e3), st.integers(1, 10**6))
def test_logarithm_of_a_quotient_near_one(a: float, steps: int) -> None:
    """Also where both have the same nearest double."""
    one = Exact.of(a)
    other = one.plus(Exact(steps, one.exponent - 80))
    with mpmath.workdps(80):
        truth = mpmath.log(mpmath.fdiv(other.integer, one.integer << 80))
        truth += (other.exponent - one.exponent + 80) * mpmath.log(2)
        assert abs(log_ratio(other, one) - truth) <= 2 * math.ulp(float(truth))


def test_an_accumulator_before_its_rounding() -> None:
    """AC-03: the difference of two sums that round to the same double."""
    rng = np.random.default_rng(7)
    rows = rng.integers(-(2**40), 2**40, size=(2, 5000)) * 2.0**-20
    rows[0, :2] = 2.0**60, -1.0
    total, shifted = Accumulator(2), Accumulator(2)
    total.add_rows(rows, 0)
    for row, sums in enumerate(rows):
        assert fraction(total.exact(row)) == sum(map(Fraction, sums.tolist()))
    rows[0, 1] += 2.0**-10
    shifted.add_rows(rows, 0)
    assert shifted.round()[0] == total.round()[0]
    assert shifted.exact(0).minus(total.exact(0)).round() == 2.0**-10
    assert Accumulator(1).exact(0).plus(NOTHING).round() == 0.0


@given(st.lists(st.floats(-1e30, 1e30), max_size=20))
def test_rounding_is_the_same_on_both_ways(values: list[float]) -> None:
    total = Accumulator(1)
    total.add_rows(np.array([values]).reshape(1, -1), 0)
    assert total.exact(0).round() == total.round()[0]
