"""Functions and powers on every path: events, parameters only, literals, written and regrouped."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled_runs import value_and_gradient
from numpy.typing import NDArray
from oracle import evaluate
from test_grouping import grouped_rows

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, compile_model

Array = NDArray[Any]
Build = Callable[[ld.Expr, ld.Expr], ld.Expr]

#: Both sides of every cut, branch points not among them, large and small arguments.
X = np.array([0.3, -0.7, 1.5, -2.5, 1e-9, -30.0, 0.0, 3e8, 0.999, -1.001])
Y = np.array([0.2, 1.1, -0.4, -1.9, 1e-7, 0.6, 0.25, -2e5, -1e-3, 1e-4])


def clamped(function: Callable[[float], float]) -> Callable[[complex, complex], complex]:
    return lambda x, y: function(min(max(x.real, -1.0), 1.0))


def above(z: complex) -> complex:
    """The value without a sign of its zeros: on a cut it counts as continued from above."""
    return complex(z.real + 0.0, z.imag + 0.0)


def height(x: Any) -> Any:
    """Of either sign, and complex for negative x."""
    return 1.25 - 2 * (x.sqrt() if isinstance(x, ld.Expr) else cmath.sqrt(x))


def chosen(x: Any, y: Any) -> Any:
    """Where y > 0 one sum of roots, else another."""
    if isinstance(x, ld.Expr):
        return ld.where(y > 0, -1 - x.sqrt(), height(x))
    return -1 - cmath.sqrt(x) if y.real > 0 else height(x)


def system(x: ld.Expr) -> ld.Expr:
    """Solution -x.sqrt()/2 - 0.1 of an equation with roots in it."""
    rhs = ld.vector([-x.sqrt() / 2 - 0.1, 0.0])
    return ld.solve(ld.matrix([[1.0, 0.0], [x.sqrt(), 2.0]]), rhs)[0]


#: Functions with cuts of values that are complex by type and lie on the cut for x > 0.
ON_CUTS: dict[str, tuple[Build, Callable[[complex, complex], complex]]] = {
    "log of a root": (lambda x, y: height(x).log(), lambda x, y: cmath.log(above(height(x)))),
    "root of a root": (lambda x, y: height(x).sqrt(), lambda x, y: cmath.sqrt(above(height(x)))),
    "power of a root": (lambda x, y: height(x) ** 0.3, lambda x, y: above(height(x)) ** 0.3),
    "power by a root": (
        lambda x, y: height(x) ** (x / 5e8).sqrt(),
        lambda x, y: above(height(x)) ** cmath.sqrt(x / 5e8),
    ),
    "root of a logarithm": (
        lambda x, y: (-(x + 0.5).log()).sqrt(),
        lambda x, y: cmath.sqrt(above(-cmath.log(x + 0.5))),
    ),
    "root of a power": (
        lambda x, y: (-((x + 0.1) ** 0.25)).sqrt(),
        lambda x, y: cmath.sqrt(above(-(complex(x + 0.1) ** 0.25))),
    ),
    "root of a product": (
        lambda x, y: (-(x.sqrt() * (x - 1.25).sqrt())).sqrt(),
        lambda x, y: cmath.sqrt(above(-(cmath.sqrt(x) * cmath.sqrt(x - 1.25)))),
    ),
    "root of a quotient": (
        lambda x, y: (-(x.sqrt() / (x - 1.25).sqrt())).sqrt(),
        lambda x, y: cmath.sqrt(above(-(cmath.sqrt(x) / cmath.sqrt(x - 1.25)))),
    ),
    "logarithm of a turned root": (
        lambda x, y: (1j * (-(x - 0.01).sqrt()).conj()).log(),
        lambda x, y: cmath.log(above(1j * (-cmath.sqrt(x - 0.01)).conjugate())),
    ),
    "root of an exponential": (
        lambda x, y: (-(x / 1e8).sqrt().exp()).sqrt(),
        lambda x, y: cmath.sqrt(above(-cmath.exp(cmath.sqrt(x / 1e8)))),
    ),
    "root of a tangent": (
        lambda x, y: (-(x / 1e9).sqrt().tan() - 1).sqrt(),
        lambda x, y: cmath.sqrt(above(-cmath.tan(cmath.sqrt(x / 1e9)) - 1)),
    ),
    "root of a root of a root": (
        lambda x, y: (-height(x).sqrt()).sqrt(),
        lambda x, y: cmath.sqrt(above(-cmath.sqrt(above(height(x))))),
    ),
    "root of a choice": (
        lambda x, y: chosen(x, y).sqrt(),
        lambda x, y: cmath.sqrt(above(chosen(x, y))),
    ),
    "root of a solution": (
        lambda x, y: system(x).sqrt(),
        lambda x, y: cmath.sqrt(above(-cmath.sqrt(x) / 2 - 0.1)),
    ),
    "angle of a root": (
        lambda x, y: ld.atan2((-0.1 - x.sqrt()).imag(), (-0.1 - x.sqrt()).real()),
        lambda x, y: cmath.phase(above(-0.1 - cmath.sqrt(x))),
    ),
}


CASES: dict[str, tuple[Build, Callable[[complex, complex], complex]]] = {
    **ON_CUTS,
    **{
        f"{name} complex": (
            lambda x, y, name=name: getattr(ld.complex(x, y), name)(),
            lambda x, y, name=name: getattr(cmath, name)(complex(x.real, y.real)),
        )
        for name in ("tan", "asin", "atan", "sqrt", "log", "tanh")
    },
    **{
        # Arguments for which the hyperbolic functions do not overflow.
        f"{name} complex": (
            lambda x, y, name=name: getattr(ld.complex(x / (1 + x * x), y), name)(),
            lambda x, y, name=name: getattr(cmath, name)(complex((x / (1 + x * x)).real, y.real)),
        )
        for name in ("sinh", "cosh")
    },
    **{
        f"{name} real": (
            lambda x, y, name=name: getattr(y, name)(),
            lambda x, y, name=name: getattr(math, name)(y.real),
        )
        for name in ("tan", "atan", "tanh")
    },
    "sinh real": (lambda x, y: (1 / (1 + y * y)).sinh(), lambda x, y: cmath.sinh(1 / (1 + y * y))),
    "cosh real": (lambda x, y: (1 / (1 + y * y)).cosh(), lambda x, y: cmath.cosh(1 / (1 + y * y))),
    "asin real": (lambda x, y: x.asin(), clamped(math.asin)),
    "acos real": (lambda x, y: x.acos(), clamped(math.acos)),
    "sqrt real": (lambda x, y: x.sqrt(), lambda x, y: cmath.sqrt(x)),
    "log real": (lambda x, y: (x + 0.5).log(), lambda x, y: cmath.log(x + 0.5)),
    "asin outside": (
        lambda x, y: ld.complex(x, 0).asin(),
        lambda x, y: cmath.asin(complex(x.real, 0.0)),
    ),
    "atan cut": (
        lambda x, y: ld.complex(0, x).atan(),
        lambda x, y: cmath.atan(complex(0.0, x.real)),
    ),
    "abs real": (lambda x, y: abs(x), lambda x, y: abs(x)),
    "abs complex": (lambda x, y: abs(ld.complex(x, y)), lambda x, y: abs(complex(x.real, y.real))),
    "abs product": (
        lambda x, y: abs((2 - 1j) * ld.complex(x, y) ** -2 * x),
        lambda x, y: abs((2 - 1j) * complex(x.real, y.real) ** -2 * x),
    ),
    "abs squared": (
        lambda x, y: abs(ld.complex(x, y) + 1) ** 2 * abs(x) ** 3,
        lambda x, y: abs(complex(x.real, y.real) + 1) ** 2 * abs(x) ** 3,
    ),
    "quarter power": (lambda x, y: x**0.25, lambda x, y: x**0.25 if x else 0),
    "half power": (lambda x, y: x**0.5, lambda x, y: cmath.sqrt(x)),
    "power of a square": (lambda x, y: (x * x + y * y) ** 0.3, lambda x, y: (x * x + y * y) ** 0.3),
    "negative root": (lambda x, y: (x * x + 1) ** -1.5, lambda x, y: (x * x + 1) ** -1.5),
    "real exponent": (lambda x, y: (x - 0.1) ** y, lambda x, y: complex(x - 0.1) ** y),
    "complex exponent": (
        lambda x, y: (x - 0.1) ** ld.complex(y / (1 + y * y), 0.5),
        lambda x, y: complex(x - 0.1) ** (y / (1 + y * y) + 0.5j),
    ),
    "complex power": (
        lambda x, y: ld.complex(x, y) ** (0.5 - 0.25j),
        lambda x, y: complex(x.real, y.real) ** (0.5 - 0.25j),
    ),
    "literal base": (lambda x, y: 2.0 ** (y / 9), lambda x, y: 2.0 ** (y / 9)),
    "negative literal base": (
        lambda x, y: (-2.0) ** (1 / (1 + y * y)),
        lambda x, y: complex(-2.0) ** (1 / (1 + y * y)),
    ),
    "minimum": (ld.minimum, lambda x, y: min(x.real, y.real)),
    "maximum": (ld.maximum, lambda x, y: max(x.real, y.real)),
}


def grouped(expr: ld.Expr, events: dict[str, Array], at: dict[str, float], n: int) -> Array | None:
    parts = []
    for part in (expr.real(), expr.imag()):
        rows = grouped_rows(part, "linear", events, at, np.ones(n))
        if rows is None:
            return None
        parts.append(np.broadcast_to(rows[0], (n,)))
    return parts[0] + 1j * parts[1]


def close(found: Array, exact: Array) -> None:
    """To 1e-13 of the modulus: rounding of the exponent moves 30**1.9 by more than its last bit."""
    np.testing.assert_array_less(np.abs(found - exact), 1e-13 * np.abs(exact) + 1e-300)


@pytest.mark.parametrize("name", sorted(CASES))
def test_one_value_on_every_path(name: str) -> None:
    """EX-02, OP-02..04: outside the real domain a value is complex, wherever it is computed."""
    build, reference = CASES[name]
    points = list(zip(X.tolist(), Y.tolist(), strict=True))
    exact = np.array([complex(reference(x, y)) for x, y in points])
    by_column = build(ld.scalar("x"), ld.scalar("y"))
    events = {"x": X, "y": Y}
    close(evaluate(by_column, events), exact)
    with np.errstate(all="ignore"):
        for backend in ("interpreter", "cpu"):
            close(value_and_gradient(by_column, events, {}, backend)[0], exact)
        regrouped = grouped(by_column, events, {}, len(X))
        assert regrouped is not None
        close(regrouped, exact)
        for keep in (X < 0, X > 0):  # one sign throughout lets an assumption stand
            some = {key: column[keep] for key, column in events.items()}
            regrouped = grouped(by_column, some, {}, int(keep.sum()))
            assert regrouped is not None
            close(regrouped, exact[keep])
        by_parameter = build(ld.parameter("x"), ld.parameter("y"))
        names = compile_model(by_parameter, "complex").layout.names
        for (x, y), expected in zip(points, exact, strict=True):
            at = {name: value for name, value in (("x", x), ("y", y)) if name in names}
            value = value_and_gradient(by_parameter, {}, at, "interpreter")[0]
            close(value, np.array([expected]))
            regrouped = grouped(by_parameter, {}, at, 1)
            if regrouped is not None:  # else a guard sends it to the written form
                close(regrouped, np.array([expected]))
            literal = build(ld.as_expr(x), ld.as_expr(y))
            close(value_and_gradient(literal, {}, {}, "interpreter")[0], np.array([expected]))
            regrouped = grouped(literal, {}, {}, 1)
            assert regrouped is not None
            close(regrouped, np.array([expected]))


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_modulus_does_not_overflow(backend: str) -> None:
    z = ld.complex(ld.scalar("x"), ld.scalar("y"))
    columns = {
        "x": np.array([3e200, 3e-200, math.inf, 0.0, -0.0]),
        "y": np.array([4e200, -4e-200, math.nan, 0.0, -2.0]),
    }
    values = value_and_gradient(abs(z), columns, {}, backend)[0]
    np.testing.assert_allclose(values.real, [5e200, 5e-200, math.inf, 0.0, 2.0], rtol=4e-16)
    np.testing.assert_array_equal(values.imag, 0.0)


ZERO = np.array([0.0])


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize(
    ("build", "value", "slope"),
    [
        (lambda p, x: abs(p * x), 0.0, 0.0),
        (lambda p, x: abs(ld.complex(p * x, p * x)), 0.0, 0.0),
        (lambda p, x: (p * x) ** 0.25, 0.0, 0.0),
        (lambda p, x: (p * x) ** 1.5, 0.0, 0.0),
        (lambda p, x: ld.complex(p * x, p * x) ** 1.5, 0.0, 0.0),
        (lambda p, x: ld.complex(p * x, p * x) ** (2 + 1j), 0.0, 0.0),
        (lambda p, x: (p * x) ** (p - 1.75), 0.0, 0.0),
        (lambda p, x: (x + 0.0) ** (p - 2), 1.0, 0.0),
        (lambda p, x: ld.minimum(p + x, 2 - x), 2.0, 0.0),
        (lambda p, x: ld.maximum(p + x, 2 * p - 2), 2.0, 2.0),
        (lambda p, x: ld.minimum(p * p, 7 + x), 4.0, 4.0),
        (lambda p, x: (p + x - 3).asin(), -math.pi / 2, 0.0),
        (lambda p, x: (p + x).asin(), math.pi / 2, 0.0),
    ],
)
def test_derivatives_on_singular_points(
    backend: str, build: Build, value: float, slope: float
) -> None:
    """At p = 2, x = 0: no 0 * inf; the slope of |z| and of roots at zero is zero, ties go to b."""
    expr = build(ld.parameter("p"), ld.scalar("x"))
    values, gradient = value_and_gradient(expr, {"x": ZERO}, {"p": 2.0}, backend)
    assert values[0] == pytest.approx(value, abs=1e-15)
    assert gradient[0, 0] == slope


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_not_a_number_is_never_chosen_away(backend: str) -> None:
    x, y = ld.scalar("x"), ld.scalar("y")
    columns = {"x": np.array([math.nan, 1.0, 1.0]), "y": np.array([1.0, math.nan, 2.0])}
    for extreme, last in ((ld.minimum, 1.0), (ld.maximum, 2.0)):
        values = value_and_gradient(extreme(x, y), columns, {}, backend)[0].real
        np.testing.assert_array_equal(values, [math.nan, math.nan, last])
    inside = ld.where(ld.Predicate.between(x, low=y, high=y), 1.0, 0.0)
    np.testing.assert_array_equal(
        value_and_gradient(inside, columns, {}, backend)[0].real, [0.0, 0.0, 0.0]
    )


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_limits_of_powers(backend: str) -> None:
    """Zero to a positive power is 0, to the power of zero 1, to a negative one infinite."""
    x, y = ld.scalar("x"), ld.scalar("y")
    columns = {
        "x": np.array([0.0, 0.0, 0.0, -0.0, math.inf, 4.0, -4.0]),
        "y": np.array([0.5, 0.0, -0.5, 0.5, -2.0, -math.inf, 0.5]),
    }
    values = value_and_gradient(x**y, columns, {}, backend)[0]
    np.testing.assert_array_equal(values.real[:6], [0.0, 1.0, math.inf, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(values.imag[:6], 0.0)
    assert values[6] == pytest.approx(2j, abs=4e-16)
    halves = value_and_gradient(x**0.5, columns, {}, backend)[0]
    assert halves[6] == 2j  # the phase of a literal exponent is exact


def test_saturated_slopes_keep_their_digits() -> None:
    """1 - tanh**2 would cancel: at 15 the derivative is 4 exp(-30)."""
    p = ld.parameter("p")
    for expr in (p.tanh(), ld.complex(p, 0.0).tanh(), (ld.complex(0.0, 0.5) + p).tanh()):
        gradient = value_and_gradient(expr, {}, {"p": 15.0}, "interpreter")[1][0, 0]
        shift = 0.5j if expr.node.args[0].op == "add" else 0
        assert gradient == pytest.approx(1 / cmath.cosh(15 + shift) ** 2, rel=1e-13)


def test_intensities_by_abs_need_no_root() -> None:
    """abs(A)**2 and norm_sqr(A) compile to the same programs once regrouped."""
    p, z = ld.parameter("p"), ld.complex(ld.scalar("x"), ld.scalar("y"))
    amplitude = p * z + z * z
    models = [
        compile_model(expr, "linear", Assumptions())
        for expr in (abs(amplitude) ** 2, abs(amplitude) * abs(amplitude), amplitude.norm_sqr())
    ]
    assert models[0].programs.digest == models[1].programs.digest == models[2].programs.digest


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("name", ["tan", "asin", "atan", "tanh"])
def test_signs_on_the_cuts(name: str, backend: str) -> None:
    """OP-04: the sign of a zero part picks the side, as in C99."""
    sides = [2.0, -2.0, 0.5, -0.5, 1.25]
    points = [complex(x, y) for x in sides for y in (0.0, -0.0)]
    points += [complex(y, x) for x in sides for y in (0.0, -0.0)]
    columns = {"x": np.array([z.real for z in points]), "y": np.array([z.imag for z in points])}
    z = ld.complex(ld.scalar("x"), ld.scalar("y"))
    values = value_and_gradient(getattr(z, name)(), columns, {}, backend)[0]
    exact = np.array([getattr(cmath, name)(point) for point in points])
    for found, expected in ((values.real, exact.real), (values.imag, exact.imag)):
        np.testing.assert_allclose(found, expected, rtol=1e-15, atol=0)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("name", ["tan", "asin", "atan", "sinh", "cosh", "tanh"])
def test_both_parts_keep_their_digits(name: str) -> None:
    """Each part to 8 ulp by itself: of order one, of all sizes, and close to branch points."""
    rng = np.random.default_rng(7)
    n = 4096
    sign = rng.choice([-1, 1], size=(6, n))
    near = 1 + sign[0] * 2.0 ** rng.uniform(-50, 0, n)
    small = 2.0 ** rng.uniform(-60, 0, n)
    x = np.concatenate([rng.normal(size=n), sign[1] * 2.0 ** rng.uniform(-60, 9, n), near, small])
    y = np.concatenate([rng.normal(size=n), sign[2] * 2.0 ** rng.uniform(-60, 9, n), small, near])
    z = ld.complex(ld.scalar("x"), ld.scalar("y"))
    values = value_and_gradient(getattr(z, name)(), {"x": x, "y": y}, {}, "cpu")[0]
    wide = x.astype(np.clongdouble)
    wide.imag = y
    exact = getattr(np, {"asin": "arcsin", "atan": "arctan"}.get(name, name))(wide)
    for found, expected in ((values.real, exact.real), (values.imag, exact.imag)):
        unit = np.spacing(np.abs(expected.astype(float)))
        np.testing.assert_array_less(np.abs(found - expected), 8 * unit)
