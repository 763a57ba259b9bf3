"""Shapes between fixed knots with free values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from oracle import evaluate

import laddu_dask as ld
from laddu_dask.expr import Expr, complex, parameter, scalar

X = scalar("x")
KNOTS = [0.0, 1.0, 1.5, 3.0, 4.0]
VALUES = [1.0, -2.0, 0.5, 3.0, -1.0]
NAMES = ["v0", "v1", "v2", "v3", "v4"]
FREE = [parameter(name) for name in NAMES]
POINT = dict(zip(NAMES, VALUES, strict=True))


def at(expr: Expr, *x: float, **values: float) -> Any:
    return evaluate(expr, {"x": np.array(x)}, POINT | values)


def test_steps() -> None:
    """Lower edges belong to their interval, and the last upper edge as well."""
    x = [-0.1, 0.0, 0.99, 1.0, 1.4, 1.5, 2.0, 3.0, 4.0, 4.1]
    inside = [1.0, 1.0, -2.0, -2.0, 0.5, 0.5, 3.0, 3.0]
    for values in (VALUES[:4], FREE[:4]):
        expr = ld.piecewise_constant(X, edges=KNOTS, values=values)
        assert expr.is_real
        np.testing.assert_array_equal(at(expr, *x), [0, *inside, 0])
        held = ld.piecewise_constant(X, edges=KNOTS, values=values, outside="hold")
        np.testing.assert_array_equal(at(held, *x), [1, *inside, 3])
    single = ld.piecewise_constant(X, edges=[0.0, 1.0], values=[7.0], outside="hold")
    np.testing.assert_array_equal(at(single, -5.0, 0.5, 5.0), [7, 7, 7])


def test_lines() -> None:
    x = [-0.1, 0.0, 0.25, 1.0, 1.3, 1.5, 2.5, 3.0, 3.75, 4.0, 4.1]
    for values in (VALUES, FREE):
        for outside, ends in (("zero", (0.0, 0.0)), ("hold", (1.0, -1.0))):
            expr = ld.piecewise_linear(X, knots=KNOTS, values=values, outside=outside)
            assert expr.is_real
            expected = [ends[0], *np.interp(x[1:-1], KNOTS, VALUES), ends[1]]
            np.testing.assert_allclose(at(expr, *x), expected, rtol=1e-14, atol=1e-15)


def test_splines() -> None:
    """Numbers of an independent implementation, natural and clamped."""
    x = [0.0, 0.3, 1.0, 1.2, 2.9, 4.0]
    natural = [1.0, -0.6669375000000001, -2.0, -1.1978076923076926, 3.1983952991452997, -1.0]
    clamped = [1.0, 0.37266029411764695, -2.0, -1.3252352941176475, 3.3368056644880175, -1.0]
    for values in (VALUES, FREE):
        expr = ld.cubic_spline(X, knots=KNOTS, values=values)
        np.testing.assert_allclose(at(expr, *x), natural, rtol=1e-13)
        expr = ld.cubic_spline(X, knots=KNOTS, values=values, slopes=(0.7, -0.2))
        np.testing.assert_allclose(at(expr, *x), clamped, rtol=1e-13)
        np.testing.assert_array_equal(at(expr, -1.0, 5.0), [0, 0])
        expr = ld.cubic_spline(X, knots=KNOTS, values=values, outside="hold")
        np.testing.assert_array_equal(at(expr, -1.0, 5.0), [1, -1])


def test_two_knots() -> None:
    """A natural spline is a line, a clamped one the cubic of Hermite."""
    line = ld.cubic_spline(X, knots=[1.0, 3.0], values=[2.0, 5.0])
    np.testing.assert_allclose(at(line, 1.0, 2.5, 3.0), [2, 4.25, 5], rtol=1e-15)
    cubic = ld.cubic_spline(X, knots=[1.0, 3.0], values=[1.0, 27.0], slopes=(3.0, 27.0))
    np.testing.assert_allclose(at(cubic, 1.0, 1.7, 2.2, 3.0), np.array([1, 1.7, 2.2, 3]) ** 3)


@pytest.mark.parametrize("shape", [ld.piecewise_linear, ld.cubic_spline])
def test_exact_at_knots_and_nan(shape: Any) -> None:
    """Also where the neighbours are twenty orders larger; a NaN is not somewhere outside."""
    values = [1.0, 1e20, 0.3, 1e20, 7.0]
    for outside in ("zero", "hold"):
        expr = shape(X, knots=KNOTS, values=values, outside=outside)
        np.testing.assert_array_equal(at(expr, *KNOTS), values)
        steps = ld.piecewise_constant(X, edges=KNOTS, values=values[:4], outside=outside)
        assert np.isnan(at(expr, math.nan).real).all()
        assert np.isnan(at(steps, math.nan).real).all()


def test_complex_values_and_phases() -> None:
    """Real and imaginary parts, or magnitude and phase, each interpolated for itself."""
    parts = [0.5, 0.1, -0.3, 2.0, 1.0]
    cartesian = [complex(v, p) for v, p in zip(FREE, parts, strict=True)]
    x = [0.4, 1.2, 2.0, 4.0]
    for shape in (ld.piecewise_linear, ld.cubic_spline):
        first, second = (at(shape(X, knots=KNOTS, values=v), *x).real for v in (VALUES, parts))
        found = at(shape(X, knots=KNOTS, values=cartesian), *x)
        np.testing.assert_allclose(found, first + 1j * second, rtol=1e-13)
        found = at(shape(X, knots=KNOTS, values=FREE, phases=parts), *x)
        np.testing.assert_allclose(found, first * np.exp(1j * second), rtol=1e-13)
    steps = ld.piecewise_constant(X, edges=KNOTS, values=FREE[:4], phases=parts[:4])
    assert at(steps, 1.2)[0] == pytest.approx(-2 * np.exp(0.1j), rel=1e-15)
    bent = ld.cubic_spline(X, knots=KNOTS, values=FREE, phases=parts, phase_slopes=(0.0, 1.0))
    turned = at(ld.cubic_spline(X, knots=KNOTS, values=parts, slopes=(0.0, 1.0)), *x).real
    size = at(ld.cubic_spline(X, knots=KNOTS, values=VALUES), *x).real
    np.testing.assert_allclose(at(bent, *x), size * np.exp(1j * turned), rtol=1e-13)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_values_are_free(backend: str) -> None:
    """The derivative by a value is its weight, what the shape of a unit vector is."""
    slope = parameter("slope")
    spline = ld.cubic_spline(X, knots=KNOTS, values=FREE, slopes=(slope, 0.0))
    lines = ld.piecewise_linear(X, knots=KNOTS, values=FREE, outside="hold")
    steps = ld.piecewise_constant(X, edges=KNOTS, values=FREE[:4])
    expr = spline + 2 * lines - 3 * steps
    model = ld.Model(expr)
    x = [-0.5, 0.0, 0.7, 1.5, 2.2, 3.9, 4.0, 4.5]
    events = ld.Dataset.from_arrays(scalars={"x": np.array(x)})
    point = POINT | {"slope": 0.4}
    execution = ld.Execution(backend=backend)
    values, gradient = model.value_and_gradient(events, point, execution)
    np.testing.assert_allclose(values, at(expr, *x, slope=0.4).real, rtol=1e-13, atol=1e-14)
    for column, name in enumerate(model.parameter_names):
        unit = {other: float(other == name) for other in point}
        weight = at(expr, *x, **unit).real
        np.testing.assert_allclose(gradient[:, column], weight, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda: ld.piecewise_linear(X, knots=[0, 1, 1], values=FREE[:3]), "knots must rise"),
        (lambda: ld.piecewise_linear(X, knots=[0], values=FREE[:1]), "two or more fixed"),
        (lambda: ld.cubic_spline(X, knots=[0, math.inf], values=FREE[:2]), "two or more fixed"),
        (lambda: ld.cubic_spline(X, knots=[0, FREE[0]], values=FREE[:2]), "two or more fixed"),
        (lambda: ld.cubic_spline(X, knots=[0, 1], values=FREE[:3]), "needs 2 values, got 3"),
        (
            lambda: ld.cubic_spline(X, knots=[0, 1], values=FREE[:2], phases=FREE[:1]),
            "needs 2 phases, got 1",
        ),
        (
            lambda: ld.cubic_spline(X, knots=[0, 1], values=FREE[:2], phase_slopes=(0, 0)),
            "phase_slopes need phases",
        ),
        (lambda: ld.piecewise_constant(X, edges=[0, 1], values=FREE[:2]), "needs 1 values, got 2"),
        (
            lambda: ld.piecewise_linear(X.sqrt(), knots=[0, 1], values=FREE[:2]),
            "x must be real",
        ),
        (
            lambda: ld.piecewise_linear(X, knots=[0, 1], values=FREE[:2], outside="nan"),
            "outside must be 'zero' or 'hold', got 'nan'",
        ),
    ],
)
def test_impossible_arguments(build: Any, problem: str) -> None:
    with pytest.raises(ld.ExpressionError, match=problem):
        build()
