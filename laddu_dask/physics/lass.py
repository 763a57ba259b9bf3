r"""The LASS form of the K pi S-wave: effective-range background and resonance, unitary together.

With the breakup momentum q and the background phase ``cot(delta_B) = 1 / (a q) + r q / 2``,

    A(s) = (sqrt(s) / q)
           [sin(delta_B) exp(i delta_B) + exp(2 i delta_B) sin(delta_R) exp(i delta_R)]
         = a sqrt(s) / D_- + (D_+ / D_-) (2 m Gamma / rho0) / (m**2 - s - i m Gamma rho / rho0),
    D_+- = 1 + a r q**2 / 2 +- i a q,

where ``rho = 2 q / sqrt(s)``, rho0 its value at m**2, and delta_R is the phase of the resonance.
The last line, in which nothing is divided by q, is what is evaluated.

Source: D. Aston et al., Nucl. Phys. B 296, 493 (1988); in this notation
B. Aubert et al., Phys. Rev. D 78, 012004 (2008).
"""

from __future__ import annotations

import math

from laddu_dask.expr import Expr, as_expr
from laddu_dask.expr import complex as complex_expr
from laddu_dask.physics.breakup import q, q_squared, rho
from laddu_dask.physics.checks import invalid, literal


def lass(
    s: Expr | complex,
    *,
    mass: Expr | float,
    width: Expr | float,
    mass1: Expr | float,
    mass2: Expr | float,
    scattering_length: Expr | float,
    effective_range: Expr | float,
) -> Expr:
    """LASS amplitude ``(sqrt(s) / q)`` times the elastic amplitude ``sin(delta) exp(i delta)``.

    Parameters
    ----------
    s
        Squared mass of the pair, GeV squared. Finite at threshold, continued analytically below
        it, not finite at s = 0. The form describes data up to about 1.8 GeV (the K eta'
        threshold); nothing is cut off beyond.
    mass, width
        Resonance, GeV, for the K_0*(1430); a mass at threshold is not finite.
    mass1, mass2
        Daughter masses, GeV.
    scattering_length, effective_range
        a and r, GeV to the power -1. ``a = 0`` leaves the resonance alone.

    Returns
    -------
    Expr
        Without dimension; ``Im A = (q / sqrt(s)) |A|**2`` above threshold.

    Raises
    ------
    ExpressionError
        A literal mass that is not positive and finite.
    """
    value = literal(mass)
    if value is not None and not 0 < value < math.inf:
        raise invalid("LASS", f"mass must be positive and finite, got {mass!r}")
    a, r, invariant = as_expr(scattering_length), as_expr(effective_range), as_expr(s)
    pole = as_expr(mass) ** 2
    even = 1 + (a * r / 2) * q_squared(invariant, mass1=mass1, mass2=mass2)
    odd = a * q(invariant, mass1=mass1, mass2=mass2)
    turned = complex_expr(-odd.imag(), odd.real())  # i a q
    at_pole = as_expr(mass) * width / rho(pole, mass1=mass1, mass2=mass2)
    running = at_pole * rho(invariant, mass1=mass1, mass2=mass2)
    resonance = 2 * at_pole / (pole - invariant + complex_expr(running.imag(), -running.real()))
    return (a * invariant.sqrt() + (even + turned) * resonance) / (even - turned)
