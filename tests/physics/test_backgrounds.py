"""Exponential and polynomial backgrounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.polynomial import chebyshev, legendre
from oracle import evaluate

import laddu_dask as ld
from laddu_dask.expr import Expr, parameter, scalar

X = scalar("x")
NAMES = ["c0", "c1", "c2", "c3", "c4", "c5"]
FREE = [parameter(name) for name in NAMES]
NUMBERS = [0.7, -1.0, 0.25, 2.0, -0.5, 0.125]
POINT = dict(zip(NAMES, NUMBERS, strict=True))
#: Beyond both ends too: polynomials go on.
POINTS = [0.5, 1.0, 1.6, 2.2, 3.0, 3.5]
T = np.array([-1.5, -1.0, -0.4, 0.2, 1.0, 1.5])


def at(expr: Expr, *x: float, **values: float) -> Any:
    found = evaluate(expr, {"x": np.array(x)}, POINT | values)
    return np.broadcast_to(found, len(x))  # of degree 0 there is no x in it


def test_exponential() -> None:
    expr = ld.exponential(X, slope=parameter("k"), origin=1.5)
    assert expr.is_real
    found = at(expr, 1.5, 2.5, -1.0, k=-0.8)
    np.testing.assert_allclose(found, [1, 0.4493289641172216, math.exp(2)], rtol=1e-15)
    assert at(ld.exponential(X, slope=2.0), 0.5)[0] == pytest.approx(math.e, rel=1e-15)


def test_one_polynomial() -> None:
    """T_5(0.3) = 0.99888, P_5(0.3) = 0.34538625, B_2 of degree 5 at 0.3 is 0.3087."""
    unit = [0.0] * 5 + [1.0]
    ends = {"low": -1.0, "high": 1.0}
    assert at(ld.chebyshev(X, coefficients=unit, **ends), 0.3)[0] == pytest.approx(0.99888, 1e-14)
    assert at(ld.legendre(X, coefficients=unit, **ends), 0.3)[0] == pytest.approx(0.34538625, 1e-14)
    bump = ld.bernstein(X, coefficients=[0, 0, 1, 0, 0, 0], low=0.0, high=1.0)
    assert at(bump, 0.3)[0] == pytest.approx(0.3087, rel=1e-14)


@pytest.mark.parametrize("degree", range(6))
def test_series(degree: int) -> None:
    n, ends = degree + 1, {"low": 1.0, "high": 3.0}
    for given in (FREE[:n], NUMBERS[:n]):
        found = at(ld.chebyshev(X, coefficients=given, **ends), *POINTS)
        np.testing.assert_allclose(found, chebyshev.chebval(T, NUMBERS[:n]), rtol=1e-13)
        found = at(ld.legendre(X, coefficients=given, **ends), *POINTS)
        np.testing.assert_allclose(found, legendre.legval(T, NUMBERS[:n]), rtol=1e-13)
        found = at(ld.bernstein(X, coefficients=given, **ends), *POINTS)
        u = (1 + T) / 2
        terms = [math.comb(degree, k) * u**k * (1 - u) ** (degree - k) for k in range(n)]
        np.testing.assert_allclose(found, np.array(NUMBERS[:n]) @ terms, rtol=1e-13)
        np.testing.assert_array_equal(found[[1, 4]].real, [NUMBERS[0], NUMBERS[degree]])


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_coefficients_are_free(backend: str) -> None:
    """The derivative by a coefficient is its polynomial, that by the slope of an exponential x."""
    ends = {"low": 1.0, "high": 3.0}
    series = [
        shape(X, coefficients=FREE, **ends) for shape in (ld.chebyshev, ld.legendre, ld.bernstein)
    ]
    expr = series[0] + 2 * series[1] - 3 * series[2]
    tail = ld.exponential(X, slope=parameter("k"))
    model = ld.Model(expr + tail)
    events = ld.Dataset.from_arrays(scalars={"x": np.array(POINTS)})
    point = POINT | {"k": -0.8}
    execution = ld.Execution(backend=backend)
    values, gradient = model.value_and_gradient(events, point, execution)
    x = np.array(POINTS)
    np.testing.assert_allclose(values, at(expr, *POINTS).real + np.exp(-0.8 * x), rtol=1e-12)
    for column, name in enumerate(model.parameter_names):
        if name == "k":
            slope = x * np.exp(-0.8 * x)
        else:
            slope = at(expr, *POINTS, **{other: float(other == name) for other in NAMES}).real
        np.testing.assert_allclose(gradient[:, column], slope, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shape", [ld.chebyshev, ld.legendre, ld.bernstein])
def test_impossible_arguments(shape: Any) -> None:
    with pytest.raises(ld.ExpressionError, match="needs at least one coefficient"):
        shape(X, coefficients=[], low=0.0, high=1.0)
    for low, high in ((1.0, 1.0), (0.0, math.inf), (0.0, FREE[0])):
        with pytest.raises(ld.ExpressionError, match="fixed, finite ends with low < high"):
            shape(X, coefficients=[1.0], low=low, high=high)
