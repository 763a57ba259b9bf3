"""The regrouped form: few operations in the event loop, and the same result as the written form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled_runs import run_program
from grouped_runs import findings, grouped_rows, written_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from oracle import evaluate
from random_expressions import EVENTS, Truth, columns, point, scalars

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, Transform, compile_model
from laddu_dask.compiler.algebra import Algebra
from laddu_dask.compiler.normalize import normalize
from laddu_dask.expr import Expr

Array = NDArray[Any]


@pytest.mark.parametrize("transform", ["linear", "log"])
def test_grouped_and_written_form_agree(transform: Transform) -> None:
    """DC-12: regrouping changes no value beyond rounding, on random expressions."""
    compared = [0, 0]

    @settings(
        max_examples=120,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(scalars(4), st.integers(0, 2**32 - 1))
    def run(expr: Expr, seed: int) -> None:
        events, at = columns(seed), point(seed)
        weights = np.random.default_rng(seed).normal(size=EVENTS)
        with np.errstate(all="ignore"):
            grouped = grouped_rows(expr, transform, events, at, weights)
            if grouped is None:
                return
            value, slope = written_rows(expr, transform, events, at, weights)
            truth = Truth(expr, seed)
            real = truth.values.real
            good = truth.regular & np.isfinite(value) & np.isfinite(slope).all(axis=0)
            good &= truth.spread <= 1e-13 * np.abs(real)
            if transform == "log":
                good &= (real > 0) & (np.abs(real - 1) > 1e-2)
            size = np.abs(slope).max(axis=0, initial=0.0)
            # A derivative that is small against the value's own scale is rounding of larger parts.
            steady = truth.gradient_error.max(axis=0, initial=0.0) <= 1e-8 * np.abs(real)
        np.testing.assert_allclose(grouped[0][good], value[good], rtol=1e-10)
        error = np.abs(grouped[1] - slope).max(axis=0, initial=0.0)
        allowed = 1e-8 * (size + np.abs(weights))
        assert (error <= allowed)[good & steady].all(), expr
        compared[0] += int(good.sum())
        compared[1] += EVENTS

    run()
    assert compared[0] > 0.3 * compared[1]


XC, P = ld.scalar("x"), ld.parameter("p")


@pytest.mark.parametrize(
    "expr",
    [
        (P * XC.sqrt()).norm_sqr(),
        abs(P * XC.sqrt()) ** 2,
        P * XC.sqrt().imag() + 1,
        P + XC.log().imag(),
        (P * XC.sqrt().conj() * XC.sqrt()).real(),
        1j * P * XC.sqrt(),
        (P * (XC**0.25).conj() * XC**0.25).real(),
        P * (XC ** (0.5 + 1j)).conj(),
        P * (1 + XC.sqrt().exp()).norm_sqr(),
        ld.where(XC.sqrt().imag() > 0.5, P, 2 * P),
        (XC.sqrt() + 2).sqrt().norm_sqr() * P,
    ],
)
@pytest.mark.parametrize("x", [[-4.0, 9.0, -1.0], [-4.0, -1.0, -9.0], [4.0, 1.0, 9.0]])
def test_signs_matter_where_the_root_has_gone(expr: Expr, x: list[float]) -> None:
    """DC-12: |sqrt(x)|**2 is x for x >= 0 only: the assumption is checked though none is left."""
    events = {"x": np.array(x)}
    found = grouped_rows(expr, "linear", events, {"p": 1.5}, np.ones(3))
    assert found is not None
    exact = evaluate(expr, events, {"p": 1.5}).real
    np.testing.assert_allclose(np.broadcast_to(found[0], 3), exact, rtol=1e-13, atol=1e-15)


def test_no_sign_is_asked_for_where_it_does_not_matter() -> None:
    """sqrt(x)**2 is x on both sides of zero: a closed channel costs no second preparation."""
    model = compile_model(P * XC.sqrt() ** 2, "linear", Assumptions())
    assert not model.programs.checks
    model = compile_model(P * XC.sqrt(), "linear", Assumptions())
    assert [check.property for check in model.programs.checks] == ["nonnegative"]


class TestAssumptions:
    """What is taken for granted about events is checked, and weakened where it fails."""

    x, a = ld.scalar("x"), ld.parameter("a", initial=0.7)
    expr = (a * x.sqrt() + 1j * a).norm_sqr()

    @pytest.mark.parametrize(
        ("low", "high", "left"),
        [(0.5, 2.0, []), (-2.0, -0.5, ["negative"]), (-1.0, 1.0, ["open"])],
        ids=["open channel", "closed channel", "threshold inside"],
    )
    def test_sign_of_a_root(self, low: float, high: float, left: list[str]) -> None:
        """D1: below threshold the root is imaginary, whatever the first form assumed."""
        x = np.linspace(low, high, 32)
        assumptions = Assumptions()
        while True:
            model = compile_model(self.expr, "linear", assumptions)
            rows = run_program(model.programs.prepare, x[np.newaxis], np.zeros(0), "interpreter")
            found = findings(model, rows)
            if not found:
                break
            assumptions = assumptions.weaken(found)
        assert list(assumptions.weakened.values()) == left
        at = {"a": 0.7}
        grouped = grouped_rows(self.expr, "linear", {"x": x}, at, np.ones(32))
        assert grouped is not None
        expected = np.abs(0.7 * np.sqrt(x + 0j) + 0.7j) ** 2
        np.testing.assert_allclose(grouped[0], expected, rtol=1e-14)
        np.testing.assert_allclose(grouped[1][0], 2 * expected / 0.7, rtol=1e-14)

    def test_a_second_contradiction_leaves_the_sign_open(self) -> None:
        """Negative in one partition and positive in another is neither."""
        digest = b"0" * 16
        assumptions = Assumptions().weaken({digest: "negative"})
        assert assumptions.sign(digest) == "negative"
        assert assumptions.weaken({digest: "open"}).sign(digest) == "open"

    def test_sign_of_a_parameter_is_guarded(self) -> None:
        """A pole that moves below threshold sends the evaluation to the written form."""
        model = compile_model((self.a.sqrt() * self.x + 1j).norm_sqr(), "linear", Assumptions())
        assert model.invariants.guards == ("nonnegative",)
        assert model.invariants.valid_frontier(np.array([0.5])) is not None
        assert model.invariants.valid_frontier(np.array([-0.5])) is None
        assert model.invariants.valid_frontier(np.array([np.nan])) is None

    def test_a_squared_root_needs_no_sign(self) -> None:
        """What is not computed cannot be contradicted."""
        model = compile_model(self.a * self.x.sqrt() ** 2, "linear", Assumptions())
        assert model.programs.checks == ()

    def test_zero_times_events_needs_finite_events(self) -> None:
        """D8: a term goes away only under the checked assumption that it is finite."""
        zero = ld.Expr(0.0)
        model = compile_model(self.a + zero * (self.x * self.a), "linear", Assumptions())
        assert [check.property for check in model.programs.checks] == ["finite"]
        assert model.invariants.guards == ("finite",)
        rows = run_program(
            model.programs.prepare, np.array([[1.0, np.nan]]), np.zeros(0), "interpreter"
        )
        found = findings(model, rows)
        kept = compile_model(
            self.a + zero * (self.x * self.a), "linear", Assumptions().weaken(found)
        )
        assert kept.programs.checks == ()
        assert kept.programs.n_cached == 1


class TestAlgebra:
    """Identities that hold for every finite value, and those that must not be used."""

    x, y = ld.scalar("x"), ld.scalar("y")
    z = ld.complex(x, y)

    def same(self, left: Expr, right: Expr) -> bool:
        """Whether two expressions have one normal form."""
        algebra = Assumptions()
        return normalize(left.node, algebra)[1].digest == normalize(right.node, algebra)[1].digest

    def test_identities(self) -> None:
        """Order, association and spelling do not matter."""
        x, y, z = self.x, self.y, self.z
        assert self.same(x * y * 2, 2 * (y * x))
        assert self.same(x + (y + 1) + 2, 3 + y + x)
        assert self.same(z * z.conj(), z.norm_sqr())
        assert self.same((z * x).norm_sqr(), z.norm_sqr() * x**2)
        assert self.same(z.conj().conj(), z)
        assert self.same((x * y) ** 3, x**3 * y**3)
        assert self.same(1 / (x / y), y / x)
        assert self.same((x * z).real(), x * z.real())
        assert self.same((4 * x).sqrt(), 2 * x.sqrt())
        assert self.same(x - y, -(y - x))

    def test_quotients_and_differences_stay(self) -> None:
        """D8: x/x is NaN at zero, x - x is NaN at infinity."""
        assert not self.same(self.x / self.x, ld.Expr(1.0))
        assert not self.same(self.x - self.x, ld.Expr(0.0))

    def test_literals_keep_their_bits(self) -> None:
        """Nothing is folded into a literal that stands alone."""
        algebra = Algebra(Assumptions())
        assert algebra.mul([algebra.lit(0.1), algebra.make("column", data="x")]).args[0].data in (
            0.1,
            "x",
        )

    def test_long_sums_take_linear_time(self) -> None:
        """2 000 terms, one sum: operands are gathered once, not again at every plus."""
        total: Expr = ld.Expr(0.5)
        for i in range(2000):
            total = total + ld.scalar(f"x{i}") * ld.parameter(f"p{i}")
        _, term = normalize(total.node, Assumptions())
        assert term.op == "add"
        assert len(term.args) == 2001

    def test_deep_chains_compile(self) -> None:
        """Ten thousand alternating operations need no recursion."""
        value: Expr = self.x
        a = ld.parameter("a", initial=0.5)
        for _ in range(5000):
            value = value * a + 1.0
        programs = compile_model(value, "linear", Assumptions()).programs
        assert programs.n_cached == 1
