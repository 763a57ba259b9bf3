"""Resonance line shapes, all with numerator 1."""

from __future__ import annotations

import math
from typing import Any

from laddu_dask.expr import Expr, as_expr
from laddu_dask.expr import complex as complex_expr
from laddu_dask.physics.barriers import MAX_L, Q_R, barrier_polynomial, reference_momentum
from laddu_dask.physics.breakup import q_squared, rho
from laddu_dask.physics.checks import invalid, literal, orbital


def breit_wigner(s: Expr | complex, *, mass: Expr | float, width: Expr | float) -> Expr:
    """Breit-Wigner amplitude of constant width, ``1 / (m**2 - s - i m Gamma)``.

    Parameters
    ----------
    s
        Squared mass, GeV squared.
    mass, width
        GeV. A negative width is used as given.
    """
    return _propagator(s, as_expr(mass) ** 2, as_expr(mass) * width)


def relativistic_breit_wigner(
    s: Expr | complex,
    *,
    mass: Expr | float,
    width: Expr | float,
    mass1: Expr | float,
    mass2: Expr | float,
    l: Any = 0,
) -> Expr:
    """Breit-Wigner amplitude of running width with barrier factors at q_R = 0.1973 GeV.

    See `relativistic_breit_wigner_custom`.
    """
    return relativistic_breit_wigner_custom(
        s, mass=mass, width=width, mass1=mass1, mass2=mass2, l=l
    )


def relativistic_breit_wigner_custom(
    s: Expr | complex,
    *,
    mass: Expr | float,
    width: Expr | float,
    mass1: Expr | float,
    mass2: Expr | float,
    l: Any,
    barrier_factors: bool = True,
    q_r: Expr | float | None = None,
) -> Expr:
    """Breit-Wigner amplitude ``1 / (m**2 - s - i m Gamma(s))`` with the running width

    ``Gamma(s) = Gamma (m / sqrt(s)) (q / q0) (B_l(q) / B_l(q0))**2``, ``q0 = q(m**2)``,

    or ``Gamma (m / sqrt(s)) (q / q0)**(2 l + 1)`` without barrier factors (PDG review of
    resonances, with the barrier factors of `laddu_dask.physics.barriers`).

    Parameters
    ----------
    s
        Squared mass of the pair, GeV squared. Below threshold the width is imaginary and the
        amplitude real; at s = 0 the result is not finite.
    mass, width
        Mass and width of the resonance, GeV. A mass below threshold is legal: q0 is imaginary.
    mass1, mass2
        Daughter masses, GeV.
    l
        Orbital angular momentum of the pair, 0 to 8.
    barrier_factors
        Whether the width carries barrier factors.
    q_r
        Reference momentum of the barrier factors, GeV, a number or a parameter; None is 0.1973.

    Raises
    ------
    ExpressionError
        l outside 0 to 8; a literal mass that is not positive and finite; a literal `q_r` of zero.
    """
    l = orbital(l, "relativistic Breit-Wigner", MAX_L)
    value = literal(mass)
    if value is not None and not 0 < value < math.inf:
        raise invalid("relativistic Breit-Wigner", f"mass must be positive, got {mass!r}")
    reference = reference_momentum(Q_R if q_r is None else q_r) if barrier_factors else None
    mass_squared = as_expr(mass) ** 2
    # m (m / sqrt(s)) (q / q0) = |m| rho(s) / rho(m**2): one root each for the event and the pole.
    # All that depends on the pole comes first and all that depends on the event second, so that an
    # evaluation multiplies one number per event.
    pole = _width_shape(mass_squared, mass1, mass2, l, reference)
    event = _width_shape(as_expr(s), mass1, mass2, l, reference)
    return _propagator(s, mass_squared, (mass_squared.sqrt() * width / pole) * event)


def _width_shape(
    s: Expr, mass1: Expr | float, mass2: Expr | float, l: int, reference: Expr | None
) -> Expr:
    """The width's dependence on s up to a constant: ``rho z**l / D_l(z)``, or ``rho q**(2 l)``.

    Only rho holds a square root; the other factor is a real rational function of s.
    """
    phase_space = rho(s, mass1=mass1, mass2=mass2)
    if l == 0:
        return phase_space
    momentum_squared = q_squared(s, mass1=mass1, mass2=mass2)
    if reference is None:
        return phase_space * momentum_squared**l
    z = momentum_squared / reference**2
    return phase_space * (z**l / barrier_polynomial(z, l=l))


def _propagator(s: Expr | complex, mass_squared: Expr, mass_width: Expr) -> Expr:
    """``1 / (m**2 - s - i W)``, the product -i W written as a swap of its parts."""
    rotated = complex_expr(mass_width.imag(), -mass_width.real())
    return 1 / (mass_squared - s + rotated)
