"""Chew-Mandelstam function: table, dispersion integral, sides of the cut, one massless daughter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mp_oracle import Verdict
from oracle import evaluate
from scipy.integrate import quad

import laddu_dask as ld
from laddu_dask.expr import Expr, complex, parameter, scalar
from laddu_dask.physics import chew_mandelstam, rho

S = scalar("s")
M1, M2 = 0.51, 0.62


def at(expr: Expr, s: float) -> np.complex128:
    return evaluate(expr, {"s": np.array([s])}, {"m1": M1, "m2": M2})[0]


def dispersive(s: float, m1: float, m2: float) -> float:
    """``-(s - M**2)/pi P int rho(t) / ((t - M**2)(t - s)) dt`` from M**2, with t = M**2 + u**2."""
    total, difference = (m1 + m2) ** 2, (m1 - m2) ** 2

    def weight(u: float) -> float:
        t = total + u * u
        return 2 * math.sqrt(t - difference) / t

    if s <= total:
        value, _ = quad(lambda u: weight(u) / (total + u * u - s), 0, np.inf, epsabs=1e-13)
    else:  # 1/(u**2 - v**2) with the pole at v taken by quad's principal value
        v = math.sqrt(s - total)
        near, _ = quad(lambda u: weight(u) / (u + v), 0, 2 * v, weight="cauchy", wvar=v)
        far, _ = quad(lambda u: weight(u) / (u * u - v * v), 2 * v, np.inf, epsabs=1e-13)
        value = near + far
    return -(s - total) / math.pi * value


@pytest.mark.parametrize(
    ("s", "expected"),
    [
        (1.3, 0.011273077538949561 - 0.13267946426137936j),
        (1.2, 0.212306100891826),
        (1.0, 0.3625715241876181),
        (0.01, 0.6329411100027084),
        (-0.5, 0.7068736036618827),
    ],
)
def test_table(s: float, expected: np.complex128) -> None:
    """Column, literal and parameter inputs, in either order of the daughters."""
    for expr in (
        chew_mandelstam(S, mass1=M1, mass2=M2),
        chew_mandelstam(S, mass1=M2, mass2=M1),
        chew_mandelstam(s, mass1=M1, mass2=M2),
        chew_mandelstam(S, mass1=parameter("m1"), mass2=parameter("m2")),
    ):
        assert at(expr, s) == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("masses", [(M1, M2), (0.5, 0.5), (0.0, 0.7), (0.13957, 0.95778)])
@pytest.mark.parametrize("ratio", [-2.0, -0.1, 0.005, 0.3, 0.9, 0.999, 1.001, 1.2, 3.0, 20.0])
def test_dispersion_relation(masses: tuple[float, float], ratio: float) -> None:
    """The real part is the once-subtracted dispersion integral of -Im C = rho."""
    s = ratio * sum(masses) ** 2
    value = at(chew_mandelstam(S, mass1=masses[0], mass2=masses[1]), s)
    assert value.real == pytest.approx(dispersive(s, *masses), rel=1e-7, abs=1e-9)
    if ratio > 1:
        phase_space = at(rho(S, mass1=masses[0], mass2=masses[1]), s)
        assert value.imag == pytest.approx(-phase_space.real, rel=1e-13)
    else:
        assert abs(value.imag) <= 1e-15


def test_equal_masses() -> None:
    value = at(chew_mandelstam(S, mass1=0.5, mass2=0.5), 1.3)
    assert value == pytest.approx(0.16009303987681694 - 0.48038446141526125j, rel=1e-12)


def test_threshold() -> None:
    """C vanishes there, also for a massless daughter."""
    assert at(chew_mandelstam(S, mass1=0.5, mass2=0.5), 1.0) == 0
    assert at(chew_mandelstam(S, mass1=0.0, mass2=0.5), 0.25) == 0
    assert abs(at(chew_mandelstam(S, mass1=M1, mass2=M2), (M1 + M2) ** 2)) < 1e-7


def test_complex_s_and_sides_of_the_cut() -> None:
    """A real s lies on the upper side."""
    value = at(chew_mandelstam(complex(S, 0.1), mass1=M1, mass2=M2), 1.3)
    assert value == pytest.approx(0.17910705515107045 - 0.17693562189630155j, rel=1e-12)
    lower = at(chew_mandelstam(complex(S, -0.1), mass1=M1, mass2=M2), 1.3)
    assert lower == pytest.approx(value.conjugate(), rel=1e-14)
    for masses in ((M1, M2), (0.0, 0.7)):
        for s in (0.2, 1.3, 4.0, -0.5):
            on = at(chew_mandelstam(S, mass1=masses[0], mass2=masses[1]), s)
            above = at(chew_mandelstam(complex(S, 1e-9), mass1=masses[0], mass2=masses[1]), s)
            assert above == pytest.approx(on, abs=1e-7)
            below = at(chew_mandelstam(complex(S, -1e-9), mass1=masses[0], mass2=masses[1]), s)
            assert below == pytest.approx(on.conjugate(), abs=1e-7)


def test_one_massless_daughter_is_the_limit() -> None:
    for s in (-0.5, 0.1, 0.3, 1.3):
        limit = at(chew_mandelstam(S, mass1=1e-10, mass2=0.5), s)
        for masses in ((0.0, 0.5), (0.5, 0.0)):
            value = at(chew_mandelstam(S, mass1=masses[0], mass2=masses[1]), s)
            assert value == pytest.approx(limit, abs=1e-8)
    value = at(chew_mandelstam(complex(S, 0.1), mass1=0.0, mass2=0.5), 1.3)
    assert value == pytest.approx(
        at(chew_mandelstam(complex(S, 0.1), mass1=1e-10, mass2=0.5), 1.3), abs=1e-8
    )


def test_zero_s_is_not_finite() -> None:
    assert not np.isfinite(at(chew_mandelstam(S, mass1=M1, mass2=M2), 0.0))


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_through_a_model(backend: str) -> None:
    """D1: complex above threshold although every input is real, in both kernels."""
    model = ld.Model(chew_mandelstam(S, mass1=M1, mass2=M2) * parameter("a"))
    events = ld.Dataset.from_arrays(scalars={"s": np.array([1.3, 1.2, -0.5])})
    found = model.evaluate(events, {"a": 2.0}, ld.Execution(backend=backend))
    expected = 2 * np.array(
        [0.011273077538949561 - 0.13267946426137936j, 0.212306100891826, 0.7068736036618827]
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_derivatives_by_free_masses() -> None:
    """Above and below threshold and at negative s, against differences at 150 digits."""
    expr = chew_mandelstam(S, mass1=parameter("m1"), mass2=parameter("m2"))
    model, s = ld.Model(expr), [1.6, 0.9, -0.5]
    events = ld.Dataset.from_arrays(scalars={"s": np.array(s)})
    point = {"m1": M1, "m2": M2}
    truth = [Verdict(expr, {"s": place}, point, seed=1) for place in s]
    for backend in ("interpreter", "cpu"):
        _, gradients = model.value_and_gradient(events, point, ld.Execution(backend=backend))
        for gradient, true in zip(gradients, truth, strict=True):
            assert (abs(gradient - true.gradient) <= 1e-15 * true.slope_scale).all()


@pytest.mark.parametrize(
    ("masses", "problem"),
    [
        ((-0.1, 0.5), "masses must be finite and >= 0"),
        ((0.5, math.nan), "masses must be finite and >= 0"),
        ((0.0, 0.0), "at least one daughter must have mass"),
    ],
)
def test_impossible_masses(masses: tuple[float, float], problem: str) -> None:
    with pytest.raises(ld.ExpressionError, match=problem):
        chew_mandelstam(S, mass1=masses[0], mass2=masses[1])
