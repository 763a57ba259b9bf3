"""The evaluator that the tests of all rooms trust."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from oracle import evaluate

from laddu_dask.expr import (
    Expr,
    atan2,
    complex,
    dot,
    matrix,
    parameter,
    polar_complex,
    scalar,
    vector,
    where,
)

X, Y = scalar("x"), scalar("y")
COLUMNS = {"x": np.array([-2.0, 0.5, 3.0]), "y": np.array([1.0, -4.0, 0.25])}
Z = complex(X, Y)
z = COLUMNS["x"] + 1j * COLUMNS["y"]


def test_scalar_expression_of_the_conformance_cases() -> None:
    a, b = parameter("a"), parameter("b")
    at = {"a": 1.3, "b": -0.7}
    expr = (
        ((a * b).exp() + 1j * a.sin() * b.cos()).norm_sqr() / (a**2 + 2)
        + atan2(a, b)
        + complex(a, b).sqrt().real()
        + complex(a, b).log().imag()
    )
    assert evaluate(expr, {}, at)[0] == pytest.approx(2.940130470841414, rel=1e-14)
    w = complex(a, b)
    expected = 0.5020761245674741 - 1.241107266435986j
    assert evaluate(w**3 / (w + 1), {}, at)[0] == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (Z + 2, z + 2),
        (2 - Z, 2 - z),
        (-Z, -z),
        (Z * Z.conj(), abs(z) ** 2),
        (1 / Z, 1 / z),
        (Z / X, z / z.real),
        (Z**0, np.ones(3)),
        (Z**5, z**5),
        (Z**-3, z**-3.0),
        (X**-2, z.real**-2.0),
        (Z.exp(), np.exp(z)),
        (Z.sin(), np.sin(z)),
        (Z.cos(), np.cos(z)),
        (Z.log(), np.log(z)),
        (Z.sqrt(), np.sqrt(z)),
        (X.sqrt(), np.sqrt(z.real + 0j)),
        (X.log(), np.log(z.real + 0j)),
        ((X * X).sqrt(), abs(z.real)),
        (Z.real(), z.real),
        (Z.imag(), z.imag),
        (X.imag(), np.zeros(3)),
        (Z.norm_sqr(), abs(z) ** 2),
        (X.norm_sqr(), z.real**2),
        (atan2(Y, X), np.angle(z)),
        ((X / 4).acos(), np.arccos(z.real / 4)),
        (polar_complex(X, Y), z.real * np.exp(1j * z.imag)),
        (Z.named("Z").tagged("wave"), z),
        (where(X < Y, Z, X), np.where(z.real < z.imag, z, z.real)),
        (where((X < 1) & ~(Y <= 0) | (X == 3), 1, Y), [1, -4, 1]),
        (where(X != 0.5, 1, 0), [1, 0, 1]),
        (vector([X, Z])[-1], z),
        (dot(vector([X, Z]), vector([Z, 2])), z.real * z + 2 * z),
        ((matrix([[X, 1], [Z, Y]]) @ vector([1, Z]))[1], z + z.imag * z),
        (matrix([[X, 1], [Z, Y]]).at(1, 0), z),
    ],
)
def test_operations(expr: Expr, expected: Any) -> None:
    np.testing.assert_allclose(evaluate(expr, COLUMNS), expected, rtol=1e-14, atol=1e-15)


def test_shapes() -> None:
    assert evaluate(parameter("a"), {}, {"a": 2}).shape == (1,)
    assert evaluate(parameter("a") + X, COLUMNS, {"a": 2}).shape == (3,)
    assert evaluate(vector([1, 2]), COLUMNS).shape == (2, 1)
    product = matrix([[X, 1], [Z, Y]]) @ matrix([[1, 0, Z], [X, 1, 2]])
    value = evaluate(product, COLUMNS)
    assert value.shape == (2, 3, 3)
    np.testing.assert_allclose(value[1, 2], z * z + 2 * z.imag)
    assert evaluate(X, {"x": np.zeros(0)}).shape == (0,)
    assert evaluate(X < Y, COLUMNS).dtype == bool


def test_real_values_stay_real() -> None:
    """A real infinity is not spoiled by an imaginary part that it does not have."""
    infinite = evaluate(Z * (1 / (X - X)), {"x": [2.0], "y": [3.0]})[0]
    assert infinite.real == infinite.imag == math.inf
    (below,) = evaluate((-1.0 * complex(X, Y)).sqrt(), {"x": [4.0], "y": [0.0]})
    assert below == -2j


def test_comparisons_with_nan_are_false() -> None:
    columns = {"x": [math.nan], "y": [1.0]}
    for condition in (X < Y, X <= Y, X > Y, X >= Y, X == Y, X != Y):
        assert not evaluate(condition, columns)[0]


def test_zero_to_the_zero_and_nan_to_the_zero() -> None:
    np.testing.assert_array_equal(evaluate(X**0, {"x": [0.0, math.nan]}), [1, 1])


def test_nothing_is_simplified() -> None:
    """D8: x/x, 0*x and x-x are NaN where they are."""
    columns = {"x": [0.0, math.inf, math.nan]}
    assert np.isnan(evaluate(X / X, columns)).all()
    assert np.isnan(evaluate(0 * X, columns)[1:].real).all()
    assert np.isnan(evaluate(X - X, columns)[1:].real).all()


def test_parameters() -> None:
    fixed = parameter("f", fixed=3.0)
    assert evaluate(fixed)[0] == 3
    assert evaluate(fixed, {}, {"f": 4.0})[0] == 4
    with pytest.raises(KeyError, match="a"):
        evaluate(parameter("a"))
    with pytest.raises(KeyError, match="x"):
        evaluate(X)


def test_deep_graphs() -> None:
    expr = X
    for _ in range(20_000):
        expr = expr + 1
    np.testing.assert_array_equal(evaluate(expr, COLUMNS), COLUMNS["x"] + 20_000)
