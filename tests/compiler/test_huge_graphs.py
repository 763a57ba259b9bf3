"""Deep chains of every operation and wide graphs: no recursion, and no more work than they need.

Requirement EX-12: graphs build, print, pickle, compile and evaluate iteratively. The quick tests
leave so little of Python's stack that one frame per level would overflow it; the slow ones have the
full depth. Values are compared with the same chain of Python numbers, derivatives with differences
of it.
"""

from __future__ import annotations

import cmath
import copy
import inspect
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from compiled_runs import run_program
from distributed.protocol import deserialize, serialize

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, CompiledModel, compile_integral, compile_model
from laddu_dask.expr.node import walk

#: Frames that compiling and pickling may use above those of the test.
FRAMES = 90
A, X = 0.3, np.array([0.4, 0.9, 1.6])


class Formula:
    """The functions of the chains, for expressions or for numbers."""

    def __init__(self, symbolic: bool) -> None:
        self.a: Any = ld.parameter("a", initial=A) if symbolic else A
        self.x: Any = ld.scalar("x") if symbolic else X
        self.symbolic = symbolic

    def call(self, name: str, z: Any) -> Any:
        if self.symbolic:
            return abs(z) if name == "abs" else getattr(z, name)()
        if name == "conj":
            return np.conj(z)
        if name == "norm_sqr":
            return (z * np.conj(z)).real
        return np.vectorize(abs if name == "abs" else getattr(cmath, name))(z)

    def where(self, smaller: tuple[Any, Any], a: Any, b: Any) -> Any:
        left, right = smaller
        return ld.where(left < right, a, b) if self.symbolic else np.where(left < right, a, b)

    def least(self, a: Any, b: Any) -> Any:
        return ld.minimum(a, b) if self.symbolic else np.minimum(a, b)

    def product(self, m: list[list[Any]], v: list[Any]) -> list[Any]:
        if self.symbolic:
            found = ld.matrix(m) @ ld.vector(v)
            return [found[i] for i in range(len(v))]
        return [sum(entry * y for entry, y in zip(row, v, strict=True)) for row in m]

    def solution(self, m: list[list[Any]], v: list[Any]) -> list[Any]:
        if self.symbolic:
            found = ld.solve(ld.matrix(m), ld.vector(v))
            return [found[i] for i in range(len(v))]
        (p, q), (r, s) = m
        below = p * s - q * r
        return [(s * v[0] - q * v[1]) / below, (p * v[1] - r * v[0]) / below]


Step = Callable[[Formula, Any], Any]


def _matrix(f: Formula) -> list[list[Any]]:
    return [[f.a, 0.5 * f.x], [-0.4, 0.5 + f.a]]


def _sums(f: Formula, s: Any) -> Any:
    return s[0] + 0.01 * f.a * f.x, 0.5 * s[1] + s[0] * s[0]


def _products(f: Formula, s: Any) -> Any:
    return s[0] * (1 - 0.01 * f.a * f.x), 0.5 * s[1] + f.call("sin", s[0])


def _quotients(f: Formula, s: Any) -> Any:
    z = s[0] / (1 + 1e-4j * f.a)
    return z, 0.5 * s[1] + 0.1 * f.call("norm_sqr", 1 / z) + f.call("conj", z)


