r"""Blatt-Weisskopf centrifugal barrier factors.

With ``z = (q / q_R)**2`` the full factor is ``B_l = sqrt(N_l z**l / D_l(z))``, where ``D_l`` is the
polynomial of the squared modulus of the spherical Hankel function,
``|h_l(x)|**2 = D_l(x**2) / x**(2 l + 2)``, with the integer coefficients

    D_l(z) = sum_k c_k z**(l - k),   c_k = (2 k)! (l + k)! / (4**k (k!)**2 (l - k)!)

(DLMF 10.49.17 and 10.49.18), and ``N_l = D_l(1)`` makes ``B_l(q_R) = 1``.

Source: J. M. Blatt and V. F. Weisskopf, Theoretical Nuclear Physics (1952); F. von Hippel and
C. Quigg, Phys. Rev. D 5, 624 (1972).
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

from laddu_dask.expr import Expr, as_expr
from laddu_dask.physics.checks import invalid, literal, orbital

#: Default reference momentum in GeV: hbar c over an interaction radius of 1 fm.
Q_R = 0.1973

#: Highest orbital angular momentum that is offered.
MAX_L = 8


class BarrierKind(Enum):
    """`FULL` is B_l itself; `TENSOR` is B_l / q**l, for tensor amplitudes, which carry q**l."""

    FULL = "full"
    TENSOR = "tensor"


def barrier_coefficients(l: Any) -> tuple[int, ...]:
    """Coefficients of D_l, highest power first; 0 <= l <= 8."""
    l = orbital(l, "Blatt-Weisskopf barrier", MAX_L)
    f = math.factorial
    return tuple(f(2 * k) * f(l + k) // (4**k * f(k) ** 2 * f(l - k)) for k in range(l + 1))


def barrier_polynomial(z: Expr | complex, *, l: Any) -> Expr:
    """``D_l(z)``; real for real z and never below ``D_l(0)`` for z >= 0."""
    highest, *others = barrier_coefficients(l)
    value = as_expr(float(highest))
    point = as_expr(z)
    for position, coefficient in enumerate(others):
        value = (value * point if position else point) + float(coefficient)
    return value


def barrier_squared(z: Expr | complex, *, l: Any) -> Expr:
    """``B_l**2 = N_l z**l / D_l(z)``, a real rational function of a real ``z = (q / q_R)**2``."""
    norm = sum(barrier_coefficients(l))
    return norm * as_expr(z) ** orbital(l, "Blatt-Weisskopf barrier") / barrier_polynomial(z, l=l)


def blatt_weisskopf(
    q: Expr | complex,
    *,
    l: Any,
    kind: BarrierKind = BarrierKind.FULL,
) -> Expr:
    """Barrier factor with the default reference momentum 0.1973 GeV; see the custom form."""
    return blatt_weisskopf_custom(q, l=l, kind=kind, q_r=Q_R)


def blatt_weisskopf_custom(
    q: Expr | complex,
    *,
    l: Any,
    kind: BarrierKind = BarrierKind.FULL,
    q_r: Expr | float,
) -> Expr:
    """Barrier factor ``B_l(q)`` with reference momentum `q_r`.

    Parameters
    ----------
    q
        Breakup momentum, GeV; imaginary below threshold.
    l
        Orbital angular momentum, 0 to 8.
    kind
        `BarrierKind.FULL`: ``sqrt(N_l z**l / D_l(z))``, principal root, 1 at ``q = q_r``.
        `BarrierKind.TENSOR`: divided by ``q**l``, written ``sqrt(N_l / D_l(z)) / q_r**l`` so that
        it has its finite limit at q = 0; in GeV to the power -l.
    q_r
        GeV, a number or a parameter; only its absolute value matters.

    Returns
    -------
    Expr
        Real by type for a real q.

    Raises
    ------
    ExpressionError
        l outside 0 to 8, or a literal `q_r` that is zero or not finite.
    """
    reference = reference_momentum(q_r)
    z = (as_expr(q) / reference) ** 2
    if kind is BarrierKind.FULL:
        return barrier_squared(z, l=l).sqrt()
    if kind is BarrierKind.TENSOR:
        norm = sum(barrier_coefficients(l))
        length = (reference**2).sqrt() ** orbital(l, "Blatt-Weisskopf barrier")
        return (norm / barrier_polynomial(z, l=l)).sqrt() / length
    raise TypeError(f"kind must be BarrierKind.FULL or BarrierKind.TENSOR, got {kind!r}")


def reference_momentum(q_r: Expr | float) -> Expr:
    """The reference momentum as an expression, refused where a literal cannot be one."""
    value = literal(q_r)
    if value is not None and (value == 0 or not math.isfinite(value)):
        raise invalid("Blatt-Weisskopf barrier", f"q_r must be finite and not zero, got {q_r!r}")
    return as_expr(q_r)
