"""Separable integrals: what is a polynomial in parameter values, and how many statistics it has."""

from __future__ import annotations

import math
from typing import Any

import models as benchmark_models
import numpy as np
import pytest
from compiled_runs import run_program
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.compiler import (
    Assumptions,
    Facts,
    NormalForm,
    compile_integral,
    compile_model,
    propose,
)
from laddu_dask.compiler.integral import probe_integral
from laddu_dask.compiler.normalize import normalize
from laddu_dask.compiler.separable import separate
from laddu_dask.expr import Expr

Array = NDArray[Any]

WAVES = [ld.complex(ld.scalar(f"a{k}re"), ld.scalar(f"a{k}im")) for k in range(4)]
SUM = sum(
    (benchmark_models.coupling(ld, f"w{k}") * wave for k, wave in enumerate(WAVES)), ld.Expr(0.0)
)
SCALE, BACKGROUND = ld.parameter("scale", initial=1.5), ld.parameter("background", initial=0.4)
X, Y, PHI = ld.scalar("x"), ld.scalar("y"), ld.scalar("phi")


def wave(mass: float, width: float, l: int, m: int) -> Expr:
    """A resonance of fixed shape with its angular function."""
    shape = ld.relativistic_breit_wigner(X, mass=mass, width=width, mass1=0.1, mass2=0.1, l=l)
    return shape * ld.spherical_harmonic(l, m, costheta=Y, phi=PHI)


F0, F2 = wave(1.5, 0.11, 0, 0), wave(1.27, 0.19, 2, 1)


def polarized() -> Expr:
    """A density matrix of events between two helicities that share two waves."""
    s_wave, d_wave = benchmark_models.coupling(ld, "s"), benchmark_models.coupling(ld, "d")
    amplitudes = [s_wave * F0 + d_wave * F2, s_wave * F0 - d_wave * F2.conj()]
    degree, angle = ld.scalar("pol"), ld.scalar("ang")
    density = [
        [ld.Expr(0.5), -0.5 * degree * ld.cis(-2 * angle)],
        [-0.5 * degree * ld.cis(2 * angle), ld.Expr(0.5)],
    ]
    total = ld.Expr(0.0)
    for i in range(2):
        row = density[i][0] * amplitudes[0] + density[i][1] * amplitudes[1]
        total = total + amplitudes[i].conj() * row
    return total.real()


def solved() -> list[Expr]:
    """Components of a system of four channels, whose matrix has no parameters."""
    matrix = [[(X + 1.0 + i) if i == j else 0.1j * Y * (i + j) for j in range(4)] for i in range(4)]
    strengths = [benchmark_models.coupling(ld, f"b{k}") for k in range(5)]
    rates = np.random.default_rng(4).uniform(0.2, 1.0, (4, 5))
    production = [
        sum((strengths[k] * float(rates[i, k]) * X**k for k in range(5)), ld.Expr(0.0))
        for i in range(4)
    ]
    solution = ld.solve(ld.matrix(matrix), ld.vector(production))
    return [solution[i] for i in range(4)]


F = solved()
Y20 = ld.spherical_harmonic(2, 0, costheta=Y, phi=PHI)

#: Intensity, products, and statistics: the sum of weights serves all that is constant.
CASES = {
    "two coherent sums of ten": (benchmark_models.waves(ld), 200, 200),
    "one sum of four": (SUM.norm_sqr(), 16, 16),
    "scale in front": (SCALE * SUM.norm_sqr(), 16, 16),
    "A conj(A)": (SUM * SUM.conj(), 16, 16),
    "real part of A conj(A)": ((SUM * SUM.conj()).real(), 16, 16),
    "literal and background": (SUM.norm_sqr() + 0.05 + BACKGROUND, 18, 17),
    "sum with a real parameter": ((SUM + BACKGROUND).norm_sqr(), 25, 25),
    "polar coefficient": ((F0 + ld.polar_complex(SCALE, BACKGROUND) * F2).norm_sqr(), 4, 4),
    "density matrix": (polarized(), 4, 4),
    "scaled density matrix": (SCALE * polarized() + 0.05, 5, 5),
    "component of a solution": (F[1].norm_sqr(), 25, 25),
    "component and angle": ((F[1] * Y20).norm_sqr() + 0.05, 26, 26),
    "two components": (F[0].norm_sqr() + F[1].norm_sqr(), 25, 25),
    "linear real terms": (SCALE * X**2 + BACKGROUND * Y + 1, 3, 3),
}


def events(names: tuple[str, ...], n: int = 200) -> Array:
    """Columns by name, each the same whatever the others are."""
    rows = [np.random.default_rng(sum(name.encode())).uniform(-1, 1, n) for name in names]
    return np.array(
        [3.0 + row if name == "x" else row for name, row in zip(names, rows, strict=True)]
    ).reshape(len(names), n)


def general(expr: Expr, point: Array, weights: Array) -> tuple[float, Array]:
    """Sum and gradient over the written form, event by event."""
    model = compile_model(expr, "linear")
    programs = model.programs
    cached = run_program(programs.prepare, events(programs.columns), np.zeros(0), "interpreter")
    inputs = np.concatenate([cached, weights[np.newaxis]])
    frontier = model.invariants.frontier(point)
    rows = run_program(programs.gradient, inputs, frontier, "interpreter").sum(axis=1)
    return float(rows[0]), model.invariants.gradient(point, rows[1:])


