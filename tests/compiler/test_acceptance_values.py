"""Worked examples that need no sum: systems of equations, traps of kinds and of slots."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compiled_runs import value_and_gradient
from test_grouping import grouped_rows, written_rows

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, compile_model
from laddu_dask.kernels.expand import expand

X, Y = ld.scalar("x"), ld.scalar("y")
BACKENDS = pytest.mark.parametrize("backend", ["interpreter", "cpu"])


def p(name: str) -> ld.Expr:
    return ld.parameter(name)


@BACKENDS
def test_07b_unsymmetric_real_matrix(backend: str) -> None:
    """AX-07b, T-28."""
    a, b, r = p("a"), p("b"), p("r")
    solution = ld.solve(ld.matrix([[a, b], [0.2, 1.7]]), ld.vector([r, 0.5 - 0.1j]))
    expr = ld.dot(solution, ld.vector([1 + 0.2j, -0.4]))
    at = {"a": 2.0, "b": 0.3, "r": 1.2}
    values, gradient = value_and_gradient(expr, {}, at, backend)
    expected = 0.47305389221556886 + 0.14610778443113772j
    np.testing.assert_allclose(values, [expected], rtol=0, atol=1e-12)
    slopes = [
        -0.30065617268457098 - 0.062390189680519201j,
        -0.12736204238230127 + 0.0087489691276130374j,
        0.53293413173652695 + 0.10179640718562874j,
    ]
    np.testing.assert_allclose(gradient[:, 0], slopes, rtol=0, atol=1e-12)


@BACKENDS
def test_18b_mixed_system(backend: str) -> None:
    """AX-18b: an event in the matrix, a parameter in matrix and right-hand side."""
    s = p("s")
    system = ld.matrix([[X + 2, 0.25 - 0.5j], [0.5, s + 3]])
    expr = ld.dot(ld.vector([1, 1j]), ld.solve(system, ld.vector([1, s])))
    columns, at = {"x": np.array([0.75])}, {"s": 1.25}
    values, gradient = value_and_gradient(expr, columns, at, backend)
    value = 0.34704009812797523 + 0.30060453841885459j
    np.testing.assert_allclose(values, [value], rtol=0, atol=1e-12)
    slope = -0.013136672337940972 + 0.20986998377795763j
    np.testing.assert_allclose(gradient[:, 0], [slope], rtol=0, atol=1e-12)
    for part, number, derivative in (
        (expr.real(), value.real, slope.real),
        (expr.imag(), value.imag, slope.imag),
    ):
        rows = grouped_rows(part, "linear", columns, at, np.ones(1))
        assert rows is not None
        assert rows[0][0] == pytest.approx(number, abs=1e-12)
        assert rows[1][0, 0] == pytest.approx(derivative, abs=1e-12)


def test_19_with_its_solve_in_both_forms() -> None:
    """AX-19, T-29, DC-12: the same number regrouped, gradients to 1e-12 in layout order."""
    offset = ld.cparameter("offset", suffixes=("_re", "_im"))
    phases = ld.polar_complex(p("mag1"), p("phase1")) * ld.polar_complex(p("mag2"), p("phase2"))
    solution = ld.solve(ld.matrix([[2, 0], [0, 4]]), ld.vector([8, 12]))
    expr = (
        (ld.parameter("mass", fixed=2.0) + 0) * 1
        + ld.dot(solution, ld.vector([1, 1]))
        + offset.conj().real()
        + phases.real()
        + p("unused") * 0
    ).norm_sqr()
    at = {"offset_re": 1.5, "offset_im": -0.5, "mag1": 2.0, "phase1": 0.25}
    at |= {"mag2": 3.0, "phase2": -0.5, "unused": 9.0}
    expected = [32.626949060527737, 0, 94.83796868179733, 48.432218255821197]
    expected += [63.225312454531554, 48.432218255821197, 0]
    names = compile_model(expr, "complex").layout.names
    assert names == tuple(at)
    written = written_rows(expr, "linear", {}, at, np.ones(1))
    grouped = grouped_rows(expr, "linear", {}, at, np.ones(1))
    assert grouped is not None
    for value, gradient in (written, grouped):
        assert np.ravel(value)[0] == pytest.approx(266.12945124956795, abs=1e-12)
        np.testing.assert_allclose(np.ravel(gradient), expected, rtol=0, atol=1e-12)
        assert np.ravel(gradient)[[1, 6]].tolist() == [0, 0]


@BACKENDS
def test_58_one_event(backend: str) -> None:
    """AX-58: 2 x at x = 3, and a component of a four-momentum by its column."""
    values, _ = value_and_gradient(X * 2, {"x": np.array([3.0])}, {}, backend)
    assert values[0] == 6
    energy = ld.p4_component("ks1", "e")
    values, _ = value_and_gradient(energy, {"ks1_e": np.array([1.5])}, {}, backend)
    assert values[0] == 1.5


def test_59_missing_inputs() -> None:
    """AX-59, T-24: a column that is not there, and no events at all."""
    model = ld.Model(ld.scalar("missing") * p("a"))
    with pytest.raises(ld.DataError, match="'missing'"):
        model.evaluate(ld.Dataset.from_arrays(scalars={"x": [1.0]}), [1.0])
    with pytest.raises(ld.DataError, match="reads the event columns missing"):
        model.evaluate(parameters=[1.0])


def test_60_parameter_count() -> None:
    """AX-60, PA-07: both counts are told."""
    with pytest.raises(ld.ParameterError, match=r"expected 1 parameter.*got .*\(0,\)"):
        ld.Model(p("a") * 1.0).evaluate(parameters=[])


def test_32_values_die_after_their_last_use() -> None:
    """AX-32, T-23: a long chain needs no more live values at once than a short one.

    Compiled programs are in single assignment form, so that nothing is ever overwritten and the
    register allocator counts the slots; what is tested is that programs do not keep values alive.
    """

    def most_alive(expr: ld.Expr) -> int:
        program = compile_model(expr, "linear").programs.value
        last: dict[int, int] = {}
        for index, (_, args, _) in enumerate(program.instructions):
            last |= dict.fromkeys(args, index)
        last |= dict.fromkeys(program.outputs, len(program.instructions))
        alive, most = set[int](), 0
        for index, (op, args, _) in enumerate(program.instructions):
            if op not in {"parameter", "const"}:
                alive.add(index)
            most = max(most, len(alive))
            alive -= {arg for arg in args if last[arg] == index}
        return most

    a = p("a")
    chain = X * a
    for _ in range(10):
        chain = chain.sin()
    one = (X * a).sin()
    # The weight is read when it is needed, the operand of each sine dies with it.
    assert most_alive(chain) == most_alive(one) <= 3
    diamond = (X * a).sin() + (X * a).cos()
    assert most_alive(diamond) <= 4


@BACKENDS
def test_conjugates_in_tangent_and_adjoint(backend: str) -> None:
    """T-09, T-13: an analytic function, its conjugate and both of their parts, by hand.

    With z = (1 + 2i) p the derivative of z**3 is 3 z**2 (1 + 2i), that of conj(z**3) its conjugate.
    """
    z = (1 + 2j) * p("p") * X
    columns, at = {"x": np.array([1.0])}, {"p": 0.5}
    slope = 3 * (0.5 + 1j) ** 2 * (1 + 2j)
    for expr, expected in (
        (z**3, slope),
        ((z**3).conj(), slope.conjugate()),
        ((z**3).real(), slope.real),
        ((z**3).imag(), slope.imag),
        (z.conj() * z, 2 * 5 * 0.5),
        (z.norm_sqr() * 1j, 2j * 5 * 0.5),
        (ld.complex((z**3).imag(), (z**3).real()), complex(slope.imag, slope.real)),
        (abs(z), math.sqrt(5)),
    ):
        _, gradient = value_and_gradient(expr, columns, at, backend)
        assert gradient[0, 0] == pytest.approx(expected, rel=1e-14)


@BACKENDS
@pytest.mark.parametrize(("x", "expected"), [(4.0, 2), (-4.0, 2j)])
def test_roots_of_cached_values_keep_their_imaginary_part(
    backend: str, x: float, expected: complex
) -> None:
    """T-20, T-21: an event-only root in a product with a parameter, with a fixed one, and alone."""
    columns = {"x": np.array([x])}
    for expr, at in (
        (X.sqrt(), {}),
        (X.sqrt() * ld.parameter("one", fixed=1.0), {}),
        (X.sqrt() * p("a"), {"a": 1.0}),
        ((X * p("a")).sqrt(), {"a": 1.0}),
        (ld.complex(X.sqrt().real(), X.sqrt().imag()), {}),
    ):
        values, _ = value_and_gradient(expr, columns, at, backend)
        assert values[0] == expected
        parts = [
            grouped_rows(part, "linear", columns, at, np.ones(1))
            for part in (expr.real(), expr.imag())
        ]
        found = [float(np.ravel(part[0])[0]) for part in parts if part is not None]
        assert found == [expected.real, expected.imag]


def test_what_is_complex_by_construction() -> None:
    """T-22: elements of real vectors are real, those of complex ones complex whatever they hold."""
    real, mixed = ld.vector([X, 2]), ld.vector([X, 2j])
    assert real[0].is_real
    assert ld.dot(real, real).is_real
    assert not mixed[0].is_real
    assert not ld.dot(mixed, mixed).is_real
    columns = {"x": np.array([3.0])}
    assert value_and_gradient(mixed[0], columns, {}, "interpreter")[0][0] == 3
    # Kinds are for checks at build time: the part that is not there takes no column.
    assert compile_model(mixed[0] * p("a"), "complex").programs.n_cached == 1


def test_digests_follow_what_programs_compute() -> None:
    """T-25, PA-05: a fixed value and the split of free and fixed parameters change the programs."""

    def digest(expr: ld.Expr) -> tuple[str, str]:
        return compile_model(expr, "linear").programs.digest, ld.Model(expr).digest

    def model(**options: float) -> ld.Expr:
        return X * ld.parameter("a", **options) + ld.parameter("b")

    found = [digest(model(**o)) for o in ({"fixed": 1.5}, {"fixed": 2.5}, {"initial": 1.5})]
    for several in zip(*found, strict=True):
        assert len(set(several)) == 3
    # Start values are no part of what is computed, and equal models have equal programs.
    assert digest(model(initial=1.5))[0] == digest(model(initial=2.5))[0]
    assert digest(model(fixed=1.5)) == found[0]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("where", ["events", "parameters", "both"])
def test_singular_systems_whenever_they_are_solved(backend: str, where: str) -> None:
    """T-27, T-30, SP-11: while preparing, once per call or per event; the event is named."""
    scale = {"events": X, "parameters": p("s"), "both": X * p("s")}[where]
    system = ld.matrix([[scale, 2], [2 * scale, 4]])
    model = ld.Model(ld.solve(system, ld.vector([p("b"), 1]))[0].norm_sqr() + 1)
    x = np.array([1.0, 3.0, 5.0])
    sample = ld.Dataset.from_arrays(scalars={"x": x})
    term = ld.NLL(model, data=sample, accepted_mc=sample)
    at = [value for name, value in (("s", 1.0), ("b", 1.0)) if name in model.parameter_names]
    with (
        ld.Likelihood([term], ld.Execution(backend=backend)) as likelihood,
        pytest.raises(ld.EvaluationError) as caught,
    ):
        likelihood.value(at)
    assert caught.value.event == 0
    assert "solve" in str(caught.value)


@BACKENDS
@pytest.mark.parametrize("scale", [1.0, 1e150, 1e-150])
def test_division_in_the_plain_form(backend: str, scale: float) -> None:
    """T-18, OP-06: a conj(b) / |b|**2, good to rounding where the square of |b| is a number."""
    z, w = (3 - 4j), (1 + 2j) * scale
    parts = {"x": np.array([w.real]), "y": np.array([w.imag])}
    values, _ = value_and_gradient(z / ld.complex(X, Y), parts, {}, backend)
    assert values[0] == pytest.approx(z / w, rel=1e-15)


@pytest.mark.parametrize("digits", [0, 1])
def test_sums_and_products_keep_their_order(digits: int) -> None:
    """SL-07, T-02: what is written from left to right is computed so, without contraction."""
    x = np.array([1e16, 0.1, -1e16])[:, np.newaxis]
    names = ["x", "y", "z"]
    expr = ld.sum(ld.scalar(name) * ld.parameter("one") for name in names)
    columns = dict(zip(names, x, strict=True))
    values, _ = value_and_gradient(expr, columns, {"one": 1.0}, ["interpreter", "cpu"][digits])
    assert values[0] == (1e16 + 0.1) - 1e16
    a, b = 1 + 2.0**-30, 1 - 2.0**-30
    values, _ = value_and_gradient(
        X * p("b") - 1,
        {"x": np.array([a])},
        {"b": b},
        ["interpreter", "cpu"][digits],
    )
    assert values[0] == 0.0  # a fused multiply-add would give -2**-60


def test_no_two_operations_are_fused() -> None:
    """T-02, DK-14: products and sums of a program stay operations of their own."""
    model = compile_model(X * p("a") + Y * p("b"), "linear", Assumptions())
    operations, _ = expand(model.programs.value)
    names = [operation.name for operation in operations.body]
    assert "fma" not in names
    assert names.count("mul") == 3
