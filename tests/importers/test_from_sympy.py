"""Imported SymPy expressions against SymPy's own numbers, taken to 30 digits."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp
from compiled_runs import value_and_gradient
from hypothesis import given
from hypothesis import strategies as st
from oracle import evaluate
from sympy.physics.quantum.spin import Rotation

import laddu_dask as ld
from laddu_dask.expr.node import walk

x, y = sp.symbols("x y", real=True)
a = sp.Symbol("a")
i, k = sp.symbols("i k", integer=True)
half = sp.Rational(1, 2)
z = x + sp.I * y
POINTS = [(0.3, 0.7), (-0.6, 1.9), (1.4, -0.2)]
COLUMNS = {"x": np.array([p[0] for p in POINTS]), "y": np.array([p[1] for p in POINTS])}
VALUE = 1.3
s_wave = 1 / (a**2 - x**2 - sp.I * a * sp.sqrt(x**2 - y) / 3)


def imported(expr: Any) -> ld.Expr:
    return ld.from_sympy(expr, columns=["x", "y"], parameters={a: VALUE})


def by_sympy(expr: Any) -> list[complex]:
    """SymPy's values; a number is taken as the double it is."""
    found = []
    for point in POINTS:
        place = {x: sp.Float(point[0], 40), y: sp.Float(point[1], 40), a: sp.Float(VALUE, 40)}
        found.append(complex(expr.doit().subs(place).doit().evalf(30)))
    return found


EXPRESSIONS = [
    sp.Rational(1, 3) * x / y + sp.pi**2 * sp.I - sp.E + sp.EulerGamma,
    x**3 - 2 * y**-2 + (x * y) ** 5 / (a * y**3),
    sp.sqrt(x - 1) * y ** sp.Rational(-3, 2) + sp.sqrt(z) + 2**half,
    x ** (a + sp.I * y) + y ** sp.Rational(1, 3) + 2**x,
    sp.exp(x) * sp.log(x * y) + sp.log(x, 10) + sp.exp(sp.I * z),
    sp.sin(z) + sp.cos(x) * sp.tan(y) + sp.cot(x) - sp.sec(y) * sp.csc(x),
    sp.sinh(x) + sp.cosh(z) - sp.tanh(y),
    sp.acos(x / 2) + sp.asin(y / 3) + sp.atan(y) + sp.acos(z) + sp.asin(z) + sp.atan(2 * z),
    sp.atan2(y, x) + sp.arg(z**3),
    sp.Abs(sp.exp(z)) + sp.re(a * z) + sp.im(a * z) + sp.conjugate(a * z) ** 2,
    sp.Max(x, y, half) - sp.Min(x, y),
    sp.Piecewise((x, x < 0), (y**2, sp.And(x < 1, y > 0)), (sp.cos(x), True)),
    sp.Piecewise((1, sp.Or(sp.Eq(x, y), x >= 1)), (2, sp.Not(y <= 1)), (3, sp.Ne(x, y))),
    sp.Piecewise((x, sp.ITE(x < 0, y > 1, y < 0)), (y, True)),
    sp.Sum(x**k / sp.factorial(k), (k, 0, 8)),
    sp.Sum(i * x**k, (i, 0, k), (k, 1, 3)),
    sp.Product(x + k, (k, 1, 4)) + sp.Sum(x, (k, 3, 2)),
    sp.Matrix([[x, y], [y, a]]).inv()[0, 1],
    sp.MatMul(sp.ImmutableMatrix([[x, y], [1, a]]), sp.ImmutableMatrix([[y], [x]]))[1, 0],
    Rotation.D(2, 1, -2, x, y, a),
    Rotation.d(sp.Rational(5, 2), half, -3 * half, y),
    sp.Ynm(3, -2, sp.Abs(x), y) + sp.Ynm(2, 0, sp.Abs(x), y),
    s_wave * sp.conjugate(s_wave) + sp.re(s_wave),
]


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=[str(e)[:30] for e in EXPRESSIONS])
def test_values_are_those_of_sympy(expr: Any) -> None:
    found = evaluate(imported(expr), COLUMNS, {"a": VALUE})
    expected = np.array(by_sympy(expr))
    assert np.all(np.abs(found - expected) <= 1e-14 * np.abs(expected))


def test_compiled_gradient_is_the_derivative_that_sympy_takes() -> None:
    amplitude = s_wave + sp.exp(sp.I * a * y) * sp.sqrt(a * x + 2)
    for backend in ("interpreter", "cpu"):
        value, gradient = value_and_gradient(imported(amplitude), COLUMNS, {"a": VALUE}, backend)
        assert np.allclose(value, by_sympy(amplitude), rtol=1e-13, atol=0)
        assert np.allclose(gradient[0], by_sympy(amplitude.diff(a)), rtol=1e-12, atol=0)


@given(st.integers(-(10**25), 10**25), st.integers(1, 10**25))
def test_rationals_become_the_nearest_double(p: int, q: int) -> None:
    found = ld.from_sympy(sp.Rational(p, q)).node
    assert found.data == float(Fraction(p, q))


