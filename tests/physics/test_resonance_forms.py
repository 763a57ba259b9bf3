"""Flatte, Gounaris-Sakurai and LASS amplitudes against multiprecision evaluations of the textbook.

The numbers were computed with mpmath at 40 digits from the formulas of the papers as they are
written there (phases and running widths), not from the form that is evaluated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mp_oracle import Verdict
from oracle import evaluate

import laddu_dask as ld
from laddu_dask.expr import Expr, complex, parameter, scalar

S = scalar("s")
PION, KAON = 0.13957, 0.493677
FLATTE: dict[str, Any] = {
    "mass": 0.98,
    "strengths": [0.2, 0.3],
    "channel_mass_1": [PION, KAON],
    "channel_mass_2": [PION, KAON],
}
RHO = {"mass": 0.7755, "width": 0.1494, "daughter_mass": PION}
LASS: dict[str, Any] = {
    "mass": 1.435,
    "width": 0.279,
    "mass1": KAON,
    "mass2": PION,
    "scattering_length": 1.95,
    "effective_range": 1.76,
}
FREE = {"m": 0.98, "g1": 0.2, "g2": 0.3, "w": 0.1494, "a": 1.95, "r": 1.76}


def at(expr: Expr, *s: float, **values: float) -> Any:
    return evaluate(expr, {"s": np.array(s)}, FREE | values)


def test_flatte() -> None:
    """D1: complex also where it is real below the second threshold."""
    free = FLATTE | {"mass": parameter("m"), "strengths": [parameter("g1"), parameter("g2")]}
    expected = [
        2.3767526395586756 + 1.5020604699125267j,
        1.4663728772458795 + 4.7675779752434683j,
        -1.3181454497401471 + 2.7757512896327247j,
    ]
    for expr in (ld.flatte(S, **FLATTE), ld.flatte(S, **free), ld.flatte(complex(S, 0.0), **free)):
        np.testing.assert_allclose(at(expr, 0.8, 0.95, 1.1), expected, rtol=1e-13)


def test_flatte_of_the_conformance_numbers() -> None:
    """D1."""
    masses = {"channel_mass_1": [0.1395, 0.497611], "channel_mass_2": [0.1395, 0.497611]}
    expected = [2.35581977 + 1.4591987j, 1.72379163 + 4.56784262j]
    np.testing.assert_allclose(at(ld.flatte(S, **FLATTE | masses), 0.8, 0.95), expected, rtol=1e-8)


def test_flatte_is_unitary_and_continuous() -> None:
    """Both channels open, and either side of the second threshold and below the first."""
    amplitude = at(ld.flatte(S, **FLATTE), 1.1, 1.7)
    opened = sum(
        g * at(ld.rho(S, mass1=m, mass2=m), 1.1, 1.7)
        for g, m in zip((0.2, 0.3), (PION, KAON), strict=True)
    )
    np.testing.assert_allclose(amplitude.imag, abs(amplitude) ** 2 * opened.real, rtol=1e-13)
    threshold = 4 * KAON**2
    around = at(ld.flatte(S, **FLATTE), threshold - 1e-13, threshold, threshold + 1e-13)
    np.testing.assert_allclose(around, around[1], rtol=1e-5)
    (below,) = at(ld.flatte(S, **FLATTE), 0.05)
    assert below.imag == 0 < below.real


def test_flatte_on_other_sheets() -> None:
    """One channel on its unphysical sheet is the amplitude with that strength negative."""
    unphysical = ld.flatte(S, **FLATTE, sheets=[ld.Sheet.PHYSICAL, ld.Sheet.UNPHYSICAL])
    opposite = ld.flatte(S, **FLATTE | {"strengths": [0.2, -0.3]})
    np.testing.assert_allclose(at(unphysical, 0.8, 1.1), at(opposite, 0.8, 1.1), rtol=1e-14)


def test_one_channel_flatte_is_a_breit_wigner() -> None:
    one = {"channel_mass_1": [0.2], "channel_mass_2": [0.3]}
    at_pole = ((1 - 0.25) * (1 - 0.01)) ** 0.5
    found = at(ld.flatte(S, mass=1.0, strengths=[0.1 / at_pole], **one), 1.1)
    assert found[0] == pytest.approx(-4.923079030645095 + 4.999408281434281j, rel=1e-13)


def test_gounaris_sakurai() -> None:
    free = RHO | {"mass": parameter("m"), "width": parameter("w")}
    expected = [
        2.0706272350298818 + 0.30217861661730903j,
        0.068906905877666259 + 5.6846470968506924j,
        -0.66836525281498487 + 0.25622422494547633j,
        1.0951249969866644,
        0.61217194034784771,
    ]
    for expr in (ld.gounaris_sakurai(S, **RHO), ld.gounaris_sakurai(S, **free)):
        found = at(expr, 0.3, 0.6, 1.5, 0.05, -0.4, m=0.7755)
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)


def test_gounaris_sakurai_limits() -> None:
    """1 towards s = 0, real and finite at threshold, imaginary at the pole mass."""
    expr = ld.gounaris_sakurai(S, **RHO)
    np.testing.assert_allclose(at(expr, -1e-10, 1e-10), 1, rtol=1e-7)
    threshold = 4 * PION**2
    around = at(expr, threshold * (1 - 1e-12), threshold, threshold * (1 + 1e-12))
    np.testing.assert_allclose(around, around[1].real, rtol=1e-9)
    (pole,) = at(1 / expr, RHO["mass"] ** 2)
    assert pole.real == pytest.approx(0, abs=1e-14)
    assert not np.isfinite(at(expr, 0.0)).any()
    assert not np.isfinite(
        at(ld.gounaris_sakurai(S, **RHO | {"mass": parameter("m")}), 0.6, m=0.2)
    ).any()


def test_lass() -> None:
    free = LASS | {"scattering_length": parameter("a"), "effective_range": parameter("r")}
    expected = [
        1.7319032866389367 + 0.66203384527503972j,
        1.2210506123564437 + 1.7265081171657736j,
        -0.94733995627582924 + 1.8162384650525208j,
        -0.24928019437158455 + 0.028099003425337015j,
        1.7901165931229793,
        1.1677971109482294,
    ]
    threshold = (KAON + PION) ** 2
    for expr in (ld.lass(S, **LASS), ld.lass(S, **free)):
        found = at(expr, 0.5, 1.2, 2.0, 2.5, threshold, 0.3)
        np.testing.assert_allclose(found, expected, rtol=1e-7)
        np.testing.assert_allclose(found[:4], expected[:4], rtol=1e-12)
        assert found[5].real == pytest.approx(expected[5], rel=1e-13)


def test_lass_is_unitary_and_without_background_a_breit_wigner() -> None:
    s = np.array([0.41, 0.9, 1.9, 3.0])
    amplitude = at(ld.lass(S, **LASS), *s)
    half = at(ld.rho(S, mass1=KAON, mass2=PION), *s).real / 2
    np.testing.assert_allclose(amplitude.imag, half * abs(amplitude) ** 2, rtol=1e-12)
    alone = at(ld.lass(S, **LASS | {"scattering_length": 0.0}), *s)
    pair = {"mass": 1.435, "width": 0.279, "mass1": KAON, "mass2": PION}
    breit_wigner = at(ld.relativistic_breit_wigner(S, **pair), *s)
    np.testing.assert_allclose(alone / alone[0], breit_wigner / breit_wigner[0], rtol=1e-12)


def shapes() -> dict[str, Expr]:
    """Each form with free parameters."""
    mass, width = parameter("m"), parameter("w")
    background = {"scattering_length": parameter("a"), "effective_range": parameter("r")}
    strengths = [parameter("g1"), parameter("g2")]
    return {
        "flatte": ld.flatte(S, **FLATTE | {"mass": mass, "strengths": strengths}),
        "gounaris_sakurai": ld.gounaris_sakurai(S, **RHO | {"mass": mass, "width": width}),
        "lass": ld.lass(S, **LASS | background | {"mass": mass, "width": width}),
    }


@pytest.mark.parametrize("name", ["flatte", "gounaris_sakurai", "lass"])
def test_value_and_derivatives(name: str) -> None:
    """In both kernels, against differences at 150 digits, within a few roundings."""
    expr = shapes()[name]
    model = ld.Model(expr)
    s = [0.06, 0.7, 1.6]  # below the threshold, between thresholds, above
    events = ld.Dataset.from_arrays(scalars={"s": np.array(s)})
    point = {name: FREE[name] for name in model.parameter_names}
    truth = [Verdict(expr, {"s": place}, point, seed=1) for place in s]
    for backend in ("interpreter", "cpu"):
        found = model.value_and_gradient(events, point, ld.Execution(backend=backend))
        for value, gradient, true in zip(*found, truth, strict=True):
            assert abs(value - true.value) <= 1e-15 * true.scale
            assert (abs(gradient - true.gradient) <= 1e-15 * true.slope_scale).all()


def test_derivatives_at_thresholds_and_poles_are_finite() -> None:
    places = [4 * PION**2, 4 * KAON**2, (KAON + PION) ** 2, FREE["m"] ** 2]
    events = ld.Dataset.from_arrays(scalars={"s": np.array(places)})
    model = ld.Model(sum(shape.norm_sqr() for shape in shapes().values()))
    values, gradient = model.value_and_gradient(events, FREE)
    assert np.isfinite(values).all()
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda: ld.flatte(S, **FLATTE | {"strengths": [0.1]}), "got 1 strengths, 2 and 2 masses"),
        (lambda: ld.flatte(S, **FLATTE | {"mass": -1.0}), "mass must be positive"),
        (
            lambda: ld.flatte(S, mass=1.0, strengths=[], channel_mass_1=[], channel_mass_2=[]),
            "got 0 strengths",
        ),
        (lambda: ld.gounaris_sakurai(S, **RHO | {"mass": 0.2}), "above the threshold 0.27914"),
        (lambda: ld.gounaris_sakurai(S, **RHO | {"daughter_mass": 0.0}), "daughter_mass must be"),
        (lambda: ld.lass(S, **LASS | {"mass": 0.0}), "LASS: mass must be positive"),
    ],
)
def test_impossible_arguments(build: Any, problem: str) -> None:
    with pytest.raises(ld.ExpressionError, match=problem):
        build()