#: Start, of a number or of several, and one level.
CHAINS: dict[str, tuple[Callable[[Formula], Any], Step]] = {
    "add": (lambda f: f.x, lambda f, z: z + 0.001 * f.a * f.x),
    "subtract": (lambda f: f.x, lambda f, z: f.a * f.x - z),
    "multiply": (lambda f: f.x, lambda f, z: z * (1 - 1e-5 * f.a * f.x)),
    "divide": (lambda f: f.x, lambda f, z: (f.a + 1) / (z + f.x)),
    "negate": (lambda f: f.a * f.x, lambda f, z: -(z * 0.999 + 0.01)),
    "root": (lambda f: f.a * f.x, lambda f, z: f.call("sqrt", z + f.a)),
    "complex root": (lambda f: 1j * f.x, lambda f, z: f.call("sqrt", z + 1j * f.a)),
    "exp": (lambda f: f.a * f.x, lambda f, z: f.call("exp", -0.5 * z)),
    "complex exp": (lambda f: 1j * f.x, lambda f, z: f.call("exp", (f.a + 0.2j) * z - 1)),
    "sin": (lambda f: f.a * f.x, lambda f, z: f.call("sin", z) + f.a),
    "complex sin": (lambda f: 1j * f.x, lambda f, z: f.call("sin", 0.5 * z) + f.a),
    "tanh": (lambda f: 1j * f.x, lambda f, z: f.call("tanh", z) + f.a),
    "asin": (lambda f: 1j * f.x, lambda f, z: 0.5 * f.call("asin", z) + f.a),
    "norm_sqr": (lambda f: f.x, lambda f, z: f.call("norm_sqr", 0.5 * z + 1j * f.a)),
    "conj": (
        lambda f: 1j * f.x,
        lambda f, z: 0.3 * (f.call("conj", z) * z + 1j * f.a * z) + 0.3 * f.x,
    ),
    "abs": (lambda f: 1j * f.x, lambda f, z: 0.5 * f.call("abs", z - 1j * f.a)),
    "integer power": (lambda f: f.a * f.x, lambda f, z: f.a * (z**2 + 1) ** -1),
    "power": (lambda f: f.a * f.x, lambda f, z: (z + f.a) ** 0.5),
    "complex power": (lambda f: 1j * f.x, lambda f, z: (0.1 * z + f.a + 1j) ** (0.5 + 0.1j)),
    "where": (lambda f: f.a * f.x, lambda f, z: f.where((z, f.x), z / 2 + f.a, z / 4 - f.x)),
    "least": (lambda f: f.a * f.x, lambda f, z: f.least(z + 0.1 * f.a, 3 * f.a * f.x)),
    "matrix product": (lambda f: [f.x, f.a], lambda f, v: f.product(_matrix(f), v)),
    "solve": (
        lambda f: [f.x, f.a],
        lambda f, v: f.solution([[2 + f.a, f.x], [-f.x, 2.5]], [v[0] + 1, v[1]]),
    ),
    "solve with a mixed matrix": (
        lambda f: [f.x, f.a],
        lambda f, v: f.solution([[2 + f.a, f.x], [-f.x, 2.5 + v[1] ** 2]], [v[0] + 1, v[1]]),
    ),
    "shared sums": (lambda f: (f.x, f.a * f.x), _sums),
    "shared products": (lambda f: (f.x, f.a * f.x), _products),
    "shared quotients": (lambda f: (1 + 1j * f.x, f.a * f.x), _quotients),
}


def chain(name: str, depth: int, formula: Formula) -> Any:
    """Real part of the last value after `depth` levels."""
    start, step = CHAINS[name]
    value = start(formula)
    for _ in range(depth):
        value = step(formula, value)
    last = value[-1] if isinstance(value, (list, tuple)) else value
    return last.real() if formula.symbolic else np.real(last)


