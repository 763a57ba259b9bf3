"""Wigner rotation functions in the Rose/PDG sign convention."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracle import evaluate
from scipy.linalg import expm

import laddu_dask as ld
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


@pytest.mark.parametrize(("j", "tolerance"), [(10, 1e-14), (20, 1e-13), (70, 1e-12)])
def test_high_j(j: int, tolerance: float) -> None:
    expected = rotation(Fraction(j), BETA)
    row = [d(j, 1, m) for m in range(j, -j - 1, -1)]
    np.testing.assert_allclose(row, expected[j - 1], atol=tolerance)
    assert sum(value**2 for value in row) == pytest.approx(1, abs=10 * tolerance)


@pytest.mark.parametrize(
    ("j", "m_prime", "m", "beta", "expected"),
    [
        (30, 1, 2, 0.7, 0.17856075796726753),
        (40, 1, 2, 0.7, 0.10268339296497689),
        (70, 1, 2, 0.7, -0.11735457108935954),
        (70, 0, 0, 2.5, 0.10994210263824467),
        (70, -35, 20, 1.3, 0.1100399012459093),
        (70, 69, -3, 1.6, 0.0416902607518538),
        (70, 70, 70, 0.2, 0.49600474426480545),
        (55.5, -0.5, 20.5, 2.9, -0.0011533142666777822),
        (70, 50, -50, 3.0, 0.3008344692089653),
        (70, -2, 1, 1e-3, 7.2957692938287e-06),
        (21, 3, -3, -1.1, 0.0022258078216696254),
    ],
)
def test_against_many_digits(j: Any, m_prime: Any, m: Any, beta: float, expected: float) -> None:
    """D13: Wigner's sum evaluated with 120 digits."""
    assert d(j, m_prime, m, beta) == pytest.approx(expected, abs=2e-14)


def test_both_forms_agree_where_they_meet() -> None:
    """The recurrence, used above j = 10, against the sum that it takes over from."""
    half = scalar("beta") / 2
    columns = {"beta": np.linspace(-3.2, 3.2, 41)}
    for labels in ((8, 0, 0), (10, 3, -2), (9.5, -1.5, 4.5), (10, 10, -1), (7, -7, 7)):
        element = WignerD(*labels)
        np.testing.assert_allclose(
            evaluate(element._recurrence(half), columns),
            evaluate(element._sum(half), columns),
            atol=2e-14,
        )


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_compiled_with_a_free_angle(backend: Any) -> None:
    """The recurrence in compiled programs: value and derivative by a free angle."""
    x = np.array([0.5, 1.5, 2.5])
    intensity = 1 + scalar("x") * WignerD(25, 3, -2).d(ld.parameter("beta")) ** 2
    data = ld.Dataset.from_arrays(scalars={"x": x})
    mc = ld.Dataset.from_arrays(scalars={"x": x[:2]})
    term = ld.NLL(model=ld.Model(intensity), data=data, accepted_mc=mc)
    with ld.Likelihood([term], execution=ld.Execution(backend=backend)) as likelihood:
        value, (slope,) = likelihood.value_and_gradient([BETA])
    element = d(25, 3, -2)
    at = 1 + x * element**2
    # d/dbeta d^j_{m'm} by the ladder: the derivative of exp(-i beta J_y) is -i J_y times it.
    raised = math.sqrt((25 - 3) * (25 + 4)) / 2 * d(25, 4, -2)
    lowered = math.sqrt((25 + 3) * (25 - 2)) / 2 * d(25, 2, -2)
    turned = 2 * element * (raised - lowered)
    assert value == pytest.approx(2 * (3 * np.log(at[:2].sum()) - np.log(at).sum()), rel=1e-13)
    expected = 2 * (3 * x[:2].sum() / at[:2].sum() - (x / at).sum()) * turned
    assert slope == pytest.approx(expected, rel=1e-11)


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
        ((-1, 0, 0), "0 <= j <= 70"),
        ((70.5, 0.5, 0.5), "0 <= j <= 70"),
        ((0.3, 0, 0), "integer or half-integer"),
        ((float("inf"), 0, 0), "integer or half-integer"),
    ],
)
def test_impossible_labels(labels: tuple[Any, Any, Any], problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        WignerD(*labels)