def test_constants_and_long_floats_are_rounded_once() -> None:
    numbers = {
        sp.pi: math.pi,
        sp.E: math.e,
        sp.GoldenRatio: 1.618033988749895,
        sp.Float("0.1", 40): 0.1,
        sp.Float("1.00000000000000011102230246251565405", 40): 1.0000000000000002,
        sp.Float("1.00000000000000011102230246251565403", 40): 1.0,
    }
    for number, double in numbers.items():
        assert ld.from_sympy(number).node.data == double
    assert ld.from_sympy(sp.I).node.data == 1j


def test_common_parts_are_one_node() -> None:
    expr = z
    for power in range(40):  # each stage holds the last one twice: 2**40 nodes if written out
        expr = sp.Add(sp.sin(expr), sp.Pow(expr, 3, evaluate=False), power, evaluate=False)
    assert len(list(walk(imported(expr).node))) < 300


def test_what_symbols_stand_for() -> None:
    f, t = sp.Function("f"), sp.Symbol("t")
    mass = ld.parameter("m", initial=0.7, bounds=(0.0, 2.0))
    expr = ld.from_sympy(f(t) ** 2 + a * x, symbols={f(t): mass, "a": 2, x: ld.scalar("s")})
    assert ld.Model(expr).parameters == (ld.Model(mass).parameters)
    assert evaluate(expr, {"s": np.array([3.0])}, {"m": 0.7})[0] == 0.7**2 + 6
    assert ld.Model(imported(a * x)).default_parameters.tolist() == [VALUE]


def test_matrices_keep_their_shape() -> None:
    expr = imported(sp.Matrix([[x, y, 1], [a, z, 0]]))
    assert expr.shape == (2, 3)
    assert evaluate(expr, COLUMNS, {"a": VALUE})[1, 1, 0] == 0.3 + 0.7j


def test_functions_clamp_where_cosines_are_rounded() -> None:
    found = evaluate(imported(sp.acos(x * sp.Rational(10, 3))), COLUMNS)
    assert np.allclose(found, [0.0, math.pi, 0.0], rtol=1e-15, atol=1e-7)


class Opens(sp.Expr):
    """An unevaluated expression, as ampform makes them."""

    def doit(self, **_: Any) -> Any:
        return self.args[0] ** 2 + 1


class OpensToItself(sp.Expr):
    """Opens to something that holds it again."""

    def doit(self, **_: Any) -> Any:
        return sp.Add(1, sp.sin(self), evaluate=False)


def test_unevaluated_expressions_are_opened() -> None:
    found = evaluate(imported(2 * Opens(x)), COLUMNS)
    assert np.allclose(found, 2 * (COLUMNS["x"] ** 2 + 1), rtol=1e-15, atol=0)
    with pytest.raises(ld.ExpressionError, match="contains itself"):
        imported(OpensToItself(x))


@pytest.mark.parametrize(
    ("expr", "node", "word"),
    [
        (sp.gamma(x), "gamma", "has no counterpart"),
        (sp.besselj(0, x) + 1, "besselj", "has no counterpart"),
        (sp.Integral(sp.exp(-(x**4) - x), (x, 0, y)), "Integral", "has no counterpart"),
        (sp.Function("f")(x), "f", "has no counterpart"),
        (sp.MatrixSymbol("A", 2, 2)[0, 1], "MatrixElement", "has no counterpart"),
        (x + sp.Symbol("b"), "Symbol", "stands for nothing"),
        (x + sp.Symbol("a", positive=True), "Symbol", "other assumptions"),
        (sp.Sum(x, (k, 0, a)), "Sum", "literal limits"),
        (sp.Sum(x**k, (k, 0, 10**6)), "Sum", "more than 10000 terms"),
        (sp.zoo, "ComplexInfinity", "no finite number"),
        (sp.oo + sp.I, "Infinity", "no double"),
        (sp.Integer(10) ** 400 + x, "Integer", "no double"),
        (x < y, "StrictLessThan", "is a condition"),
        (sp.Max(sp.sqrt(x), y, evaluate=False), "Max", "complex numbers have no order"),
        (Rotation.D(a, 1, 0, x, y, 0), "WignerD", "half-integer labels"),
        (sp.Ynm(2, a, x, y), "Ynm", "half-integer labels"),
    ],
)
def test_refusals_name_the_node(expr: Any, node: str, word: str) -> None:
    with pytest.raises(ld.ExpressionError, match=word) as caught:
        imported(expr)
    assert caught.value.node == node


def test_wrong_calls() -> None:
    with pytest.raises(TypeError, match="needs an expression of SymPy, got float"):
        ld.from_sympy(1.5)
    with pytest.raises(ld.ExpressionError, match="x is given twice"):
        ld.from_sympy(x, symbols={x: 1.0}, columns=[x])


def test_absent_sympy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sympy", None)
    with pytest.raises(ImportError, match=r"pip install 'laddu-dask\[sympy\]'"):
        ld.from_sympy(x)
