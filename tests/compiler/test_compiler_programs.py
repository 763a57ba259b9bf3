"""Classes of values, the three programs, derivatives in branches, and the rules of the IR."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from compiled_runs import event_inputs, run_program, value_and_gradient

import laddu_dask as ld
from laddu_dask.compiler import Program, compile_model
from laddu_dask.compiler.ir import Graph

A, B = ld.parameter("a"), ld.parameter("b")
X, Y = ld.scalar("x"), ld.scalar("y")


def operations(program: Program) -> list[str]:
    return [op for op, _, _ in program.instructions if op not in {"input", "parameter", "const"}]


def test_each_part_is_computed_where_it_belongs() -> None:
    """DC-07, SL-02: events once, parameters once per point, only the rest for each event."""
    model = compile_model((X.sin() + Y) * A.exp() + (A * B).cos() * X, "linear")
    programs = model.programs
    assert programs.columns == ("x", "y")
    assert operations(programs.prepare) == ["sin", "add"]
    assert programs.n_cached == 2
    assert operations(programs.value) == ["mul", "mul", "add", "mul"]
    assert programs.value.n_parameters == model.invariants.n_adjoints == 2
    frontier = model.invariants.frontier(np.array([0.5, 2.0]))
    assert sorted(frontier) == sorted([math.exp(0.5), math.cos(1.0)])


@pytest.mark.parametrize(
    ("amplitude", "columns"), [(X.sin(), 1), (ld.complex(X.sin(), X.cos()), 2)]
)
def test_cached_columns(amplitude: ld.Expr, columns: int) -> None:
    """AX-24, DC-08: a real event value takes one column, a complex one two."""
    assert compile_model(amplitude * A, "complex").programs.n_cached == columns


def test_parameter_only_and_event_only_models() -> None:
    assert compile_model(A * B, "linear").programs.n_cached == 0
    model = compile_model(X * 2, "linear")
    assert model.invariants.n_adjoints == 0
    assert model.programs.gradient.outputs == model.programs.value.outputs
    assert model.invariants.gradient(np.empty(0), np.empty(0)).shape == (0,)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize(
    "expr",
    [
        ld.vector([A, B])[0] * X,
        ld.vector([B, A])[1] * X,
        A * X + B * 0,
        A * X + (B - B),
        A * X + ld.complex(0, B).real(),
        A * X + 0 * B.exp() * X,
        A * X + B**0 - 1,
    ],
)
def test_unused_parameters_have_derivative_zero(expr: ld.Expr, backend: str) -> None:
    """AX-19, PA-06: exactly zero, in place, and they never keep a model from compiling."""
    at = {"a": 2.0, "b": 0.7}
    _, gradient = value_and_gradient(expr, {"x": np.array([0.5, -3.0])}, at, backend)
    names = compile_model(expr, "complex").layout.names
    assert sorted(names) == ["a", "b"]
    np.testing.assert_array_equal(gradient[names.index("b")], [0, 0])
    np.testing.assert_array_equal(gradient[names.index("a")], [0.5, -3.0])


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_fixed_parameters_are_constants(backend: str) -> None:
    fixed = ld.parameter("b", fixed=3.0)
    values, gradient = value_and_gradient(A * fixed * X, {"x": np.array([0.5])}, {"a": 2}, backend)
    assert (values[0], gradient.tolist()) == (3.0, [[1.5]])


BRANCHES = [
    (ld.where(X > 0, (A * X).log().real(), A * 2), lambda x: 1 if x > 0 else 2),
    (ld.where(X > 0, A / X, A), lambda x: 1 / x if x > 0 else 1),
    (ld.where(X > 0, (A * X).sqrt().real(), 0), lambda x: 0.5 * math.sqrt(x) if x > 0 else 0),
    (ld.where(X > 0, (A * X) ** -3, A), lambda x: -3 / x**3 if x > 0 else 1),
    (ld.where(X > 0, (A / X).exp().log().real(), A), lambda x: 1 / x if x > 0 else 1),
    (ld.where(X > 0, ld.atan2(A * X, X * X), A), lambda x: x**3 / (x**2 + x**4) if x > 0 else 1),
    (
        ld.where(X > 0, ld.where(X > 1, 1 / ((X - 1) * A), A), 3 * A),
        lambda x: 3 if x <= 0 else 1 if x <= 1 else -1 / (x - 1),
    ),
]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize(("expr", "slope"), BRANCHES)
def test_the_branch_not_taken_spoils_nothing(expr: ld.Expr, slope: object, backend: str) -> None:
    """Its infinities and NaN stay out of values and gradients."""
    x = np.array([-2.0, -0.0, 0.0, 0.25, 1.0, 2.0])
    values, gradient = value_and_gradient(expr, {"x": x}, {"a": 1.0}, backend)
    assert np.isfinite(values).all()
    expected = [slope(float(v)) for v in x]  # type: ignore[operator]
    np.testing.assert_allclose(gradient[0], expected, rtol=1e-14)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize(
    "root", [(X - A).sqrt(), ld.complex(X - A, B).sqrt()], ids=["real", "complex"]
)
def test_the_slope_of_a_root_counts_as_zero_at_zero(root: ld.Expr, backend: str) -> None:
    """Of both kinds of roots, whose slopes are equal elsewhere."""
    x, at = np.array([0.75, 1.0, 1.25]), {"a": 1.0, "b": 0.0}
    expr = (root + 1).norm_sqr() + 0 * B
    _, gradient = value_and_gradient(expr, {"x": x}, at, backend)
    # d |1 + sqrt(x - a)|**2 / da = 1 below a, and -1 - 1 / sqrt(x - a) above.
    np.testing.assert_allclose(gradient[0], [1, 0, -3], rtol=1e-14, atol=1e-14)


def test_branches_on_parameters() -> None:
    """The same for values of parameters alone, as reductions see them."""
    singular = ld.where(X < 0, A.log().real() + B, 2 * B) * X
    model = compile_model(singular, "linear")
    point = model.layout.vector({"a": 0.0, "b": 1.5})
    inputs = event_inputs(model, {"x": np.array([1.0, 2.0])}, "interpreter")
    frontier = model.invariants.frontier(point)
    rows = run_program(model.programs.gradient, inputs, frontier, "interpreter")
    np.testing.assert_array_equal(rows[0], [3.0, 6.0])
    gradient = model.invariants.gradient(point, rows[1:].sum(axis=1))
    assert dict(zip(model.layout.names, gradient, strict=True)) == {"a": 0.0, "b": 6.0}
    chosen = compile_model(ld.where(A < 1, 1 / (1 - A), A) * X, "linear")
    rows = run_program(
        chosen.programs.gradient,
        event_inputs(chosen, {"x": np.array([3.0])}, "interpreter"),
        chosen.invariants.frontier(np.array([1.0])),
        "interpreter",
    )
    assert rows[0] == 3.0
    assert chosen.invariants.gradient(np.array([1.0]), rows[1:].sum(axis=1)) == 3.0


def test_a_singular_slope_that_counts_is_not_hidden() -> None:
    """OP-07, T-16: the angle of the origin is zero, its slope is not a number."""
    expr = ld.atan2(A * X, B * X)
    for backend in ("interpreter", "cpu"):
        at = {"a": 0.0, "b": 0.0}
        values, gradient = value_and_gradient(expr, {"x": np.array([1.0])}, at, backend)
        assert values[0] == 0
        assert np.isnan(gradient.real).all()
    _, gradient = value_and_gradient(
        ld.where(X > 0, A, 2 * A) * 0 + 1 / (A * X), {"x": np.array([1.0])}, {"a": 0.0}, "cpu"
    )
    assert not np.isfinite(gradient.real).any()


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_closed_side_of_a_threshold(backend: str) -> None:
    """The root of zero has slope zero, on both sides of the threshold the true slope."""
    expr = ((X - A).sqrt()).real()
    x = np.array([-1.0, 1.0, 5.0])
    values, gradient = value_and_gradient(expr, {"x": x}, {"a": 1.0}, backend)
    np.testing.assert_array_equal(values, [0, 0, 2])
    np.testing.assert_allclose(gradient[0], [0, 0, -0.25])


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize(
    ("z", "root"),
    [
        (complex(-4, 0.0), 2j),
        (complex(-4, -0.0), -2j),
        (complex(0.0, 0.0), 0j),
        (3 + 4j, 2 + 1j),
        (-3 + 4j, 1 + 2j),
        (-3 - 4j, 1 - 2j),
        (3e300 + 4e300j, complex(math.sqrt(4e300), math.sqrt(1e300))),
        (3e-300 + 4e-300j, complex(2e-150, 1e-150)),
        (2j, 1 + 1j),
        (-2j, 1 - 1j),
    ],
)
def test_complex_roots(z: complex, root: complex, backend: str) -> None:
    """AX-62, T-19: the principal branch, the sign of a zero imaginary part, and the whole range."""
    columns = {"x": np.array([z.real]), "y": np.array([z.imag])}
    values, _ = value_and_gradient(ld.complex(X, Y).sqrt(), columns, {}, backend)
    assert abs(values[0] - root) <= 1e-15 * abs(root)
    assert math.copysign(1, values[0].imag) == math.copysign(1, root.imag)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_root_of_the_smallest_numbers_is_finite(backend: str) -> None:
    columns = {"x": np.array([5e-324, -5e-324, 1e-323]), "y": np.array([5e-324, 5e-324, 0.0])}
    values, _ = value_and_gradient(ld.complex(X, Y).sqrt(), columns, {}, backend)
    assert np.isfinite(values).all()
    assert (np.abs(values) < 1e-150).all()


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_real_operands_are_not_promoted(backend: str) -> None:
    """T-17, T-19: infinities and signs of zero meet no invented imaginary part."""
    columns = {"x": np.array([math.inf, -0.0]), "y": np.array([1.0, -0.0])}
    values, _ = value_and_gradient(X * ld.complex(Y, 2), columns, {}, backend)
    assert (values[0].real, values[0].imag) == (math.inf, math.inf)
    values, _ = value_and_gradient(ld.complex(Y, 2) + X, columns, {}, backend)
    assert (values[0].real, values[0].imag) == (math.inf, 2.0)
    assert math.copysign(1, values[1].real) == -1
    values, _ = value_and_gradient((X * 0 + Y).real(), columns, {}, backend)
    assert np.isnan(values[0].real)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_integer_power_edge_cases(backend: str) -> None:
    """T-15, FW-05."""
    columns = {"x": np.array([0.0, 2.0])}
    values, gradient = value_and_gradient((A * X) ** 0, columns, {"a": 1.0}, backend)
    np.testing.assert_array_equal(values, [1, 1])
    np.testing.assert_array_equal(gradient, [[0, 0]])
    smallest = -(2**31)
    columns = {"x": np.array([1.0, 1 + 1e-9])}
    values, gradient = value_and_gradient((A * X) ** smallest, columns, {"a": 1.0}, backend)
    expected = np.exp(smallest * np.log1p([0, columns["x"][1] - 1]))
    np.testing.assert_allclose(values.real, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient[0].real, smallest * expected, rtol=1e-6)


def test_identities_keep_every_bit() -> None:
    """T-19: the graph drops no operation that some input could tell from its result."""
    g = Graph()
    x = g.emit("column", payload="x")
    zero, one = g.const(0.0), g.const(1.0)
    assert g.mul(one, x) == g.div(x, one) == g.sub(x, zero) == g.neg(g.neg(x)) == x
    y = g.emit("column", payload="y")
    assert g.add(x, g.neg(y)) == g.sub(x, y)
    assert g.mul(x, g.neg(y)) == g.neg(g.mul(x, y))
    for kept in (g.add(x, zero), g.mul(x, zero), g.sub(x, g.const(-0.0)), g.div(x, x), g.sub(x, x)):
        assert kept not in (x, zero, one)
    assert g.const(-0.0) != zero
    assert g.literal(g.div(one, zero)) is None  # left to IEEE at run time
    assert g.add(x, one) == g.add(one, x)


GOOD = Program(
    (
        ("input", (), "0"),
        ("parameter", (), "0"),
        ("const", (), 0.5),
        ("lt", (0, 1), None),
        ("select", (3, 0, 2), None),
    ),
    1,
    1,
    (4,),
)


def changed(index: int, op: str, args: tuple[int, ...], payload: object = None) -> Program:
    instructions = list(GOOD.instructions)
    instructions[index] = (op, args, payload)  # type: ignore[assignment]
    return replace(GOOD, instructions=tuple(instructions))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (changed(4, "sinc", (0,)), "instruction 4: 'sinc' is not a kernel operation"),
        (changed(0, "column", (), "x"), "instruction 0: 'column' is not"),
        (changed(0, "weight", ()), "'weight' is not"),
        (changed(4, "csqrt_re", (0, 1)), "'csqrt_re' is not"),
        (changed(4, "select", (3, 0)), "select has operands"),
        (changed(4, "add", (0, 1, 2)), "add has operands"),
        (changed(4, "add", (0, 4)), "add has operands"),
        (changed(4, "add", (0, -1)), "add has operands"),
        (changed(0, "input", (), "1"), "input 1 of 1"),
        (changed(0, "input", (), "-1"), "input -1 of 1"),
        (changed(1, "parameter", (), "1"), "parameter 1 of 1"),
        (changed(2, "const", (), None), "literal None is no float"),
        (changed(2, "const", (), "0.5"), "literal '0.5' is no float"),
        (changed(4, "add", (3, 0)), "add mixes up a condition"),
        (changed(4, "select", (0, 1, 2)), "select mixes up a condition"),
        (changed(4, "select", (3, 3, 2)), "select mixes up a condition"),
        (changed(4, "not", (0,)), "not mixes up a condition"),
        (replace(GOOD, outputs=(3,)), "output 3 is a condition"),
        (replace(GOOD, outputs=(5,)), "output 5 of 5"),
        (replace(GOOD, outputs=(-1,)), "output -1 of 5"),
    ],
)
def test_malformed_programs_are_rejected(program: Program, message: str) -> None:
    """IR-02: the text names the instruction and the rule."""
    GOOD.verify()
    with pytest.raises(ld.LadduError, match=message):
        program.verify()


def test_digest_depends_on_the_bits_of_literals() -> None:
    digests = {changed(2, "const", (), value).digest for value in (0.0, -0.0, 0.5, math.nan)}
    assert len(digests) == 4
    assert changed(2, "const", (), 0.5).digest == GOOD.digest
