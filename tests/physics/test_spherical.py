"""Spherical harmonics: orthonormal, Condon-Shortley."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracle import evaluate
from scipy.special import sph_harm_y

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import scalar
from laddu_dask.physics import spherical_harmonic

C, PHI = scalar("c"), scalar("phi")


def test_quoted_numbers() -> None:
    y11 = evaluate(spherical_harmonic(1, 1, costheta=0.3, phi=0.5))[0]
    assert y11 == pytest.approx(-0.2892340232253313 - 0.15800926703553522j, rel=1e-13)
    y21 = evaluate(spherical_harmonic(2, -1, costheta=0.3, phi=0.5))[0]
    assert y21 == pytest.approx(0.1940240812012781 - 0.10599583864991201j, rel=1e-13)


@pytest.mark.parametrize("l", [*range(7), 25])
def test_against_scipy(l: int) -> None:
    theta = np.linspace(0.05, 3.1, 23)
    phi = np.linspace(-3.1, 3.1, 23)
    for m in range(-l, l + 1):
        ours = evaluate(
            spherical_harmonic(l, m, costheta=C, phi=PHI), {"c": np.cos(theta), "phi": phi}
        )
        np.testing.assert_allclose(ours - sph_harm_y(l, m, theta, phi), 0, atol=1e-13)


@pytest.mark.parametrize("m", [0, 1, -2, 35, -69, 70])
def test_high_l(m: int) -> None:
    """As high as the Wigner functions, D13: against SciPy, whose own digits limit the tolerance."""
    theta, phi = np.linspace(0.05, 3.1, 23), np.linspace(-3.1, 3.1, 23)
    columns = {"c": np.cos(theta), "phi": phi}
    ours = evaluate(spherical_harmonic(70, m, costheta=C, phi=PHI), columns)
    np.testing.assert_allclose(ours, sph_harm_y(70, m, theta, phi), rtol=0, atol=1e-12)


def test_poles_of_the_sphere() -> None:
    columns = {"c": np.array([1.0, -1.0, 1 + 1e-15, -1 - 1e-15]), "phi": np.full(4, 0.5)}
    for m in (1, 2, 3):
        assert (evaluate(spherical_harmonic(3, m, costheta=C, phi=PHI), columns) == 0).all()
    north = evaluate(spherical_harmonic(3, 0, costheta=C, phi=PHI), columns).real
    np.testing.assert_allclose(north, np.sqrt(7 / (4 * np.pi)) * np.array([1, -1, 1, -1]))


def test_nan_stays_nan() -> None:
    """D8: NaN angles give NaN."""
    for columns in ({"c": [np.nan], "phi": [0.1]}, {"c": [0.1], "phi": [np.nan]}):
        assert np.isnan(evaluate(spherical_harmonic(2, 1, costheta=C, phi=PHI), columns)).all()


def test_kinds_and_labels() -> None:
    assert spherical_harmonic(2, 0, costheta=C, phi=PHI).is_real
    assert not spherical_harmonic(2, 1, costheta=C, phi=PHI).is_real
    same = spherical_harmonic(Fraction(2), np.int64(1), costheta=C, phi=PHI)
    assert same.node is spherical_harmonic(2.0, 1, costheta=C, phi=PHI).node


@pytest.mark.parametrize(("l", "m"), [(1, 2), (1, -2), (-1, 0), (0.5, 0), (1, 0.5), (np.nan, 0)])
def test_impossible_labels(l: Any, m: Any) -> None:
    with pytest.raises(ExpressionError, match="spherical_harmonic"):
        spherical_harmonic(l, m, costheta=C, phi=PHI)


@pytest.mark.parametrize("label", ["1", None, True, 1j, C])
def test_labels_that_are_no_numbers(label: Any) -> None:
    with pytest.raises(TypeError, match="fixed integer or half-integer"):
        spherical_harmonic(label, 0, costheta=C, phi=PHI)
