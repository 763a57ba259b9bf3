"""Forward and reverse mode, and second derivatives, of programs of single expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from compiled_runs import event_inputs, run_program
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from random_expressions import EVENTS, Truth, columns, point, scalars

import laddu_dask as ld
from laddu_dask.compiler import (
    Assumptions,
    CompiledModel,
    KernelOptions,
    compile_integral,
    compile_model,
)
from laddu_dask.compiler.forward import tangents
from laddu_dask.compiler.ir import EVENT, PARAMETER, Graph
from laddu_dask.compiler.modes import forward_may_pay
from laddu_dask.compiler.scalar import run_scalar

Array = NDArray[Any]
SEEDS = st.integers(0, 2**32 - 1)
RANDOM = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
X = ld.scalar("x")


def p(name: str, initial: float = 0.5) -> ld.Expr:
    return ld.parameter(name, initial=initial)


def gradient(
    model: CompiledModel, inputs: Array, vector: Array, backend: str = "interpreter"
) -> Array:
    """Derivative of the weighted value of each event, shape (events, parameters)."""
    frontier = model.invariants.frontier(vector)
    rows = run_program(model.programs.gradient, inputs, frontier, backend)
    return np.array([model.invariants.gradient(vector, adjoints) for adjoints in rows[1:].T])


def hessian(
    model: CompiledModel, inputs: Array, vector: Array, backend: str = "interpreter"
) -> Array:
    """Second derivatives of the weighted value of each event, shape (events, n, n)."""
    invariants, second = model.invariants, model.programs.curvature
    frontier, n = invariants.frontier(vector), invariants.n_adjoints
    result = []
    for direction in np.eye(len(vector)):
        moved = invariants.pushforward(vector, direction)
        numbers = [*frontier.tolist(), *moved.tolist()]
        program = second.scalars
        scalars_ = np.array(run_scalar(program.instructions, numbers, program.outputs))
        rows = run_program(second.events, inputs, scalars_, backend)
        result.append(
            [
                invariants.second_pullback(vector, direction, row[1 : 1 + n], row[1 + n :])
                for row in rows.T
            ]
        )
    return np.array(result).reshape(len(vector), -1, len(vector)).transpose(1, 0, 2)


def differences(model: CompiledModel, inputs: Array, vector: Array, step: float) -> Array:
    """The same by five-point differences of the gradient."""
    result = []
    for direction in step * np.eye(len(vector)):
        near = [gradient(model, inputs, vector + k * direction) for k in (-2, -1, 1, 2)]
        result.append((near[0] - 8 * near[1] + 8 * near[2] - near[3]) / (12 * step))
    return np.array(result).transpose(1, 0, 2)


def at_events(model: CompiledModel, events: Mapping[str, Array], weights: Any = 1.0) -> Array:
    inputs = event_inputs(model, events, "interpreter")
    inputs[-1] = weights
    return inputs


# modes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", ["linear", "log"])
@pytest.mark.parametrize("grouped", [False, True])
def test_forward_equals_reverse(grouped: bool, transform: Any) -> None:
    """AD-03: to 1e-12 on random expressions, wherever last-bit errors do not show."""
    compared = np.zeros(2, dtype=int)

    @RANDOM
    @given(scalars(4), SEEDS)
    def body(expr: ld.Expr, seed: int) -> None:
        assumptions = Assumptions() if grouped else None
        forward, reverse = (
            compile_model(expr, transform, assumptions, KernelOptions(mode))
            for mode in ("forward", "reverse")
        )
        at = point(seed)
        vector = forward.layout.vector({name: at[name] for name in forward.layout.names})
        events = columns(seed)
        if grouped:
            events = {name: np.abs(column) for name, column in events.items()}
        inputs = [at_events(model, events) for model in (forward, reverse)]
        with np.errstate(all="ignore"):
            found = gradient(forward, inputs[0], vector)
            expected = gradient(reverse, inputs[1], vector)
            truth = Truth(expr, seed, events)
            size = np.abs(expected).max(axis=1, initial=0.0)
            sound = truth.regular & (truth.spread <= 1e-14 * np.abs(truth.values.real))
            # A cancellation in the gradient alone shows when the parameters move by a last bit.
            moved = gradient(reverse, inputs[1], vector * (1 + 2.0**-52))
            sound &= np.abs(moved - expected).max(axis=1, initial=0.0) <= 1e-14 * size
            sound &= np.isfinite(expected).all(axis=1)
            # An event that violates an assumption of the form has no value in it.
            frontier = reverse.invariants.frontier(vector)
            (values,) = run_program(reverse.programs.value, inputs[1], frontier, "interpreter")
            sound &= np.isfinite(values)
            if transform == "log":  # of what is not positive there is none
                sound &= truth.values.real > 0
            # Where terms cancel to zero in every derivative, their rounding is all there is.
            allowed = 1e-12 * size + 1e-14 * (1 + np.abs(truth.values))
            wrong = sound & ~(np.abs(found - expected).max(axis=1, initial=0.0) <= allowed)
        assert not wrong.any(), (expr, found[wrong], expected[wrong])
        compared[:] += int(sound.sum()), EVENTS

    body()
    assert compared[0] > 0.3 * compared[1]


def test_both_modes_agree_where_every_rule_is_used() -> None:
    """AD-03, FW-01 ... FW-11: to 1e-12 on one expression with every operation, and both kernels."""
    a, b = p("a", 0.7), p("b", -0.3)
    z = ld.complex(a * X, b + X)
    system = ld.matrix([[a + 2, z], [0.3j, X + 1.5]])
    expr = (
        (z.sqrt() + z.exp() + z.log() + z.sin() + z.tanh()).norm_sqr()
        + z**3 * ld.atan2(a + X, b)
        + abs(z).sqrt()
        + (a * X).cosh()
        + ld.solve(system, ld.vector([b, X]))[0] / (a - 1j)
        + ld.where(X < 0.5, a * b * X, (a + X) ** 1.5)
        + ld.maximum(a * X, b)
        + (X + 2) ** a
        + (0.4 * a * X).asin()
    )
    events = {"x": np.linspace(0.1, 1.2, 23)}
    found = [
        gradient(model, at_events(model, events), np.array([0.7, -0.3]), backend)
        for mode in ("forward", "reverse")
        for backend in ("interpreter", "cpu")
        for model in [compile_model(expr, "linear", None, KernelOptions(mode))]
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("parameters", "chain", "expected"),
    [(1, 3, True), (2, 3, True), (3, 20, False), (6, 4, False)],
)
def test_when_forward_mode_is_tried(parameters: int, chain: int, expected: bool) -> None:
    """AD-01, AX-55: while its work is not larger; equal work counts for it."""
    g = Graph()
    x = g.emit("column", payload="x")
    names = [g.emit("parameter", payload=f"p{k}") for k in range(parameters)]
    total = g.mul(x, names[0])
    for name in names[1:]:
        total = g.add(total, g.mul(x, name))
    for _ in range(chain):
        total = g.call("sin", total)
    forward = parameters + sum(range(2, parameters + 1)) + chain * parameters
    reverse = 2 * (parameters + parameters - 1 + chain) + parameters
    assert (forward <= reverse) is expected
    assert forward_may_pay(g, [total], names) is expected


def test_auto_is_the_cheaper_of_both() -> None:
    """One parameter goes forward, many go back; the words of the option are honoured."""
    few, many = p("a") * X, p("p0") * X
    for k in range(1, 12):
        many = many + p(f"p{k}") * X**k
    for expr in (few.sin(), many.sin()):
        models = {
            mode: compile_model(expr, "log", Assumptions(), KernelOptions(mode))
            for mode in ("auto", "forward", "reverse")
        }
        size = {mode: len(model.programs.gradient.instructions) for mode, model in models.items()}
        assert size["auto"] == min(size.values())
    assert size["reverse"] < size["forward"]


def test_tangents_of_deep_and_wide_graphs() -> None:
    """No recursion: a chain of 20 000 operations, differentiated twice."""
    expr = p("a") * X
    for _ in range(20_000):
        expr = expr * 0.9999 + X
    model = compile_model(expr * p("a"), "linear", None, KernelOptions("forward"))
    inputs = at_events(model, {"x": np.array([0.3, 2.0])})
    found = hessian(model, inputs, np.array([0.5]))
    np.testing.assert_allclose(
        found[:, 0, 0], 2 * 0.9999**20_000 * np.array([0.3, 2.0]), rtol=1e-10
    )


def test_values_without_a_seed_have_no_tangent() -> None:
    """FW-01, T-29: nothing is worked out for what does not depend on a seed."""
    g = Graph()
    x, a, b = (g.emit(op, payload=op) for op in ("column", "parameter", "weight"))
    plain, moved = g.mul(x, x), g.mul(a, plain_ := g.call("sin", x))
    found = tangents(g, {a: g.const(1.0)}, [g.add(plain, g.mul(moved, b))])
    assert plain not in found
    assert found[moved] == plain_
    assert g.kinds[x] == EVENT
    assert g.kinds[a] == PARAMETER


# second derivatives ------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_hessians_of_random_expressions(mode: Any, grouped: bool) -> None:
    """Symmetric, and equal to five-point differences where these settle."""
    compared = np.zeros(2, dtype=int)

    @RANDOM
    @given(scalars(4), SEEDS, st.sampled_from(["linear", "log"]))
    def body(expr: ld.Expr, seed: int, transform: Any) -> None:
        assumptions = Assumptions() if grouped else None
        model = compile_model(expr, transform, assumptions, KernelOptions(mode))
        at = point(seed)
        vector = model.layout.vector({name: at[name] for name in model.layout.names})
        if not model.layout.names:
            return
        if grouped and model.invariants.valid_frontier(vector) is None:
            return
        events = columns(seed)
        if grouped:  # what is assumed of event values holds for more of them
            events = {name: np.abs(column) for name, column in events.items()}
        weights = np.random.default_rng(seed).normal(size=EVENTS)
        inputs = at_events(model, events, weights)
        step = 2.0**-13
        with np.errstate(all="ignore"):
            found = hessian(model, inputs, vector)
            rough, fine = (differences(model, inputs, vector, h) for h in (step, step / 2))
            slope = np.abs(gradient(model, inputs, vector)).max(axis=1)
            size = np.maximum(slope[:, None], np.abs(fine).max(axis=2))[:, :, None]
            sound = np.isfinite(fine) & (np.abs(fine - rough) <= 1e-7 * size)
            wrong = sound & ~(np.abs(found - fine) <= 1e-6 * size)
            mirrored = np.abs(found - found.transpose(0, 2, 1)) <= 1e-7 * size
        assert not wrong.any(), (expr, found[wrong], fine[wrong])
        assert (mirrored | ~sound).all(), expr
        compared[:] += int(sound.sum()), sound.size

    body()
    assert compared[0] > 0.5 * compared[1]


def second(expr: ld.Expr, at: Mapping[str, float], x: Any = 1.0, transform: Any = "linear") -> Any:
    """Hessians of single events in the written form, for both modes; they must agree."""
    found = []
    for mode in ("reverse", "forward"):
        model = compile_model(expr, transform, None, KernelOptions(mode))
        inputs = at_events(model, {"x": np.atleast_1d(np.asarray(x, dtype=float))})
        found.append(hessian(model, inputs, model.layout.vector(dict(at))))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12, atol=1e-12)
    return found[0]


def test_hessians_in_closed_form() -> None:
    """AX-01, AX-57: |2 x + re + i im|**2 is a parabola; of x y z at (0, 2, 3) nothing is lost."""
    expr = (2 * p("x") + ld.complex(p("re"), p("im"))).norm_sqr() * X
    found = second(expr, {"x": 3, "re": 1, "im": 2}, 1.0)
    np.testing.assert_array_equal(found, [[[8, 4, 0], [4, 2, 0], [0, 0, 2]]])
    product = p("x") * p("y") * p("z") * X
    np.testing.assert_array_equal(
        second(product, {"x": 0, "y": 2, "z": 3}), [[[0, 3, 2], [3, 0, 0], [2, 0, 0]]]
    )


def test_powers_at_zero() -> None:
    """FW-05, T-15: derivatives of integer powers at zero are polynomials, not 0 * inf."""
    for exponent, expected in ((0, 0.0), (1, 0.0), (2, 2.0), (3, 0.0)):
        assert second((p("a") * X) ** exponent * X + p("a"), {"a": 0.0})[0, 0, 0] == expected
    assert second((p("a") * X) ** -2, {"a": 0.5})[0, 0, 0] == pytest.approx(96.0, rel=1e-15)


def test_real_node_under_a_complex_factor() -> None:
    """AX-20, T-03: |a + ib|**2 (1 + 2i); its real part has second derivatives 2."""
    expr = ld.complex(p("a"), p("b")).norm_sqr() * (1 + 2j) * X
    np.testing.assert_array_equal(second(expr, {"a": 0.5, "b": -0.3}), [[[2, 0], [0, 2]]])


def test_branches_not_taken_count_for_nothing() -> None:
    """Infinite slopes and curvatures of a branch not taken do not show."""
    a = p("a")
    expr = ld.where(X > 0, (a * X).log() + (a * X).sqrt(), a**2 * X) * a
    found = second(expr, {"a": 2.0}, [1.0, 0.0, -1.0])[:, 0, 0]
    # (a log(a x) + a sqrt(a x))'' = 1/a + 3/4 sqrt(x / a); (a**3 x)'' = 6 a x
    np.testing.assert_allclose(found, [0.5 + 0.75 * 0.5**0.5, 0.0, -12.0], rtol=1e-14)


def test_a_branch_taken_where_its_adjoint_vanishes() -> None:
    """The adjoint of y**2 is zero at y = 0, and its derivative is not."""
    a, b = p("a"), p("b")
    expr = ld.where(X > 0, a * (b + X), X) ** 2
    # (a (b + x))**2: second derivative by a is 2 (b + x)**2, at a = 0 the others vanish.
    found = second(expr, {"a": 0.0, "b": 0.5}, [1.0, -1.0])
    np.testing.assert_array_equal(found, [[[4.5, 0], [0, 0]], [[0, 0], [0, 0]]])
    # Division on the way: the slope is infinite where the branch is not taken.
    expr = ld.where(X > 0, a * b / X, 0.0) ** 2
    found = second(expr, {"a": 0.0, "b": 3.0}, [2.0, 0.0])
    np.testing.assert_array_equal(found, [[[4.5, 0], [0, 0]], [[0, 0], [0, 0]]])


def test_systems_in_branches() -> None:
    """A singular matrix in the branch not taken, a right-hand side of zero in the one taken."""
    a, b = p("a"), p("b")
    system = ld.matrix([[X, b * 0], [0.0, 1.0 + b]])
    expr = ld.where(X > 0, ld.solve(system, ld.vector([a, a]))[1], 0.0) ** 2
    # (a / (1 + b))**2 at a = 0; b comes first in the formula
    found = second(expr, {"a": 0.0, "b": 1.0}, [2.0, 0.0])
    np.testing.assert_allclose(found, [[[0, 0], [0, 0.5]], [[0, 0], [0, 0]]], rtol=1e-14)


def test_roots_at_threshold() -> None:
    """sqrt has slope zero at zero by definition; so is its second derivative there."""
    a = p("a")
    root = (X - a).sqrt()
    expr = (root.norm_sqr() + root.real() * X + root.imag()) * 2
    found = second(expr, {"a": 1.0}, [2.0, 1.0, 0.5])[:, 0, 0]
    # d2/da2 sqrt(x - a) = -1/4 (x - a)**-1.5; the modulus of the root is linear on either side
    expected = [-0.25 * 2 * 2, 0.0, -0.25 * 2 * 0.5**-1.5]
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_hessian_of_a_solve() -> None:
    """AX-07, FW-11, RV-08: 1/(a - b c) second derivatives in closed form, complex entries too."""
    a, b, c = (p(name) for name in "abc")
    system = ld.matrix([[a * X, b], [c, 1.0]])
    expr = ld.solve(system, ld.vector([1.0, 0.0]))[0]
    found = second(expr, {"a": 2.0, "b": 0.5, "c": 1.0})[0]
    d = 1.5
    # u = a - b c: 2 u_i u_j / u**3 - u_ij / u**2
    slope = np.array([1.0, -1.0, -0.5])
    expected = 2 * np.outer(slope, slope) / d**3
    expected[1, 2] = expected[2, 1] = expected[1, 2] + 1 / d**2
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_one_factorisation_for_value_adjoint_and_tangents() -> None:
    """GI-05: second derivatives of a solve divide by no pivot more than the gradient does."""
    names = [[p(f"m{i}{j}", 2.0 if i == j else 0.1) * X for j in range(3)] for i in range(3)]
    expr = ld.solve(ld.matrix(names), ld.vector([1.0, X, 0.5]))[0].norm_sqr()
    programs = compile_model(expr, "linear", None, KernelOptions("reverse")).programs
    divisions = [
        sum(op == "div" for op, _, _ in program.instructions)
        for program in (programs.value, programs.gradient, programs.curvature.events)
    ]
    assert divisions == [3, 3, 3]


def test_second_derivatives_of_the_logarithm() -> None:
    """w log(a + x): -w / (a + x)**2."""
    found = second(p("a") + X, {"a": 1.0}, [0.0, 1.0, 3.0], "log")
    np.testing.assert_allclose(found[:, 0, 0], [-1.0, -0.25, -1 / 16], rtol=1e-15)


def test_frontier_curvature_counts() -> None:
    """exp(a) b x: parameters enter by one number, whose own curvature must not be lost."""
    expr = (p("a").exp() * p("b") * X).sin()
    model = compile_model(expr, "linear", Assumptions(), KernelOptions("reverse"))
    assert model.invariants.n_adjoints == 1
    at = np.array([0.3, 0.8])
    found = hessian(model, at_events(model, {"x": np.array([0.7])}), at)[0]
    u = np.exp(0.3) * 0.8 * 0.7
    first = np.array([u, u / 0.8])
    inner = np.array([[u, u / 0.8], [u / 0.8, 0.0]])
    expected = np.cos(u) * inner - np.sin(u) * np.outer(first, first)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_separable_integral_in_closed_form() -> None:
    """(a**2 + b a) S1 + exp(b) S2: second derivatives from statistics alone."""
    a, b = p("a"), p("b")
    form = compile_integral((a**2 + b * a) * X + b.exp() * X**2, Assumptions())
    assert form.separable is not None
    assert form.residual is None
    separable, n = form.separable, form.separable.n_statistics
    statistics = np.array([3.0, 5.0])[:n]
    at = np.array([0.5, 0.25])
    columns_ = [separable.of(statistics).curve(at, unit) for unit in np.eye(2)]
    found = np.array(columns_)
    values = [separable.of(unit).value(at) for unit in np.eye(n)]
    assert all(value is not None for value in values)
    # Which statistic is which shows in the values of unit statistics.
    sums = {round(value, 12): k for k, value in enumerate(values) if value is not None}
    linear = statistics[sums[0.375]]
    square = statistics[sums[round(float(np.exp(0.25)), 12)]]
    expected = [[2 * linear, linear], [linear, np.exp(0.25) * square]]
    np.testing.assert_allclose(found, expected, rtol=1e-14)
