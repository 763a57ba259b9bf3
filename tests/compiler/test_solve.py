"""Systems of linear equations: known numbers, derivatives, pivots, singular matrices."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest
from compiled_runs import event_inputs, run_program, value_and_gradient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_grouping import grouped_rows, written_rows

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, compile_model
from laddu_dask.compiler.diagnose import evaluate_event
from laddu_dask.expr import Expr

Array = NDArray[Any]
X, Y = ld.scalar("x"), ld.scalar("y")
THREE = np.array([0.25, 0.75, 1.25])
BACKENDS = pytest.mark.parametrize("backend", ["interpreter", "cpu"])


def p(name: str) -> Expr:
    return ld.parameter(name)


def operations(expr: Expr, assumptions: Assumptions | None = None) -> Counter[str]:
    """Operations of the gradient program."""
    model = compile_model(expr, "linear", assumptions)
    return Counter(op for op, _, _ in model.programs.gradient.instructions)


class TestKnownNumbers:
    """Worked examples, computed independently."""

    @BACKENDS
    def test_07a_parameters_only(self, backend: str) -> None:
        """AX-07a: complex system and contraction without conjugation."""
        a, b, r = p("a"), p("b"), p("r")
        solution = ld.solve(ld.matrix([[a, b + 0.1j], [b, 1.7]]), ld.vector([r, 0.5 - 0.1j]))
        expr = ld.dot(solution, ld.vector([1 + 0.2j, -0.4]))
        at = {"a": 2.0, "b": 0.3, "r": 1.2}
        values, gradient = value_and_gradient(expr, {}, at, backend)
        expected = 0.49060874326914301 + 0.13616865930455417j
        np.testing.assert_allclose(values, [expected], rtol=0, atol=1e-12)
        slopes = [
            -0.31184729367079816 - 0.060677383573373422j,
            0.072369651894261312 + 0.040161075367514997j,
            0.54887286666058228 + 0.1076937117824222j,
        ]
        np.testing.assert_allclose(gradient[:, 0], slopes, rtol=0, atol=1e-12)

    @BACKENDS
    def test_17_mixed(self, backend: str) -> None:
        """AX-17: matrix and right-hand side of events and parameters."""
        c, d = p("c"), p("d")
        matrix = ld.matrix([[X + 2, c + 0.1j], [-0.3 + c * 1j, 3]])
        rhs = ld.vector([X.sin() + d, ld.complex(X.cos(), 0.5)])
        expr = ld.solve(matrix, rhs)[1].norm_sqr()
        values, gradient = value_and_gradient(expr, {"x": THREE}, {"c": 0.2, "d": -0.4}, backend)
        expected = [0.12626960343564095, 0.088411406521695997, 0.038401868075238728]
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12)
        slopes = [
            [-0.0072518587249892982, -0.019205628239604724, -0.020345298755842814],
            [0.017542858340276242, 0.010527788428250463, 0.0011136885169382516],
        ]
        np.testing.assert_allclose(gradient, slopes, rtol=0, atol=1e-12)

    @BACKENDS
    def test_18a_events_only(self, backend: str) -> None:
        """AX-18a: everything is prepared; the event program only loads."""
        system = ld.matrix([[X + 2, 0.25 - 0.5j], [0.5, X + 3]])
        expr = ld.dot(ld.vector([1, 1j]), ld.solve(system, ld.vector([1, X])))
        values, _ = value_and_gradient(expr, {"x": np.array([1.25])}, {}, backend)
        expected = 0.2931613064593451 + 0.30058152864914438j
        np.testing.assert_allclose(values, [expected], rtol=0, atol=1e-12)
        programs = compile_model(expr, "complex").programs
        assert [op for op, _, _ in programs.gradient.instructions] == ["input", "input"]

    def test_25_row_of_the_inverse(self) -> None:
        """AX-25, SP-03: one cached number per event instead of a system; values are exact."""
        expr = ld.solve(ld.matrix([[X + 2]]), ld.vector([p("rhs")]))[0]
        x, at = np.array([0.0, 1.0]), {"rhs": 3.0}
        grouped = grouped_rows(expr, "linear", {"x": x}, at, np.ones(2))
        assert grouped is not None
        np.testing.assert_array_equal(grouped[0], [1.5, 1.0])
        np.testing.assert_array_equal(grouped[1][0], [0.5, 1 / 3])
        written = written_rows(expr, "linear", {"x": x}, at, np.ones(2))
        np.testing.assert_allclose(written[0], [1.5, 1.0], rtol=1e-15)
        assert compile_model(expr, "linear", Assumptions()).programs.n_cached == 1
        assert not operations(expr, Assumptions())["div"]

    def test_26_constants(self) -> None:
        """AX-26, SP-01: a constant system is solved while compiling."""
        system = ld.matrix([[2, 0], [0, 4]])
        expr = ld.dot(ld.solve(system, ld.vector([8, 12])), ld.vector([1, 1]))
        for assumptions in (None, Assumptions()):
            model = compile_model(expr, "complex", assumptions)
            instructions = model.programs.value.instructions
            assert [op for op, _, _ in instructions] == ["const"] * len(instructions)
            assert instructions[model.programs.value.outputs[0]][2] == 7.0

    @BACKENDS
    def test_27_unsymmetric_matrix_and_inverse_row(self, backend: str) -> None:
        """AX-27, SP-05, T-28: rows of the inverse come from the plain transpose."""
        system = ld.matrix([[X + 2, 1j], [2 - 1j, 3]])
        expr = ld.solve(system, ld.vector([p("p"), p("q")]))[1]
        at = {"p": 1.5, "q": -0.25}
        row = [
            -0.29171270718232044 + 0.057458563535911602j,
            0.35248618784530387 + 0.097237569060773481j,
        ]
        values, gradient = value_and_gradient(expr, {"x": np.array([0.75])}, at, backend)
        expected = -0.52569060773480663 + 0.061878453038674033j
        np.testing.assert_allclose(values, [expected], rtol=0, atol=1e-12)
        np.testing.assert_allclose(gradient[:, 0], row, rtol=0, atol=1e-12)
        weighted = grouped_rows(expr, "linear", {"x": THREE}, at, np.ones(3))
        assert weighted is not None
        assert weighted[0].sum() == pytest.approx(-1.6106519553420737, abs=1e-12)
        slopes = [-0.89801038489894457, 1.0545455119746275]
        np.testing.assert_allclose(weighted[1].sum(axis=1), slopes, rtol=0, atol=1e-12)
        programs = compile_model(expr, "complex", Assumptions()).programs
        assert programs.n_cached == 4  # two complex numbers


class TestSingular:
    """A zero pivot is never hidden."""

    singular = ld.matrix([[X, 2], [2 * X, 4]])
    one = np.array([1.0])

    @BACKENDS
    def test_29_is_not_finite(self, backend: str) -> None:
        """AX-29, SP-11: value and gradient, whatever the right-hand side depends on."""
        for rhs in (ld.vector([1, 2]), ld.vector([p("a"), 2]), ld.vector([p("a"), 1])):
            expr = ld.solve(self.singular, rhs)[0] * p("b")
            values, _ = value_and_gradient(expr, {"x": self.one}, {"b": 1.0}, backend)
            assert not np.isfinite(values).any()

    def test_29_names_the_system(self) -> None:
        """AX-29: the culprit is the solve, not what is done with it."""
        expr = (ld.solve(self.singular, ld.vector([1, 2]))[0] * p("a")).norm_sqr()
        value, culprit = evaluate_event(expr.node, {"x": 1.0}, {"a": 1.0})
        assert not np.isfinite(value)
        assert culprit == "solve(matrix(x, 2.0, 2.0 * x, 4.0), vector(1.0, 2.0))"
        named = ld.solve(self.singular, ld.vector([1, 2])).named("propagator")[0] * p("a")
        assert evaluate_event(named.node, {"x": 1.0}, {"a": 1.0})[1] == culprit

    @pytest.mark.parametrize("backend", ["interpreter", "cpu"])
    def test_29_likelihood_names_event_and_system(self, backend: str) -> None:
        """AX-29: an evaluation raises, with the event index."""
        system = ld.matrix([[X, 2], [2, 4]])
        model = ld.Model(ld.solve(system, ld.vector([p("a"), 2]))[0].norm_sqr())
        data = ld.Dataset.from_arrays(scalars={"x": np.array([3.0, 2.0, 1.0, 4.0])})
        term = ld.NLL(model, data=data, accepted_mc=data)
        likelihood = ld.Likelihood([term], execution=ld.Execution(backend=backend))
        with pytest.raises(ld.EvaluationError, match=r"solve\(matrix\(x, 2\.0") as caught:
            likelihood.value_and_gradient({"a": 0.7})
        assert caught.value.event == 2

    @pytest.mark.parametrize("component", [0, 1, 2])
    @pytest.mark.parametrize("zero", [0, 1, 2])
    @pytest.mark.parametrize("corner", [0.0, 1.0])
    def test_exact_zeros_do_not_hide_it(self, component: int, zero: int, corner: float) -> None:
        """SP-11: a component that a zero pivot does not reach is not finite either."""
        diagonal = [X, Y, X + Y + 1]
        values = {"x": np.array([0.0, 1.0, 1.0]), "y": np.array([1.0, 0.0, -2.0])}
        system = ld.matrix(
            [
                [diagonal[0], 0, 0],
                [0, diagonal[1], 0],
                [corner, 0, diagonal[2]],
            ]
        )
        for rhs in (ld.vector([p("a"), 1, 1]), ld.vector([1, 1, 1])):
            expr = ld.solve(system, rhs)[component]
            found, _ = value_and_gradient(expr, values, {}, "interpreter")
            assert not np.isfinite(found[zero])
            grouped = grouped_rows(expr, "linear", values, {"a": 1.0}, np.ones(3))
            assert grouped is not None
            assert not np.isfinite(grouped[0][zero])

    def test_literal_singular_matrix(self) -> None:
        """SP-01: without any event in it."""
        expr = ld.solve(ld.matrix([[1, 2], [2, 4]]), ld.vector([p("a"), X]))[0]
        values, _ = value_and_gradient(expr, {"x": self.one}, {}, "interpreter")
        assert not np.isfinite(values).any()

    @BACKENDS
    def test_branch_not_taken(self, backend: str) -> None:
        """A singular system in the other branch spoils neither value nor gradient."""
        a = p("a")
        system = ld.solve(ld.matrix([[X * a, 1], [X, 1j]]), ld.vector([a, 2]))
        expr = ld.where(X > 0, system[0] + system[1], a**2)
        x = np.array([1.0, 0.0])
        values, gradient = value_and_gradient(expr, {"x": x}, {"a": 3.0}, backend)
        assert values[1] == 9
        assert gradient[0, 1] == 6
        step = 1e-5
        up, down = (
            value_and_gradient(expr, {"x": x}, {"a": 3.0 + h}, backend)[0] for h in (step, -step)
        )
        np.testing.assert_allclose(gradient[0], (up - down) / (2 * step), rtol=1e-8)

    @BACKENDS
    def test_branch_not_taken_by_parameters(self, backend: str) -> None:
        """The same where the system is one of parameters, singular at the point in question."""
        a = p("a")
        system = ld.solve(ld.matrix([[a, 1], [a, 1j]]), ld.vector([a, 3]))[0].norm_sqr()
        model = ld.Model(ld.where(X > 5, system * X, a**2 + a + X))
        events = ld.Dataset.from_arrays(scalars={"x": np.array([1.0, 2.0])})
        execution = ld.Execution(backend=backend)
        values, gradient = model.value_and_gradient(events, {"a": 0.0}, execution)
        np.testing.assert_array_equal(values, [1, 2])
        np.testing.assert_array_equal(gradient, [[1], [1]])
        term = ld.NLL(model, data=events, accepted_mc=events)
        value, slope = ld.Likelihood([term], execution=execution).value_and_gradient({"a": 0.0})
        assert value == pytest.approx(2 * (2 * np.log(3) - np.log(2)), rel=1e-14)
        assert slope[0] == pytest.approx(2 * (2 * 2 / 3 - (1 + 1 / 2)), rel=1e-14)

    @pytest.mark.parametrize("factor", [1.0, 1 + 1j])
    def test_overflow_is_not_a_zero(self, factor: complex) -> None:
        """A squared modulus that overflows gives NaN, not a small wrong number.

        A real element that is a good pivot is not squared.
        """
        system = ld.matrix([[X * factor, p("a")], [Y * factor, 3]])
        events = {"x": np.array([1e200, 1e100]), "y": np.array([1e160, 1e100])}
        expr = ld.solve(system, ld.vector([X, Y]))[0]
        values, _ = value_and_gradient(expr, events, {"a": 1.0}, "interpreter")
        if factor == 1:
            assert values[0] == pytest.approx(1.0, rel=1e-15)
        else:
            assert not np.isfinite(values[0])
        matrix = [[1e100 * factor, 1], [1e100 * factor, 3]]
        assert values[1] == pytest.approx(np.linalg.solve(matrix, [1e100, 1e100])[0], rel=1e-15)


class TestPivots:
    """Rows are exchanged event by event."""

    @BACKENDS
    def test_zero_leading_elements(self, backend: str) -> None:
        """OP-10: elimination in the given order would divide by zero."""
        a = p("a")
        system = ld.matrix([[X, 1, 2], [a, X, 1j], [1, a, X]])
        x = np.array([0.0, 1.0, 1e-20, -3.0, 100.0])
        expr = ld.dot(ld.solve(system, ld.vector([1, a, X])), ld.vector([1, 2, 3j]))
        values, gradient = value_and_gradient(expr, {"x": x}, {"a": 0.5}, backend)

        def truth(a: complex) -> Array:
            return np.array(
                [
                    np.linalg.solve([[e, 1, 2], [a, e, 1j], [1, a, e]], [1, a, e]) @ [1, 2, 3j]
                    for e in x
                ]
            )

        np.testing.assert_allclose(values, truth(0.5), rtol=1e-14)
        slope = (truth(0.5 + 1e-5) - truth(0.5 - 1e-5)) / 2e-5
        np.testing.assert_allclose(gradient[0], slope, rtol=1e-8)

    def test_small_pivots_are_not_used(self) -> None:
        """Growth of rounding errors by 1e16 without an exchange."""
        expr = ld.solve(ld.matrix([[X, 1], [1, 1]]), ld.vector([p("a"), 2]))[0]
        values, _ = value_and_gradient(expr, {"x": np.array([1e-17])}, {"a": 1.0}, "interpreter")
        assert values[0] == pytest.approx(1.0, rel=1e-15)

    def test_literal_zeros_cost_nothing(self) -> None:
        """A diagonal system is three quotients, real ones; no exchange is considered."""
        system = ld.matrix([[X * p("a"), 0, 0], [0, p("b"), 0], [0, 0, 3]])
        found = operations(ld.solve(system, ld.vector([X, p("a"), X]))[1])
        assert not found["select"]
        assert not found["lt"]
        zeros = ld.matrix([[0, X * p("a")], [1, 0]])  # always exchanged, nothing to choose
        found = operations(ld.solve(zeros, ld.vector([X, p("a")]))[1])
        assert not found["select"]

    def test_one_factorisation_for_value_and_adjoint(self) -> None:
        """SP-10, RV-08: the pivots, one reciprocal each, are those of the value."""
        n = 4
        system = ld.matrix([[ld.complex(X * p(f"a{i}{j}"), Y) for j in range(n)] for i in range(n)])
        expr = ld.solve(system, ld.vector([p(f"b{i}") for i in range(n)]))[1].norm_sqr()
        model = compile_model(expr, "linear")
        for program in (model.programs.value, model.programs.gradient):
            assert Counter(op for op, _, _ in program.instructions)["div"] == n

    def test_real_systems_stay_real(self) -> None:
        """No part that is zero by type is computed."""
        real = ld.matrix([[X + p("a"), 2], [p("b"), X]])
        model = compile_model(ld.solve(real, ld.vector([X, p("b")]))[0], "complex")
        assert model.programs.value.instructions[model.programs.value.outputs[1]][2] == 0.0


class TestUses:
    """Solutions are vectors like any other."""

    a, b = p("a"), p("b")
    matrix = ld.matrix([[X + a, 1j * b, 0.5], [Y, 2 - 1j, a], [1, X, b + 3]])
    rhs = ld.vector([a * X, 1j, Y + b])
    events: ClassVar[dict[str, Array]] = {"x": THREE, "y": THREE[::-1] - 1}
    at: ClassVar[dict[str, float]] = {"a": 0.7, "b": -1.2}

    @BACKENDS
    def test_inverse_of_the_product(self, backend: str) -> None:
        """A (A^-1 b) = b with its derivatives, and A^-1 (A b) = b."""
        for left in (
            self.matrix @ ld.solve(self.matrix, self.rhs),
            ld.solve(self.matrix, self.matrix @ self.rhs),
        ):
            for k in range(3):
                found = value_and_gradient(left[k] + 0 * self.a, self.events, self.at, backend)
                right = value_and_gradient(
                    self.rhs[k] + 0 * self.a + 0 * self.b, self.events, self.at, backend
                )
                np.testing.assert_allclose(found[0], right[0], rtol=0, atol=1e-14)
                np.testing.assert_allclose(found[1], right[1], rtol=0, atol=1e-13)

    def test_nested_systems_and_conjugates(self) -> None:
        """A solution inside a system, its conjugate, and a scaled sum of two, in both forms."""
        inner = ld.solve(self.matrix, self.rhs)
        outer = ld.solve(ld.matrix([[inner[0], 1], [X, inner[1].conj()]]), ld.vector([inner[2], 1]))
        mixed = (2 * inner - self.rhs / 3)[0]
        for expr in (
            outer[0].norm_sqr() + inner[0].norm_sqr(),
            (outer[1] * outer[0].conj()).real(),
            (mixed * mixed.conj()).real() + outer[1].imag(),
        ):
            grouped = grouped_rows(expr, "linear", self.events, self.at, np.ones(3))
            written = written_rows(expr, "linear", self.events, self.at, np.ones(3))
            assert grouped is not None
            np.testing.assert_allclose(grouped[0], written[0], rtol=1e-13)
            np.testing.assert_allclose(grouped[1], written[1], rtol=1e-12, atol=1e-13)
            for row, name in enumerate(("a", "b")):
                ends = [
                    written_rows(
                        expr,
                        "linear",
                        self.events,
                        self.at | {name: self.at[name] + h},
                        np.ones(3),
                    )[0]
                    for h in (-2e-4, -1e-4, 1e-4, 2e-4)
                ]
                slope = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / 12e-4
                names = compile_model(expr, "linear").layout.names
                found = written[1][names.index(name)]
                np.testing.assert_allclose(found, slope, rtol=1e-8, atol=1e-9, err_msg=f"{row}")


class TestLinearForms:
    """A matrix of one class leaves the event loop."""

    matrix: tuple[tuple[Any, ...], ...] = ((3, 0.5j), (1, 2))

    def test_parameter_matrix(self) -> None:
        """SP-06 for parameters: the row of the inverse is computed once per evaluation."""
        a = p("a")
        system = ld.matrix([[a, 0.5j], [1, a + 1]])
        expr = ld.solve(system, ld.vector([X, Y]))[1]
        model = compile_model(expr, "linear", Assumptions())
        found = Counter(op for op, _, _ in model.programs.gradient.instructions)
        assert model.programs.n_cached == 2
        assert not found["div"]
        at = {"a": 2.5}
        events = {"x": THREE, "y": THREE[::-1]}
        grouped = grouped_rows(expr, "linear", events, at, np.ones(3))
        written = written_rows(expr, "linear", events, at, np.ones(3))
        assert grouped is not None
        np.testing.assert_allclose(grouped[0], written[0], rtol=1e-14)
        np.testing.assert_allclose(grouped[1], written[1], rtol=1e-13)

    def test_constant_matrix(self) -> None:
        """SP-01: both classes on the right; the inverse is a table of literals."""
        expr = ld.solve(ld.matrix(self.matrix), ld.vector([X * p("a"), p("a") + Y]))[0].norm_sqr()
        assert not operations(expr, Assumptions())["div"]
        at, events = {"a": 0.7}, {"x": THREE, "y": THREE[::-1]}
        grouped = grouped_rows(expr, "linear", events, at, np.ones(3))
        written = written_rows(expr, "linear", events, at, np.ones(3))
        assert grouped is not None
        np.testing.assert_allclose(grouped[0], written[0], rtol=1e-14)
        np.testing.assert_allclose(grouped[1], written[1], rtol=1e-13)

    def test_one_class_stays_whole(self) -> None:
        """An event-only system is two columns, however many unknowns it has."""
        system = ld.matrix([[X, 1j, 2], [3, Y, 1], [X * Y, 1, 4]])
        expr = (ld.solve(system, ld.vector([X, Y, 1]))[2] * p("a")).norm_sqr()
        assert compile_model(expr, "linear", Assumptions()).programs.n_cached <= 2


@st.composite
def systems(draw: st.DrawFn) -> tuple[int, str, int]:
    """Size, where the matrix comes from, seed."""
    return (
        draw(st.integers(1, 8)),
        draw(st.sampled_from(["events", "parameters", "mixed"])),
        draw(st.integers(0, 2**32 - 1)),
    )


@pytest.mark.parametrize(
    ("backend", "examples"),
    [
        pytest.param("interpreter", 60, marks=pytest.mark.slow),
        ("interpreter", 12),
        ("cpu", 12),
    ],
)
def test_random_systems(backend: str, examples: int) -> None:
    """XE-04, OP-10: within the error bound of the condition number of LAPACK's solution.

    A solution by partial pivoting is exact for a matrix that differs in the last bits: relative
    error of order n eps cond(A).
    """

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(systems())
    def run(case: tuple[int, str, int]) -> None:
        n, source, seed = case
        rng = np.random.default_rng(seed)
        events = 16
        a = rng.normal(size=(events, n, n, 2)) * 10.0 ** rng.uniform(-3, 3, size=(events, n, 1, 1))
        if source != "events":
            a[:] = a[0]
        b = rng.normal(size=(events, n))
        expr, columns, at = _random_system(n, source, a, b)
        values, gradient = value_and_gradient(expr, columns, at, backend)
        matrix = a[..., 0] + 1j * a[..., 1]
        if source == "mixed":
            matrix = matrix + columns["t"][:, np.newaxis, np.newaxis] * np.eye(n)
        truth = np.linalg.solve(matrix, b[..., np.newaxis])[..., 0]
        size = np.linalg.norm(truth, axis=1)
        bound = 64 * n * 2.0**-53 * np.linalg.cond(matrix)
        assert (np.abs(values - truth[:, 0]) <= bound * size).all(), (n, source)
        if source != "events":  # dx_0 / dRe A_kl = -(A^-1)_0k x_l
            inverse = np.linalg.inv(matrix)
            expected = -np.einsum("ek,el->ekl", inverse[:, 0], truth).reshape(events, -1)
            scale = np.linalg.norm(inverse, axis=(1, 2)) * size
            error = np.abs(gradient.T - expected).max(axis=1)
            assert (error <= 4 * bound * scale).all(), (n, source)
        _same_bits(expr, columns, at)

    run()


def _random_system(
    n: int, source: str, a: Array, b: Array
) -> tuple[Expr, dict[str, Array], dict[str, float]]:
    columns = {f"b{i}": b[:, i] for i in range(n)} | {"t": np.linspace(-1, 1, len(b))}
    at: dict[str, float] = {}
    rows: list[list[Expr]] = []
    for i in range(n):
        rows.append([])
        for j in range(n):
            re, im = f"re{i}{j}", f"im{i}{j}"
            if source == "events":
                columns |= {re: a[:, i, j, 0], im: a[:, i, j, 1]}
                entry = ld.complex(ld.scalar(re), ld.scalar(im))
            else:
                at[re] = float(a[0, i, j, 0])
                entry = ld.complex(ld.parameter(re), float(a[0, i, j, 1]))
                if source == "mixed" and i == j:
                    entry = entry + ld.scalar("t")
            rows[-1].append(entry)
    rhs = ld.vector([ld.scalar(f"b{i}") for i in range(n)])
    return ld.solve(ld.matrix(rows), rhs)[0], columns, at


def _same_bits(expr: Expr, columns: dict[str, Array], at: dict[str, float]) -> None:
    """Kernel and interpreter do the same operations in the same order."""
    model = compile_model(expr, "complex")
    inputs = event_inputs(model, columns, "interpreter")
    frontier = model.invariants.frontier(model.layout.vector(at))
    if len(model.programs.gradient.instructions) > 400:
        return  # compiling dozens of large programs takes minutes
    rows = [
        run_program(model.programs.gradient, inputs, frontier, backend)
        for backend in ("interpreter", "cpu")
    ]
    np.testing.assert_array_equal(*rows)
