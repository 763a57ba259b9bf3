"""Systems in a fixed order of elimination, and the region for events that need another one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import models as benchmark_models
import numpy as np
import pytest
from compiled_runs import event_inputs, run_program, value_and_gradient
from exact_systems import exact_inverse
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, Program, compile_model, pairs
from laddu_dask.compiler.ir import Region
from laddu_dask.compiler.lower import lower
from laddu_dask.compiler.program import cut
from laddu_dask.expr import Expr
from laddu_dask.kernels import get_backend
from laddu_dask.kernels.interpreter import run_block

Array = NDArray[Any]
X = ld.scalar("x")
BACKENDS = pytest.mark.parametrize("backend", ["interpreter", "cpu"])
EPSILON = 2.0**-53
#: What is counted as no operation: leaves, and what compiled code does without one.
FREE = {"input", "parameter", "const", "cold", "merge"}


def fast_operations(program: Program) -> Counter[str]:
    """Operations per event where no event needs a region."""
    return Counter(op for op, _, _ in program.instructions if op not in FREE)


def regions(program: Program) -> list[Region]:
    return [x for _, _, x in program.instructions if isinstance(x, Region)]


def needed(model: Any, inputs: Array, frontier: Array) -> Array:
    """Which events run the first region of the value program."""
    program = model.programs.value
    values = run_block(program, inputs, frontier)
    first = next(args[0] for _, args, x in program.instructions if isinstance(x, Region))
    return np.asarray(values[first])


def test_free_couplings_cost_what_they_must() -> None:
    """Section 6 of the design: 401 + 273 operations or fewer, those that recompute columns too.

    Counted are all arithmetic operations and comparisons of the event program, the weight and the
    test of the pivots included, on the way that accurate events take: once with gradient, once
    without.
    """
    expr = benchmark_models.k_matrix_free(ld)
    programs = compile_model(expr, "linear", Assumptions()).programs
    assert sum(fast_operations(programs.gradient).values()) <= 401 + 273
    assert sum(fast_operations(programs.value).values()) <= 401
    assert fast_operations(programs.gradient)["div"] == 4
    assert not fast_operations(programs.gradient)["select"]
    assert len(regions(programs.value)) == 1
    assert len(regions(programs.gradient)) == 2  # the system and its adjoint


def test_value_does_not_depend_on_what_else_is_computed() -> None:
    """Both programs of a model eliminate in the same order."""
    expr = benchmark_models.k_matrix_free(ld)
    for assumptions in (None, Assumptions()):
        model = compile_model(expr, "linear", assumptions)
        s = np.random.default_rng(1).uniform(1.25, 4.5, 64)
        inputs = event_inputs(model, {"s": s}, "interpreter")
        inputs = np.concatenate([inputs[: model.programs.n_cached], np.ones((1, 64))])
        frontier = model.invariants.frontier(model.layout.defaults)
        value, gradient = (
            run_program(program, inputs, frontier, "interpreter")
            for program in (model.programs.value, model.programs.gradient)
        )
        np.testing.assert_array_equal(value[0], gradient[0])


def test_python_imaginary_unit_has_no_real_part() -> None:
    """``-1j`` is -0 - 1j in Python; products with it are imaginary, like those with ``1j``."""
    for unit in (1j, -1j):
        model = compile_model(unit * X * ld.parameter("a"), "complex")
        real, _ = model.programs.value.outputs
        assert model.programs.value.instructions[real][2] == 0.0


class TestAccuracy:
    """XE-04, OP-10: error bounds by the condition number, against rational arithmetic."""

    kinds = ("random", "scaled", "nearly singular", "zero diagonal", "small diagonal", "reversed")

    @classmethod
    def matrices(cls, n: int, *, is_real: bool, seed: int) -> Array:
        """One matrix of each kind; short numbers, which keep exact arithmetic short."""
        rng = np.random.default_rng(seed)
        a = rng.normal(size=(len(cls.kinds), n, n)) + 0j
        if not is_real:
            a += 1j * rng.normal(size=a.shape)
        a[1] *= 10.0 ** rng.uniform(-4, 4, size=(n, 1)) * 10.0 ** rng.uniform(-4, 4, size=n)
        a[2, -1] = a[2, 0] * 0.5 + (1e-6 * a[2, -1] if n > 1 else 1e-6)
        diagonal = np.arange(n)
        if n > 1:
            a[3, diagonal, diagonal] = 0
        a[4, diagonal, diagonal] *= 1e-9
        a[5] = np.eye(n)[::-1] * a[5] + 1e-12 * a[0]
        return a.astype(np.complex64).astype(complex)

    @staticmethod
    def system(n: int, *, is_real: bool) -> tuple[list[list[Expr]], list[Expr]]:
        """Every element is an event number plus a parameter of value zero."""

        def element(name: str) -> Expr:
            real = ld.scalar(f"re{name}") + ld.parameter(f"d{name}")
            return real if is_real else ld.complex(real, ld.scalar(f"im{name}"))

        rows = [[element(f"{i}{j}") for j in range(n)] for i in range(n)]
        return rows, [ld.scalar(f"b{i}") for i in range(n)]

    @staticmethod
    def columns(a: Array, b: Array) -> dict[str, Array]:
        n = b.shape[1]
        found = {f"b{i}": b[:, i] for i in range(n)}
        for i in range(n):
            for j in range(n):
                found |= {f"re{i}{j}": a[:, i, j].real.copy(), f"im{i}{j}": a[:, i, j].imag.copy()}
        return found

    @pytest.mark.parametrize("is_real", [True, False])
    @pytest.mark.parametrize("n", range(1, 9))
    def test_value_and_gradient(self, n: int, is_real: bool) -> None:
        """One component, and its derivative by every element: ``dx_0 = -(A^-1)_0k x_l dA_kl``."""
        a = self.matrices(n, is_real=is_real, seed=n)
        b = np.random.default_rng(n).normal(size=(len(a), n)).astype(np.float32).astype(float)
        rows, rhs = self.system(n, is_real=is_real)
        expr = ld.solve(ld.matrix(rows), ld.vector(rhs))[0]
        names = compile_model(expr, "complex").layout.names
        at = dict.fromkeys(names, 0.0)
        values, gradient = value_and_gradient(expr, self.columns(a, b), at, "interpreter")
        for event, kind in enumerate(self.kinds):
            inverse = exact_inverse(a[event])
            x = inverse @ b[event]
            condition = np.linalg.norm(inverse) * np.linalg.norm(a[event])
            bound = 64 * n * EPSILON * condition
            assert abs(values[event] - x[0]) <= bound * np.linalg.norm(x), kind
            expected = -np.outer(inverse[0], x)
            found = np.array(
                [[gradient[names.index(f"d{k}{l}"), event] for l in range(n)] for k in range(n)]
            )
            scale = np.linalg.norm(inverse) * np.linalg.norm(x)
            assert np.abs(found - expected).max() <= 4 * bound * scale, kind

    @pytest.mark.parametrize("is_real", [True, False])
    def test_residuals_are_small_however_ill_the_system(self, is_real: bool) -> None:
        """Backward stability: ``|b - A x|`` is a few roundings of ``|A| |x|`` for any condition."""
        n, seeds = 4, 40
        a = np.concatenate([self.matrices(n, is_real=is_real, seed=seed) for seed in range(seeds)])
        b = np.random.default_rng(3).normal(size=(len(a), n))
        rows, rhs = self.system(n, is_real=is_real)
        graph, solution = lower(ld.solve(ld.matrix(rows), ld.vector(rhs)).node)
        columns = self.columns(a, b) | {f"d{i}{j}": 0.0 for i in range(n) for j in range(n)}
        leaves = {
            index: str(payload)
            for index, (op, _, payload) in enumerate(graph.ops)
            if op in {"column", "parameter"}
        }
        parts = [part(graph, x) for x in solution for part in (pairs.re, pairs.im)]
        program = cut(graph, parts, {index: row for row, index in enumerate(leaves)}, {})
        inputs = np.array([np.broadcast_to(columns[name], len(a)) for name in leaves.values()])
        found = run_program(program, inputs, np.zeros(0), "interpreter")
        x = (found[::2] + 1j * found[1::2]).T
        residual = np.abs(b - np.einsum("eij,ej->ei", a, x)).max(axis=1)
        size = np.linalg.norm(a, axis=(1, 2)) * np.linalg.norm(x, axis=1)
        assert (residual <= 256 * EPSILON * size).all()

    def test_most_random_systems_need_no_exchange(self) -> None:
        """And those that do are the ones made for it."""
        n, seeds = 4, 40
        a = np.concatenate([self.matrices(n, is_real=False, seed=s) for s in range(seeds)])
        rows, rhs = self.system(n, is_real=False)
        model = compile_model(ld.solve(ld.matrix(rows), ld.vector(rhs))[0], "complex")
        inputs = event_inputs(model, self.columns(a, np.ones((len(a), n))), "interpreter")
        frontier = model.invariants.frontier(np.zeros(len(model.layout.names)))
        found = needed(model, inputs, frontier).reshape(seeds, -1)
        share = dict(zip(self.kinds, found.mean(axis=0), strict=True))
        assert share["random"] < 0.2
        assert share["zero diagonal"] == share["small diagonal"] == share["reversed"] == 1


class TestRegions:
    """What runs for few events."""

    a, b = ld.parameter("a"), ld.parameter("b")
    expr = ld.solve(
        ld.matrix([[X + a, 1j * b, 0.5], [X * b, 2 - 1j, a], [1, X, b + 3]]),
        ld.vector([a * X, 1j, X + b]),
    )[1].norm_sqr()
    at: ClassVar[dict[str, float]] = {"a": 0.75, "b": -1.2}

    @BACKENDS
    def test_neighbours_do_not_matter(self, backend: str) -> None:
        """An event has the same bits among events that need the region and among those that do not.

        The pivot of the event at -0.75 is zero.
        """
        model = compile_model(self.expr, "linear")
        frontier = model.invariants.frontier(model.layout.vector(self.at))

        def run(x: Array) -> tuple[Array, Array]:
            inputs = event_inputs(model, {"x": x}, "interpreter")
            rows = run_program(model.programs.gradient, inputs, frontier, backend)
            return rows, needed(model, inputs, frontier)

        plain = np.linspace(1.0, 2.0, 16)
        mixed = plain.copy()
        mixed[5] = -0.75
        (alone, none), (among, one) = run(plain), run(mixed)
        assert not none.any()
        np.testing.assert_array_equal(np.flatnonzero(one), [5])
        others = np.arange(16) != 5
        np.testing.assert_array_equal(among[:, others], alone[:, others])
        crowd, _ = run(np.full(16, -0.75))
        np.testing.assert_array_equal(crowd, np.repeat(among[:, 5:6], 16, axis=1))

    def test_single_precision(self) -> None:
        """FP-08: to 1e-6 on both ways, with the same bits by both kernels."""
        model = compile_model(self.expr, "linear")
        frontier = model.invariants.frontier(model.layout.vector(self.at))
        inputs = np.resize([1.0, -0.75, 2.0, 1e-3], (1, 8))

        def run(precision: Any, kind: type, backend: str) -> Array:
            program = replace(model.programs.gradient, precision=precision)
            out = np.empty((program.n_outputs, 8))
            get_backend(backend).compile(program).map(inputs.astype(kind), frontier, out, 1.0)
            return out

        expected = run("f64", np.float64, "interpreter")
        first = run("f32", np.float32, "interpreter")
        second = run("f32", np.float32, "cpu")
        np.testing.assert_array_equal(first, second)
        np.testing.assert_allclose(first, expected, rtol=0, atol=1e-6 * np.abs(expected).max())

    @BACKENDS
    def test_both_ways_meet(self, backend: str) -> None:
        """Value and gradient are continuous where events begin to need exchanges."""
        x = -0.75 + np.array([1e-3, 0.0, -1e-3]) * 1e-9
        values, gradient = value_and_gradient(self.expr, {"x": x}, self.at, backend)
        assert np.isfinite(gradient).all()
        np.testing.assert_allclose(values, values[1], rtol=1e-11)
        np.testing.assert_allclose(gradient, gradient[:, [1, 1, 1]], rtol=1e-10)

    @BACKENDS
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_not_finite_stays_so(self, backend: str, bad: float) -> None:
        """A comparison with NaN does not accept a pivot, and no other event suffers."""
        x = np.array([1.0, bad, 2.0])
        values, gradient = value_and_gradient(self.expr, {"x": x}, self.at, backend)
        assert not np.isfinite(values[1])
        assert np.isfinite(values[[0, 2]]).all()
        assert np.isfinite(gradient[:, [0, 2]]).all()

    def test_systems_of_parameters(self) -> None:
        """The scalar program takes the same ways: at a = 0 the first pivot is zero."""
        a, c = ld.parameter("a"), ld.parameter("c")
        solution = ld.solve(ld.matrix([[a, 2], [3 + a, c]]), ld.vector([1, a + 4]))
        expr = solution[0] * X
        for at in (0.0, 1.0):
            x1 = 1 / 3 * (4 - 5 / 2) if at == 0 else np.linalg.solve([[1, 2], [4, 5]], [1, 5])[0]
            values, gradient = value_and_gradient(
                expr, {"x": np.ones(1)}, {"a": at, "c": 5.0}, "interpreter"
            )
            assert values[0] == pytest.approx(x1, rel=1e-14)
            determinant = at * 5 - 2 * (3 + at)
            numerator = 5 - 2 * (at + 4)
            slope = (-2 * determinant - numerator * 3) / determinant**2
            assert gradient[0, 0] == pytest.approx(slope, rel=1e-13)

    def test_triangles_have_no_region(self) -> None:
        """Where no row can be exchanged there is nothing to test."""
        a = self.a
        upper = ld.matrix([[X + a, a, X], [0, X * a, 1], [0, 0, a + 2]])
        model = compile_model(ld.solve(upper, ld.vector([1, X, a]))[0], "complex")
        assert not regions(model.programs.gradient)

    def test_literals_choose_their_pivot_in_advance(self) -> None:
        """A column of literals is no matter for events."""
        system = ld.matrix([[0, X], [2, self.a]])
        model = compile_model(ld.solve(system, ld.vector([1, self.b]))[0], "complex")
        assert not regions(model.programs.gradient)

    @BACKENDS
    def test_block_without_pivot(self, backend: str) -> None:
        """``x u + v = u + x v = a`` has u = v = a / (1 + x), at x = 0 only by an exchange."""
        system = ld.matrix([[X, 1, 0], [1, X, 0], [0, 0, X + 2]])
        solution = ld.solve(system, ld.vector([self.a, self.a, self.a]))
        x = np.array([0.0, 1e-3, 0.5, 2.0])
        for k in range(2):
            values, gradient = value_and_gradient(solution[k], {"x": x}, {"a": 3.0}, backend)
            np.testing.assert_allclose(values, 3 / (1 + x), rtol=1e-15)
            np.testing.assert_allclose(gradient[0], 1 / (1 + x), rtol=1e-15)

    def test_text_shows_the_region(self) -> None:
        """Indented, and results by number."""
        lines = ld.Model(self.expr).kernel_source().splitlines()
        assert sum(line.endswith("):") and " = cold(v" in line for line in lines) == 2
        assert any(line.startswith("    return v") for line in lines)
        assert any(line.startswith("v") and " = merge(v" in line for line in lines)


class TestVerifier:
    """IR-03: malformed regions are refused."""

    program = Program(
        (
            ("input", (), "0"),
            ("lt", (0, 0), None),
            (
                "cold",
                (1, 0),
                Region((("input", (), "0"), ("neg", (0,), None)), (1,)),
            ),
            ("merge", (2, 0), "0"),
        ),
        1,
        0,
        (3,),
    )

    def changed(self, index: int, *instruction: Any) -> Program:
        instructions = list(self.program.instructions)
        instructions[index] = instruction
        return replace(self.program, instructions=tuple(instructions))

    @pytest.mark.parametrize(
        ("index", "instruction", "message"),
        [
            (2, ("cold", (1, 0), None), "instruction 2: cold, and nothing else, has code"),
            (1, ("lt", (0, 0), Region((), ())), "instruction 1: cold, and nothing else, has code"),
            (2, ("cold", (0, 0), Region((), ())), "instruction 2: cold mixes up a condition"),
            (2, ("cold", (1,), Region((("input", (), "0"),), (0,))), "region instruction 0: input"),
            (2, ("cold", (1, 0), Region((("input", (), "0"),), (1,))), "region output 1 of 1"),
            (3, ("merge", (2, 0), "1"), "instruction 3: merge of"),
            (3, ("merge", (2, 3), "0"), "instruction 3: merge has operands"),
            (3, ("abs", (0,), None), r"\(2, 0\) of a region is not merged"),
            (3, ("merge", (0, 0), "0"), "instruction 3: merge mixes up a region"),
            (3, ("add", (2, 0), None), "instruction 3: add mixes up a region"),
        ],
    )
    def test_is_rejected(self, index: int, instruction: Any, message: str) -> None:
        self.program.verify()
        with pytest.raises(ld.LadduError, match=message):
            self.changed(index, *instruction).verify()

    def test_results_are_merged_once(self) -> None:
        """Kernels replace values in place."""
        twice = (*self.program.instructions, ("merge", (2, 0), "0"))
        with pytest.raises(ld.LadduError, match="instruction 4: merge of"):
            replace(self.program, instructions=twice).verify()

    def test_region_is_no_output(self) -> None:
        with pytest.raises(ld.LadduError, match="output 2 is a region"):
            replace(self.program, outputs=(2,)).verify()

    def test_digest_covers_the_code(self) -> None:
        other = Region((("input", (), "0"), ("abs", (0,), None)), (1,))
        assert self.changed(2, "cold", (1, 0), other).digest != self.program.digest
        same = Region((("input", (), "0"), ("neg", (0,), None)), (1,))
        assert self.changed(2, "cold", (1, 0), same).digest == self.program.digest

    @BACKENDS
    def test_runs(self, backend: str) -> None:
        """Where the condition holds the value is replaced, elsewhere it is not."""
        instructions = list(self.program.instructions)
        instructions[1] = ("const", (), 0.0)
        instructions.insert(2, ("lt", (0, 1), None))
        region = Region((("input", (), "0"), ("neg", (0,), None)), (1,))
        region = replace(region, outputs=(1, 1))  # one number replaces two
        instructions[3:] = [
            ("cold", (2, 0), region),
            ("merge", (3, 0), "0"),
            ("merge", (3, 1), "1"),
        ]
        program = replace(self.program, instructions=tuple(instructions), outputs=(4, 5))
        program.verify()
        x = np.array([[1.0, -2.0, 3.0, -4.0, np.nan]])
        found = run_program(program, x, np.zeros(0), backend)
        np.testing.assert_array_equal(found[0], [1.0, 2.0, 3.0, 4.0, np.nan])
        np.testing.assert_array_equal(found[1], [0.0, 2.0, 0.0, 4.0, 0.0])
