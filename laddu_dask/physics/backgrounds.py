r"""Smooth backgrounds: an exponential, and series of polynomials on an interval.

A series is linear in its coefficients, and the polynomials depend on the event alone. With
``t = (2 x - low - high) / (high - low)`` in [-1, 1] and ``u = (x - low) / (high - low)`` in [0, 1],

    Chebyshev  T_0 = 1, T_1 = t, T_(k+1) = 2 t T_k - T_(k-1),
    Legendre   P_0 = 1, P_1 = t, (k+1) P_(k+1) = (2k+1) t P_k - k P_(k-1),
    Bernstein  B_k = C(n, k) u**k (1 - u)**(n - k).

Source: DLMF table 18.9.1 for the recurrences; G. G. Lorentz, Bernstein Polynomials (1953).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from laddu_dask.expr import Expr, as_expr
from laddu_dask.expr import sum as sum_expr
from laddu_dask.physics.checks import invalid, literal

Coefficients = Iterable[Expr | complex]


def exponential(x: Expr | float, *, slope: Expr | float, origin: Expr | float = 0.0) -> Expr:
    """``exp(slope (x - origin))``, 1 at the origin.

    Parameters
    ----------
    x
        Any expression.
    slope
        In the inverse unit of x; negative to fall. A number or a parameter.
    origin
        Where the value is 1. Inside the range of the data it decouples slope and normalisation.
    """
    return (as_expr(slope) * (as_expr(x) - origin)).exp()


def chebyshev(x: Expr | float, *, coefficients: Coefficients, low: float, high: float) -> Expr:
    """``sum_k c_k T_k(t)``, Chebyshev polynomials of the first kind on ``[low, high]``.

    Parameters
    ----------
    x
        Any expression. Outside the interval the polynomial goes on, growing like ``t**n``.
    coefficients
        From degree 0 up, at least one: parameters, numbers, real or complex.
    low, high
        Fixed ends of the interval, in the unit of x.

    Raises
    ------
    ExpressionError
        No coefficients; ends that are not fixed and finite with low < high.
    """
    series = _coefficients("chebyshev", coefficients)
    t = _symmetric("chebyshev", x, low, high)
    terms = [as_expr(1.0), t]
    for k in range(2, len(series)):
        terms.append(2 * t * terms[k - 1] - terms[k - 2])
    return _series(series, terms)


def legendre(x: Expr | float, *, coefficients: Coefficients, low: float, high: float) -> Expr:
    """``sum_k c_k P_k(t)``, Legendre polynomials on ``[low, high]``; otherwise like `chebyshev`.

    With ``low = -1`` and ``high = 1`` these are the angular moments of a cosine.
    """
    series = _coefficients("legendre", coefficients)
    t = _symmetric("legendre", x, low, high)
    terms = [as_expr(1.0), t]
    for k in range(2, len(series)):
        rising, falling = (2 * k - 1) / k, (k - 1) / k
        terms.append(rising * t * terms[k - 1] - falling * terms[k - 2])
    return _series(series, terms)


def bernstein(x: Expr | float, *, coefficients: Coefficients, low: float, high: float) -> Expr:
    """``sum_k c_k B_k(u)`` of degree one less than there are coefficients, on ``[low, high]``.

    Nowhere negative in the interval if no coefficient is; ``c_0`` and ``c_n`` are the values at its
    ends. Otherwise like `chebyshev`.
    """
    series = _coefficients("bernstein", coefficients)
    degree = len(series) - 1
    low, high = _interval("bernstein", low, high)
    u = (as_expr(x) - low) / (high - low)
    rest = (high - as_expr(x)) / (high - low)
    terms = []
    for k in range(degree + 1):
        term = as_expr(float(math.comb(degree, k)))
        if k:
            term = term * u**k
        if k < degree:
            term = term * rest ** (degree - k)
        terms.append(term)
    return _series(series, terms)


def _series(coefficients: list[Expr], terms: list[Expr]) -> Expr:
    """The first term is kept out of the product where it is 1; a single coefficient is the sum."""
    return sum_expr(
        coefficient * term for coefficient, term in zip(coefficients, terms, strict=False)
    )


def _coefficients(operation: str, coefficients: Coefficients) -> list[Expr]:
    series = [as_expr(coefficient) for coefficient in coefficients]
    if not series:
        raise invalid(operation, "needs at least one coefficient")
    return series


def _symmetric(operation: str, x: Expr | float, low: float, high: float) -> Expr:
    low, high = _interval(operation, low, high)
    return (2 * as_expr(x) - (low + high)) / (high - low)


def _interval(operation: str, low: float, high: float) -> tuple[float, float]:
    first, last = literal(low), literal(high)
    if first is None or last is None or not -math.inf < first < last < math.inf:
        raise invalid(
            operation, f"needs fixed, finite ends with low < high, got {low!r} and {high!r}"
        )
    return first, last