@pytest.mark.parametrize(("expr", "products", "count"), CASES.values(), ids=CASES)
def test_number_of_statistics_and_value(expr: Expr, products: int, count: int) -> None:
    """As many statistics as the specialist needs, and the sum over events to rounding."""
    assert len(separate(*normalize(expr.node, Assumptions()))[0]) == products
    form = compile_integral(expr, Assumptions())
    assert form.residual is None
    separable = form.separable
    assert separable is not None
    assert separable.n_statistics == count
    programs = separable.statistics
    weights = np.random.default_rng(1).uniform(0.5, 1.5, 200)
    rows = run_program(programs.prepare, events(programs.columns), np.zeros(0), "interpreter")
    inputs = np.concatenate([rows[: programs.n_cached], weights[np.newaxis]])
    statistics = run_program(programs.value, inputs, np.zeros(0), "interpreter").sum(axis=1)
    point = compile_model(expr, "linear").layout.defaults * 1.1 + 0.05
    known = separable.of(statistics)
    value, gradient = general(expr, point, weights)
    assert known.value(point) == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(
        known.gradient(point), gradient, rtol=1e-12, atol=1e-12 * abs(gradient).max()
    )


def test_free_shapes_are_not_separable() -> None:
    """A denominator with parameters and events needs every event."""
    form = compile_integral(benchmark_models.resonances(ld), Assumptions())
    assert form.separable is None
    assert form.residual is not None


def test_what_is_not_separable_stays_beside_what_is() -> None:
    """A sum of both keeps the statistics of one and the events of the other."""
    form = compile_integral(SUM.norm_sqr() + benchmark_models.resonances(ld), Assumptions())
    assert form.separable is not None
    assert form.separable.n_statistics == 16
    assert form.residual is not None
    whole = compile_model(benchmark_models.resonances(ld), "linear", Assumptions())
    assert form.residual.programs.n_cached == whole.programs.n_cached


def test_a_solution_with_an_event_only_matrix_is_separable() -> None:
    """Components of such a solve are linear in the production couplings."""
    matrix = [[X + 2.0, Y], [Y * 1j, X + 3.0]]
    amplitude = ld.solve(
        ld.matrix(matrix),
        ld.vector([benchmark_models.coupling(ld, "p"), benchmark_models.coupling(ld, "q")]),
    )[0]
    form = compile_integral(amplitude.norm_sqr(), Assumptions())
    assert form.residual is None
    assert form.separable is not None
    assert form.separable.n_statistics == 4


def test_sign_of_a_parameter_is_guarded() -> None:
    """Where a root of a parameter turns imaginary, the separated form must not be used."""
    form = compile_integral((SCALE.sqrt() * F0 + F2).norm_sqr(), Assumptions())
    assert form.separable is not None
    known = form.separable.of(np.ones(form.separable.n_statistics))
    assert known.value(np.array([2.0])) is not None
    assert known.value(np.array([-2.0])) is None


@pytest.mark.parametrize("number", [1e150, -1e150, 1e-150, math.inf, math.nan])
def test_a_factor_that_is_not_moderate_leaves_the_form(number: float) -> None:
    """And so does a sum that is not finite, or of which rounding may be left."""
    form = compile_integral(SCALE * F0.norm_sqr() + F2.norm_sqr(), Assumptions())
    assert form.separable is not None
    known = form.separable.of(np.ones(form.separable.n_statistics))
    assert known.value(np.array([0.5])) is not None
    assert known.value(np.array([number])) is None
    assert known.value(np.array([-1.0])) is None  # 1 - 1
    largest = form.separable.of(np.full(form.separable.n_statistics, 1e308))
    assert largest.value(np.array([0.5])) is not None
    assert largest.value(np.array([5.0])) is None


def test_statistics_that_are_zero_or_repeat_another_are_left_out() -> None:
    """Waves without imaginary part interfere with theirs only; equal waves have equal sums."""
    names = [f"a{k}{part}" for k in range(3) for part in ("re", "im")]
    of = {name: np.random.default_rng(k).uniform(-1, 1, 300) for k, name in enumerate(names)}
    of["a0im"] = of["a1im"] = np.zeros(300)
    of["a2re"], of["a2im"] = -of["a0re"], of["a0im"]
    expr = benchmark_models.coherent_sum(
        [benchmark_models.coupling(ld, f"w{k}") * wave for k, wave in enumerate(WAVES[:3])]
    ).norm_sqr()
    subject = probe_integral(NormalForm(expr, Assumptions()))
    source = np.array([of[name] for name in subject.columns])
    rows = run_program(subject.program, source, np.zeros(0), "interpreter")
    facts = propose(subject.digests, rows)
    assert facts != Facts()
    plain = compile_integral(expr, Assumptions()).separable
    found = compile_integral(expr, Assumptions(facts=facts)).separable
    assert plain is not None
    assert found is not None
    assert plain.n_statistics == 9
    assert found.n_statistics == 3  # |a0|**2, |a1|**2 and Re a0 conj(a1)
    assert {check.property for check in found.statistics.checks} == {
        "constant",
        "equal",
        "opposite",
    }
    point = np.linspace(-1.0, 1.0, 6)
    values = []
    for form in (plain, found):
        programs = form.statistics
        source = np.array([of[name] for name in programs.columns])
        rows = run_program(programs.prepare, source, np.zeros(0), "interpreter")
        answers = [question.answer(rows) for question in programs.questions]
        assert not programs.findings(answers)
        inputs = np.concatenate([rows[: programs.n_cached], np.ones((1, 300))])
        sums = run_program(programs.value, inputs, np.zeros(0), "interpreter").sum(axis=1)
        known = form.of(sums)
        values.append((known.value(point), known.gradient(point)))
    assert values[1][0] == pytest.approx(values[0][0], rel=1e-12)
    np.testing.assert_allclose(values[1][1], values[0][1], rtol=1e-11, atol=1e-10)
