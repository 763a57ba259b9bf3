"""Blatt-Weisskopf factors."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracle import evaluate
from scipy.special import spherical_jn, spherical_yn

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import complex, parameter, scalar
from laddu_dask.physics import (
    BarrierKind,
    barrier_squared,
    blatt_weisskopf,
    blatt_weisskopf_custom,
)
from laddu_dask.physics.barriers import barrier_coefficients

COEFFICIENTS = {
    0: (1,),
    1: (1, 1),
    2: (1, 3, 9),
    3: (1, 6, 45, 225),
    4: (1, 10, 135, 1575, 11025),
    5: (1, 15, 315, 6300, 99225, 893025),
    6: (1, 21, 630, 18900, 496125, 9823275, 108056025),
    7: (1, 28, 1134, 47250, 1819125, 58939650, 1404728325, 18261468225),
    8: (1, 36, 1890, 103950, 5457375, 255405150, 9833098275, 273922023375, 4108830350625),
}
Q = scalar("q")


def at(expr: Any, q: Any, **parameters: float) -> np.complex128:
    return evaluate(expr, {"q": np.array([q])}, parameters)[0]


@pytest.mark.parametrize("l", range(9))
def test_coefficients(l: int) -> None:
    """D3: the constant term of l = 6 is 108056025."""
    assert barrier_coefficients(l) == COEFFICIENTS[l]


@pytest.mark.parametrize("l", range(9))
def test_modulus_of_the_hankel_function(l: int) -> None:
    x = np.array([0.7, 1.9, 6.0])
    hankel2 = spherical_jn(l, x) ** 2 + spherical_yn(l, x) ** 2
    polynomial = np.polyval(COEFFICIENTS[l], x**2)
    np.testing.assert_allclose(polynomial / x ** (2 * l + 2), hankel2, rtol=1e-11)


@pytest.mark.parametrize("l", range(9))
def test_normalisation(l: int) -> None:
    """D3: B_l(q_R) = 1 for every l."""
    assert at(blatt_weisskopf(Q, l=l), 0.1973) == pytest.approx(1, rel=1e-15)
    assert at(blatt_weisskopf_custom(Q, l=l, q_r=0.7), 0.7) == pytest.approx(1, rel=1e-15)


@pytest.mark.parametrize(
    ("l", "expected"),
    [
        (0, 1.0),
        (1, 1.2683169779183578),
        (2, 2.3969873606686996),
        (3, 5.754922602277034),
        (4, 13.237760977855197),
        (5, 28.579376555221526),
    ],
)
def test_full_factor(l: int, expected: float) -> None:
    full = BarrierKind.FULL
    for expr in (
        blatt_weisskopf(Q, l=l, kind=full),
        blatt_weisskopf(0.4, l=l, kind=full),
        blatt_weisskopf(complex(Q, 0.0), l=l, kind=full),
        blatt_weisskopf_custom(Q, l=l, q_r=parameter("r")),
        blatt_weisskopf_custom(Q, l=l, q_r=-0.1973),
    ):
        assert at(expr, 0.4, r=0.1973) == pytest.approx(expected, rel=1e-13)
    assert at(barrier_squared((Q / 0.1973) ** 2, l=l), 0.4) == pytest.approx(expected**2, rel=1e-13)


@pytest.mark.parametrize("l", [6, 7, 8])
def test_high_l_against_exact_arithmetic(l: int) -> None:
    z = (Fraction(4, 10) / Fraction(1973, 10000)) ** 2
    denominator = sum(c * z ** (l - k) for k, c in enumerate(COEFFICIENTS[l]))
    expected = float(sum(COEFFICIENTS[l]) * z**l / denominator) ** 0.5
    assert at(blatt_weisskopf(Q, l=l), 0.4) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("l", "expected"),
    [(6, 60.044814592144116), (7, 124.62352830338571), (8, 256.93682109311667)],
)
def test_high_l_against_hankel_functions(l: int, expected: float) -> None:
    """D3, both kinds: computed with mpmath's Hankel functions of half-integer order, 40 digits."""
    assert at(blatt_weisskopf(Q, l=l), 0.4) == pytest.approx(expected, rel=1e-13)
    tensor = blatt_weisskopf(Q, l=l, kind=BarrierKind.TENSOR)
    assert at(tensor, 0.4) == pytest.approx(expected / 0.4**l, rel=1e-13)


@pytest.mark.parametrize(("l", "expected"), [(1, 3.170792444795894), (2, 14.981171004179368)])
def test_tensor_factor(l: int, expected: float) -> None:
    for q_r in (0.1973, -0.1973, parameter("r")):
        expr = blatt_weisskopf_custom(Q, l=l, kind=BarrierKind.TENSOR, q_r=q_r)
        assert at(expr, 0.4, r=-0.1973) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("q", "l", "expected"),
    [
        (0.3j, 1, 1.8773351044497457),
        (0.3j, 2, 3.0624570513692677),
        (0.1j, 1, 0.8314978356242927j),
    ],
)
def test_below_threshold(q: np.complex128, l: int, expected: np.complex128) -> None:
    assert at(blatt_weisskopf(q, l=l), 0.0) == pytest.approx(expected, rel=1e-13)
    assert at(blatt_weisskopf(complex(0.0, Q), l=l), q.imag) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("l", range(1, 9))
def test_at_rest(l: int) -> None:
    """D8: the tensor factor has its limit at q = 0, not 0/0 taken for 0."""
    assert at(blatt_weisskopf(Q, l=l), 0.0) == 0
    tensor = blatt_weisskopf(Q, l=l, kind=BarrierKind.TENSOR)
    coefficients = COEFFICIENTS[l]
    limit = (sum(coefficients) / coefficients[-1]) ** 0.5 / 0.1973**l
    assert at(tensor, 0.0) == pytest.approx(limit, rel=1e-13)
    assert at(tensor, 1e-6) == pytest.approx(limit, rel=1e-9)


def test_kinds() -> None:
    for kind in BarrierKind:
        assert blatt_weisskopf(Q, l=3, kind=kind).is_real
    assert barrier_squared(Q, l=3).is_real


@pytest.mark.parametrize("l", [9, -1, 0.5, Fraction(3, 2)])
def test_l_out_of_range(l: Any) -> None:
    with pytest.raises(ExpressionError, match="Blatt-Weisskopf barrier"):
        blatt_weisskopf(Q, l=l)


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match=r"BarrierKind\.FULL"):
        blatt_weisskopf(Q, l=1, kind="full")  # type: ignore[arg-type]
    for q_r in (0.0, float("nan")):
        with pytest.raises(ExpressionError, match="q_r must be finite and not zero"):
            blatt_weisskopf_custom(Q, l=1, q_r=q_r)
    with pytest.raises(TypeError, match="fixed integer"):
        blatt_weisskopf(Q, l=parameter("l"))
