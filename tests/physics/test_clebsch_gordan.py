"""Clebsch-Gordan coefficients and 3j symbols: exact rationals under one correctly rounded root.

Numbers given without another source come from SymPy's exact coefficients, evaluated to 50 digits.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laddu_dask.errors import ExpressionError
from laddu_dask.physics import clebsch_gordan, clebsch_gordan_signed_square, wigner_3j
from laddu_dask.physics.clebsch_gordan import signed_root

HALF = Fraction(1, 2)


def cg(*labels: Any) -> float:
    return clebsch_gordan(**dict(zip(("j1", "m1", "j2", "m2", "j", "m"), labels, strict=True)))


def exact(*labels: Any) -> Fraction:
    names = ("j1", "m1", "j2", "m2", "j", "m")
    return clebsch_gordan_signed_square(**dict(zip(names, labels, strict=True)))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ((HALF, HALF, HALF, -HALF, 0, 0), math.sqrt(0.5)),
        ((0.5, -0.5, 0.5, 0.5, 0, 0), -math.sqrt(0.5)),
        ((1, 0, 1, 0, 0, 0), -0.5773502691896257),
        ((1, 0, 0.5, 0.5, 0.5, 0.5), -0.5773502691896257),
        ((2, 1, 1, -1, 3, 0), 0.4472135954999579),
        ((10, 3, 9, -2, 12, 1), 0.27859332304611567),
        ((40, 3, 40, -2, 40, 1), 0.06731712484114054),
        ((70, 10, 65, -10, 30, 0), 0.09662307219467947),
        ((60.5, 2.5, 60, -2, 40.5, 0.5), 0.07581517682085087),
    ],
)
def test_known_values(labels: tuple[Any, ...], expected: float) -> None:
    """Conventions 2.7 and, at high j, D2: to the last bit, so 1/sqrt(3) ends in 57."""
    assert cg(*labels) == expected


@pytest.mark.parametrize(
    "labels",
    [(1, 0, 1, 0, 1, 0), (2, 0, 2, 0, 3, 0), (12, 0, 11, 0, 10, 0)],
)
def test_zero_projections_with_an_odd_sum_vanish(labels: tuple[int, ...]) -> None:
    """D2."""
    assert cg(*labels) == 0


def test_what_cannot_couple_is_zero() -> None:
    assert cg(1, 1, 1, 0, 2, 0) == 0  # m1 + m2 != m
    assert cg(1, 1, 1, -1, 3, 0) == 0  # outside the triangle
    assert cg(1, 1, HALF, HALF, 1, 1) == 0  # a sum that is not whole
    assert wigner_3j(j1=1, j2=1, j3=3, m1=0, m2=0, m3=0) == 0


couplings = st.tuples(st.integers(0, 12), st.integers(0, 12))


@given(couplings)
@settings(max_examples=15, deadline=None)
def test_orthogonality(doubled: tuple[int, int]) -> None:
    """The matrix from ``m1 m2`` to ``j m`` is orthogonal, so its rows and columns are unit."""
    two_j1, two_j2 = doubled
    j1, j2 = Fraction(two_j1, 2), Fraction(two_j2, 2)
    pairs = [(k - j1, n - j2) for k in range(two_j1 + 1) for n in range(two_j2 + 1)]
    total = [abs(j1 - j2) + k for k in range(min(two_j1, two_j2) + 1)]
    states = [(j, k - j) for j in total for k in range(int(2 * j) + 1)]
    matrix = np.array([[cg(j1, m1, j2, m2, j, m) for m1, m2 in pairs] for j, m in states])
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(len(states)), atol=1e-14)
    for m1, m2 in pairs[:3]:
        assert sum(abs(exact(j1, m1, j2, m2, j, m)) for j, m in states) == 1


@st.composite
def labels(draw: st.DrawFn) -> tuple[Fraction, ...]:
    two_j1, two_j2 = draw(st.integers(0, 30)), draw(st.integers(0, 30))
    k = draw(st.integers(0, min(two_j1, two_j2)))
    two_j = abs(two_j1 - two_j2) + 2 * k
    two_m1 = two_j1 - 2 * draw(st.integers(0, two_j1))
    two_m2 = two_j2 - 2 * draw(st.integers(0, two_j2))
    doubled = (two_j1, two_m1, two_j2, two_m2, two_j, two_m1 + two_m2)
    return tuple(Fraction(value, 2) for value in doubled)


@given(labels())
@settings(max_examples=50, deadline=None)
def test_symmetries(chosen: tuple[Fraction, ...]) -> None:
    """Exchange, reflection and the cyclic symmetry of the 3j symbol, exactly."""
    j1, m1, j2, m2, j, m = chosen
    if abs(m) > j:
        with pytest.raises(ExpressionError, match=r"\|m\| <= j"):
            cg(*chosen)
        return
    sign = (-1) ** int(j1 + j2 - j)
    assert exact(j2, m2, j1, m1, j, m) == sign * exact(*chosen)
    assert exact(j1, -m1, j2, -m2, j, -m) == sign * exact(*chosen)
    symbol = wigner_3j(j1=j1, j2=j2, j3=j, m1=m1, m2=m2, m3=-m)
    assert wigner_3j(j1=j2, j2=j, j3=j1, m1=m2, m2=-m, m3=m1) == symbol
    odd = (-1) ** int(j1 + j2 + j)
    assert wigner_3j(j1=j2, j2=j1, j3=j, m1=m2, m2=m1, m3=-m) == odd * symbol
    assert abs(cg(*chosen)) <= 1


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        ((2, 6, 4, 0, 0, 0), 0.18698939800169143),
        ((1.5, 2, 2.5, 0.5, 1, -1.5), 0.06900655593423542),
        ((20, 15, 10, 3, -4, 1), -0.01004478522881284),
    ],
)
def test_wigner_3j(symbol: tuple[Any, ...], expected: float) -> None:
    names = ("j1", "j2", "j3", "m1", "m2", "m3")
    assert wigner_3j(**dict(zip(names, symbol, strict=True))) == expected


@given(st.fractions(min_value=-(10**30), max_value=10**30))
@settings(max_examples=100, deadline=None)
def test_roots_are_correctly_rounded(value: Fraction) -> None:
    """The double found is nearer to the root than the midpoints to its neighbours."""
    root = signed_root(value)
    assert math.copysign(1, root) == (-1 if value < 0 else 1)
    size, square = abs(root), abs(value)
    if size == 0:
        assert square == 0
        return
    below = (Fraction(size) + Fraction(math.nextafter(size, 0))) / 2
    above = (Fraction(size) + Fraction(math.nextafter(size, math.inf))) / 2
    assert below**2 <= square <= above**2


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ((-1, 0, 1, 0, 1, 0), "j1 >= 0"),
        ((1, 2, 1, 0, 1, 0), r"\|m1\| <= j1"),
        ((1, 0, 1, 0.5, 1, 0), "j2 and m2 must both be whole or both half-integer"),
        ((1, 0, 1, 0, 0.3, 0), "j must be an integer or half-integer"),
        ((1, 0, 1, float("nan"), 1, 0), "m2 must be an integer or half-integer"),
    ],
)
def test_labels_that_mean_nothing(bad: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        cg(*bad)


def test_labels_that_are_no_numbers() -> None:
    with pytest.raises(TypeError, match="fixed integer or half-integer"):
        cg("1", 0, 1, 0, 1, 0)
