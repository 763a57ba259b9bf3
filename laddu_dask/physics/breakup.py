"""Breakup momentum and phase space of a pair, on both Riemann sheets.

Above threshold both are real and positive on the physical sheet; below it they are imaginary and
below the pseudo-threshold ``(m1 - m2)**2`` real again. The type of the expressions is complex.
"""

from __future__ import annotations

import math
from enum import Enum

from laddu_dask.expr import Expr, as_expr
from laddu_dask.physics.checks import invalid, literal


class Sheet(Enum):
    """Riemann sheet of a two-body function."""

    PHYSICAL = "physical"
    UNPHYSICAL = "unphysical"


def kallen(s: Expr | complex, *, mass1: Expr | float, mass2: Expr | float) -> Expr:
    """Kallen's triangle function ``(s - (m1 + m2)**2) (s - (m1 - m2)**2)``; real for a real s.

    Raises
    ------
    ExpressionError
        A literal mass that is negative or not finite.
    """
    for name, mass in (("mass1", mass1), ("mass2", mass2)):
        value = literal(mass)
        if value is not None and not 0 <= value < math.inf:
            raise invalid("breakup momentum", f"{name} must be finite and >= 0, got {mass!r}")
    invariant = as_expr(s)
    return (invariant - (mass1 + mass2) ** 2) * (invariant - (mass1 - mass2) ** 2)


def q_squared(s: Expr | complex, *, mass1: Expr | float, mass2: Expr | float) -> Expr:
    """Squared breakup momentum ``kallen / (4 s)``; negative below threshold, infinite at s = 0."""
    return kallen(s, mass1=mass1, mass2=mass2) / (4 * as_expr(s))


def q(
    s: Expr | complex,
    *,
    mass1: Expr | float,
    mass2: Expr | float,
    sheet: Sheet = Sheet.PHYSICAL,
) -> Expr:
    """Breakup momentum ``sqrt((s - (m1 + m2)**2) (s - (m1 - m2)**2)) / (2 sqrt(s))``.

    Parameters
    ----------
    s
        Squared mass of the pair, GeV squared; may be complex.
    mass1, mass2
        Daughter masses, GeV.
    sheet
        `Sheet.UNPHYSICAL` changes the sign.

    Returns
    -------
    Expr
        GeV; principal roots of the product and of s. Not finite at s = 0.
    """
    root = kallen(s, mass1=mass1, mass2=mass2).sqrt() / (2 * as_expr(s).sqrt())
    return _on(sheet, root)


def rho(
    s: Expr | complex,
    *,
    mass1: Expr | float,
    mass2: Expr | float,
    sheet: Sheet = Sheet.PHYSICAL,
) -> Expr:
    """Two-body phase space ``2 q / sqrt(s)``, tending to 1 at high mass.

    Written as ``sqrt(kallen) / s``, the same function with one root less. Arguments as `q`.
    """
    return _on(sheet, kallen(s, mass1=mass1, mass2=mass2).sqrt() / as_expr(s))


def _on(sheet: Sheet, physical: Expr) -> Expr:
    if not isinstance(sheet, Sheet):
        raise TypeError(f"sheet must be Sheet.PHYSICAL or Sheet.UNPHYSICAL, got {sheet!r}")
    return -physical if sheet is Sheet.UNPHYSICAL else physical
