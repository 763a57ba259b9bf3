r"""The Chew-Mandelstam function: phase space with the real part that analyticity demands.

With ``M = m1 + m2``, ``d = m2 - m1``, ``x = 1 - M**2/s`` and ``y = 1 - d**2/s``, the loop function
subtracted at threshold is

    pi C(s) = sqrt(x) sqrt(y) [2 log(sqrt(x) + sqrt(y)) - log(-4 m1 m2 / s)] - x (d/M) log(m2/m1).

This is ``sqrt(x y) log((sqrt(x) + sqrt(y)) / (sqrt(x) - sqrt(y)))`` of the literature with its
logarithm split so that principal values of every part continue each other: above threshold
``-4 m1 m2 / s`` alone is negative, the roots never leave the first quadrant, and a real s counts as
s + i0 everywhere. For one massless daughter the limit is
``pi C(s) = x [log(x) - log(-m**2 / s)]``.

``Im C = -rho`` above threshold, C is real below it and zero at threshold.

Source: G. F. Chew and S. Mandelstam, Phys. Rev. 119, 467 (1960); J. L. Basdevant and E. L. Berger,
Phys. Rev. D 16, 657 (1977).
"""

from __future__ import annotations

import math

from laddu_dask.expr import Expr, as_expr, where
from laddu_dask.physics.checks import invalid, literal


def chew_mandelstam(s: Expr | complex, *, mass1: Expr | float, mass2: Expr | float) -> Expr:
    """Chew-Mandelstam function on the physical sheet, without dimension.

    Parameters
    ----------
    s
        Squared mass of the pair, GeV squared; may be complex. Not finite at s = 0.
    mass1, mass2
        Daughter masses, GeV; their order does not matter. A mass given as an expression must not
        become zero.

    Raises
    ------
    ExpressionError
        A literal mass that is negative or not finite; two massless daughters, for which the
        subtraction at threshold diverges.
    """
    masses = [mass1, mass2]
    values = [literal(mass) for mass in masses]
    for mass, value in zip(masses, values, strict=True):
        if value is not None and not 0 <= value < math.inf:
            raise invalid("Chew-Mandelstam", f"masses must be finite and >= 0, got {mass!r}")
    invariant = as_expr(s)
    if 0 in values:
        if values == [0, 0]:
            raise invalid("Chew-Mandelstam", "at least one daughter must have mass")
        return _one_massless(invariant, as_expr(masses[1 - values.index(0)]))
    return _massive(invariant, as_expr(mass1), as_expr(mass2))


def _massive(s: Expr, m1: Expr, m2: Expr) -> Expr:
    total, difference = m1 + m2, m2 - m1
    x = 1 - total**2 / s
    root_x, root_y = x.sqrt(), (1 - difference**2 / s).sqrt()
    angle = 2 * (root_x + root_y).log() - (-4 * m1 * m2 / s).log()
    asymmetry = (difference / total) * (m2 / m1).log().real()
    return (root_x * root_y * angle - x * asymmetry) / math.pi


def _one_massless(s: Expr, m: Expr) -> Expr:
    x = 1 - m**2 / s
    value = x * (x.log() - (-(m**2) / s).log()) / math.pi
    if not s.is_real or not m.is_real:
        return value
    return where(x == 0, 0.0, value)  # x log(x) would be NaN at threshold
