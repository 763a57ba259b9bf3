r"""The Gounaris-Sakurai form of a vector resonance in two equal pseudoscalars, the rho in pi pi.

With ``k(s) = sqrt(s/4 - mu**2)`` and the loop function, written for s + i0,

    H(s) = (2 / pi) (k / sqrt(s)) [log((sqrt(s) + 2 k) / (2 mu)) - i pi / 2],

whose real part above threshold is the h(s) of the literature and whose imaginary part is
``-k / sqrt(s)``, the amplitude is

    A(s) = m**2 (1 + d Gamma / m) / (m**2 - s + f(s) - i m Gamma(s)),
    f(s) - i m Gamma(s) = (Gamma m**2 / k0**3)
        [k**2 (H(s) - h0) + (m**2 - s) k0**2 h0'],
    h0' = h0 (1 / (8 k0**2) - 1 / (2 m**2)) + 1 / (2 pi m**2),
    d = (3/pi) (mu**2 / k0**2) log((m + 2 k0) / (2 mu)) + m / (2 pi k0) - mu**2 m / (pi k0**3)

with ``k0 = k(m**2)`` and ``h0 = Re H(m**2)``, h0' its derivative by s. At s = m**2 the denominator
is ``-i m Gamma`` and the slope of its real part -1; the width runs as
``Gamma (k / k0)**3 m / sqrt(s)``, and ``A(0) = 1``.

Source: G. J. Gounaris and J. J. Sakurai, Phys. Rev. Lett. 21, 244 (1968); in this notation
J. P. Lees et al., Phys. Rev. D 86, 032013 (2012), section on the pion form factor.
"""

from __future__ import annotations

import math

from laddu_dask.expr import Expr, as_expr
from laddu_dask.expr import complex as complex_expr
from laddu_dask.physics.checks import invalid, literal


def gounaris_sakurai(
    s: Expr | complex,
    *,
    mass: Expr | float,
    width: Expr | float,
    daughter_mass: Expr | float,
) -> Expr:
    """Gounaris-Sakurai amplitude, without dimension and 1 in the limit s -> 0.

    Parameters
    ----------
    s
        Squared mass of the pair, GeV squared. Below threshold, also at negative s, the amplitude
        is real; at s = 0 itself, where roots cancel, the result is not finite.
    mass, width
        Mass and width of the resonance, GeV. The mass must lie above threshold; where a parameter
        leaves that range the result is not finite.
    daughter_mass
        Mass of either daughter, GeV.

    Raises
    ------
    ExpressionError
        A literal daughter mass that is not positive and finite; a literal mass that is not finite
        or not above twice the daughter mass.
    """
    m, mu = literal(mass), literal(daughter_mass)
    if mu is not None and not 0 < mu < math.inf:
        raise invalid(
            "Gounaris-Sakurai", f"daughter_mass must be positive and finite, got {daughter_mass!r}"
        )
    if m is not None and not (2 * (mu or 0) < m < math.inf):
        raise invalid(
            "Gounaris-Sakurai",
            f"mass must be finite and above the threshold {2 * (mu or 0)}, got {mass!r}",
        )
    pole, light, gamma = as_expr(mass), as_expr(daughter_mass), as_expr(width)
    pole2, light2 = pole**2, light**2
    # The real part is zero below threshold and spoils the result there, as it should.
    k0 = (pole2 / 4 - light2).sqrt().real()
    log0 = ((pole + 2 * k0) / (2 * light)).log().real()
    h0 = (2 / math.pi) * (k0 / pole) * log0
    slope = h0 * (1 / (8 * k0**2) - 1 / (2 * pole2)) + 1 / (2 * math.pi * pole2)
    d = (
        (3 / math.pi) * (light2 / k0**2) * log0
        + pole / (2 * math.pi * k0)
        - light2 * pole / (math.pi * k0**3)
    )
    strength = gamma * pole2 / k0**3
    invariant = as_expr(s)
    k2 = invariant / 4 - light2
    loop = k2 * _loop(invariant, k2, light)
    smooth = (pole2 - invariant) * (k0**2 * slope)
    shift = strength * (loop - k2 * h0 + smooth)
    return pole2 * (1 + d * gamma / pole) / (pole2 - invariant + shift)


def _loop(s: Expr, k2: Expr, mu: Expr) -> Expr:
    """``H(s)``; the roots stay in the first quadrant, so the logarithm needs no other branch."""
    k, root = k2.sqrt(), s.sqrt()
    angle = ((root + 2 * k) / (2 * mu)).log()
    return (2 / math.pi) * (k / root) * complex_expr(angle.real(), angle.imag() - math.pi / 2)
