"""Wigner rotation functions in the Rose/PDG sign convention."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracle import evaluate
from scipy.linalg import expm

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import scalar
from laddu_dask.physics import WignerD, spherical_harmonic

HALF = Fraction(1, 2)
BETA = 0.7


def d(j: Any, m_prime: Any, m: Any, beta: float = BETA) -> float:
    (value,) = evaluate(WignerD(j, m_prime, m).d(scalar("beta")), {"beta": [beta]})
    return float(value.real)


def rotation(j: Fraction, beta: float) -> np.ndarray:
    """``exp(-i beta J_y)`` in the basis m = j, j-1, ..., -j."""
    m = np.array([float(j - k) for k in range(int(2 * j) + 1)])
    raising = np.diag(np.sqrt(float(j * (j + 1)) - m[1:] * (m[1:] + 1)), 1)
    return np.asarray(expm(-1j * beta * (raising - raising.T) / 2j).real)


@pytest.mark.parametrize(
    ("j", "m_prime", "m", "expected"),
    [
        (0.5, 0.5, 0.5, 0.9393727128473789),
        (0.5, 0.5, -0.5, -0.34289780745545134),
        (1, 1, 1, 0.8824210936422442),
        (1, 1, 0, -0.45553069520608563),
        (1, 0, 1, 0.45553069520608563),
        (2, 2, 1, -0.5684712761159603),
        (Fraction(3, 2), Fraction(3, 2), -HALF, 0.1913057326429278),
    ],
)
def test_quoted_numbers(j: Any, m_prime: Any, m: Any, expected: float) -> None:
    assert d(j, m_prime, m) == pytest.approx(expected, rel=1e-13)


def test_closed_forms() -> None:
    assert d(0.5, 0.5, -0.5) == pytest.approx(-np.sin(BETA / 2), rel=1e-15)
    assert d(1, 1, 0) == pytest.approx(-np.sin(BETA) / np.sqrt(2), rel=1e-15)
    assert d(0, 0, 0) == 1


@pytest.mark.parametrize("two_j", range(9))
def test_against_the_matrix_exponential(two_j: int) -> None:
    """All 285 elements up to j = 4, over the whole circle."""
    j = Fraction(two_j, 2)
    for beta in (BETA, 2.9, -1.1, 0.0):
        expected = rotation(j, beta)
        for row in range(two_j + 1):
            for column in range(two_j + 1):
                value = d(j, j - row, j - column, beta)
                assert value == pytest.approx(expected[row, column], abs=5e-15)


@pytest.mark.parametrize(("j", "tolerance"), [(10, 1e-14), (20, 2e-11)])
def test_high_j(j: int, tolerance: float) -> None:
    expected = rotation(Fraction(j), BETA)
    row = [d(j, 1, m) for m in range(j, -j - 1, -1)]
    np.testing.assert_allclose(row, expected[j - 1], atol=tolerance)
    assert sum(value**2 for value in row) == pytest.approx(1, abs=10 * tolerance)


def test_euler_angles() -> None:
    expected = -0.4351850950471284 + 0.1346185251878861j
    for gamma in (None, 0.2, 1.7):
        value = evaluate(WignerD(1, 1, 0).D(alpha=0.3, beta=BETA, gamma=gamma))[0]
        assert value == pytest.approx(expected, rel=1e-13)
    value = evaluate(WignerD(1, 1, 1).D(alpha=0.3, beta=BETA, gamma=0.2))[0]
    assert value == pytest.approx(0.7743973640246652 - 0.4230552080951428j, rel=1e-13)
    value = evaluate(WignerD(1, 0, 1).D(alpha=0.3, beta=BETA, gamma=0.2))[0]
    assert value == pytest.approx(d(1, 0, 1) * np.exp(-0.2j), rel=1e-13)
    half = evaluate(WignerD(0.5, -0.5, 0.5).D(alpha=0.3, beta=BETA, gamma=0.2))[0]
    assert half == pytest.approx(d(0.5, -0.5, 0.5) * np.exp(0.15j - 0.1j), rel=1e-13)


def test_relation_to_spherical_harmonics() -> None:
    """``conj(D^l_{m0}(phi, theta, 0)) = sqrt(4 pi / (2 l + 1)) Y_l^m(theta, phi)``."""
    for l in range(4):
        for m in range(-l, l + 1):
            rotated = evaluate(WignerD(l, m, 0).D(alpha=0.4, beta=BETA).conj())[0]
            harmonic = evaluate(spherical_harmonic(l, m, costheta=np.cos(BETA), phi=0.4))[0]
            assert rotated == pytest.approx(np.sqrt(4 * np.pi / (2 * l + 1)) * harmonic, rel=1e-12)


def test_kinds() -> None:
    beta = scalar("beta")
    assert WignerD(2, 1, 0).d(beta).is_real
    assert WignerD(2, 0, 0).D(alpha=scalar("phi"), beta=beta).is_real
    assert not WignerD(2, 1, 0).D(alpha=scalar("phi"), beta=beta).is_real
    assert repr(WignerD(1.5, 0.5, -0.5)) == "WignerD(3/2, 1/2, -1/2)"


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ((1, 2, 0), r"\|m_prime\| <= j"),
        ((1, 0, -2), r"\|m\| <= j"),
        ((1, 0.5, 0), "must both be whole or both half-integer"),
        ((0.5, 0.5, 0), "must both be whole or both half-integer"),
        ((-1, 0, 0), "0 <= j <= 20"),
        ((20.5, 0.5, 0.5), "0 <= j <= 20"),
        ((0.3, 0, 0), "integer or half-integer"),
        ((float("inf"), 0, 0), "integer or half-integer"),
    ],
)
def test_impossible_labels(labels: tuple[Any, Any, Any], problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        WignerD(*labels)