def expected(name: str, depth: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Value and derivative, of Python numbers."""
    values, formula = [], Formula(symbolic=False)
    for a in (A, A - 2e-4, A - 1e-4, A + 1e-4, A + 2e-4):
        formula.a = a
        values.append(np.asarray(chain(name, depth, formula), dtype=float))
    slope = (values[1] - 8 * values[2] + 8 * values[3] - values[4]) / (12 * 1e-4)
    return values[0], slope


@contextmanager
def little_stack() -> Iterator[None]:
    """Fail where a walk would recurse."""
    limit, used = sys.getrecursionlimit(), len(inspect.stack(0))
    sys.setrecursionlimit(used + FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def value_and_slope(model: CompiledModel) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    programs, at = model.programs, model.layout.defaults
    sources = np.array([X] * len(programs.columns)).reshape(len(programs.columns), len(X))
    cached = run_program(programs.prepare, sources, np.zeros(0), "interpreter")
    inputs = np.concatenate([cached[: programs.n_cached], np.ones((1, len(X)))])
    frontier = model.invariants.frontier(at)
    rows = run_program(programs.gradient, inputs, frontier, "interpreter")
    n = model.invariants.n_adjoints
    slopes = [model.invariants.gradient(at, adjoints)[0] for adjoints in rows[1 : 1 + n].T]
    return rows[0], np.array(slopes)


def check(name: str, depth: int) -> None:
    expr = chain(name, depth, Formula(symbolic=True))
    assert len(repr(expr)) < 500
    assert expr.tree().count("\n") < 60 * depth
    assert pickle.loads(pickle.dumps(expr)).node is expr.node
    assert copy.deepcopy([expr])[0].node is expr.node
    assert deserialize(*serialize(expr)).node is expr.node
    value, slope = expected(name, depth)
    compile_integral(expr, Assumptions())
    for assumptions in (None, Assumptions()):
        model = compile_model(expr, "linear", assumptions)
        found, derivative = value_and_slope(model)
        np.testing.assert_allclose(found, value, rtol=1e-10)
        np.testing.assert_allclose(derivative, slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", CHAINS)
def test_chains_take_no_stack(name: str) -> None:
    """EX-12: some hundred levels in fewer frames than levels, pickling and compiling included."""
    with little_stack():
        check(name, 150)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # systems of equations unroll into a million operations
@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_ten_thousand(name: str) -> None:
    """EX-12, requirement value 64."""
    check(name, 10_000)


def conditions(depth: int) -> ld.Expr:
    x, a = ld.scalar("x"), ld.parameter("a", initial=A)
    met = x < a
    for i in range(depth):
        met = (met | (x < 0.1 * a)) if i % 2 else ~(~met & (x < 10 + a))
    return ld.where(met, a * x, 2 * a * x)


@pytest.mark.parametrize("depth", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_chains_of_conditions(depth: int) -> None:
    expr = conditions(depth)
    with little_stack():
        for assumptions in (None, Assumptions()):
            found, slope = value_and_slope(compile_model(expr, "linear", assumptions))
            met = X < A
            for i in range(depth):
                met = (met | (X < 0.1 * A)) if i % 2 else ~(~met & (X < 10 + A))
            np.testing.assert_allclose(found, np.where(met, A * X, 2 * A * X), rtol=1e-15)
            np.testing.assert_allclose(slope, np.where(met, X, 2 * X), rtol=1e-15)


def wide(n: int) -> ld.Expr:
    """Shared and unshared parts, 10 nodes for each of `n` parameters."""
    x = ld.scalar("x")
    shapes = [1 / (x - ld.complex(1.5 + k, ld.parameter(f"w{k}", initial=0.2))) for k in range(8)]
    terms = [ld.parameter(f"p{i}", initial=1e-3) * (x * i).cos() * shapes[i % 8] for i in range(n)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total.norm_sqr()


@pytest.mark.parametrize("n", [300, pytest.param(17_000, marks=pytest.mark.slow)])
def test_wide_graphs(n: int) -> None:
    """A sum of many terms with shared factors, against NumPy."""
    expr = wide(n)
    if n > 10_000:
        assert sum(1 for _ in walk(expr.node)) > 100_000
    i = np.arange(n)[:, np.newaxis]
    shapes = 1 / (X - (1.5 + np.arange(8)[:, np.newaxis] + 0.2j))
    amplitude = (1e-3 * np.cos(X * i) * shapes[np.arange(n) % 8]).sum(axis=0)
    with little_stack():
        model = compile_model(expr, "linear", Assumptions())
    found, _ = value_and_slope(model)
    np.testing.assert_allclose(found, np.abs(amplitude) ** 2, rtol=1e-9)
    assert len(model.programs.gradient.instructions) < 40 * n


def test_partial_sums_do_not_grow_quadratically() -> None:
    """Each partial sum has another user: opened in each other they would take n**2 operands."""
    sizes = []
    for depth in (200, 400):
        model = compile_model(
            chain("shared sums", depth, Formula(symbolic=True)), "linear", Assumptions()
        )
        sizes.append(len(model.programs.gradient.instructions))
    assert sizes[1] < 2.5 * sizes[0]
