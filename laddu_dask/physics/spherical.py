"""Spherical harmonics."""

from __future__ import annotations

import math
from typing import Any

from laddu_dask.expr import Expr, as_expr, cis
from laddu_dask.physics.checks import integer, invalid, orbital


def spherical_harmonic(
    l: Any,
    m: Any,
    *,
    costheta: Expr | float,
    phi: Expr | float,
) -> Expr:
    """``Y_l^m(theta, phi)``, orthonormal, with the Condon-Shortley phase.

    The same as SciPy's ``sph_harm_y(l, m, theta, phi)``; ``Y_l^-m = (-1)**m conj(Y_l^m)``.

    Parameters
    ----------
    l, m
        Whole numbers with ``l >= 0`` and ``|m| <= l``.
    costheta
        Cosine of the polar angle. Rounding that pushes it past one is harmless: the sine is then 0.
    phi
        Azimuth in radians.

    Returns
    -------
    Expr
        Real by type for m = 0, else complex.

    Raises
    ------
    ExpressionError
        ``l < 0``, ``|m| > l``, or a label that is not a whole number.
    """
    l = orbital(l, "spherical_harmonic")
    m = integer(m, "m", "spherical_harmonic")
    if abs(m) > l:
        raise invalid("spherical_harmonic", f"needs |m| <= l, got l = {l}, m = {m}")
    legendre = _normalized_legendre(l, abs(m), as_expr(costheta))
    if m == 0:
        return legendre
    if m < 0 and m % 2:
        legendre = -legendre
    return legendre * cis(m * as_expr(phi))


def _normalized_legendre(l: int, m: int, x: Expr) -> Expr:
    """``sqrt((2l+1)/(4 pi) (l-m)!/(l+m)!) P_l^m(x)`` for m >= 0, Condon-Shortley phase included.

    Upward recurrence in l of the normalised functions, which is stable for any l (DLMF 14.10.3,
    normalised as in W. H. Press et al., Numerical Recipes, 3rd ed., eq. 6.7.7 to 6.7.9).
    """
    norm2 = math.prod((2 * k + 1) / (2 * k) for k in range(1, m + 1)) / (4 * math.pi)
    lower = as_expr((-1) ** m * math.sqrt(norm2))
    if m:
        lower = lower * (1 - x * x).sqrt().real() ** m
    if l == m:
        return lower
    upper = math.sqrt(2 * m + 3) * x * lower
    for n in range(m + 2, l + 1):
        a = math.sqrt((4 * n * n - 1) / (n * n - m * m))
        b = math.sqrt((2 * n + 1) * ((n - 1) ** 2 - m * m) / ((2 * n - 3) * (n * n - m * m)))
        lower, upper = upper, a * x * upper - b * lower
    return upper
