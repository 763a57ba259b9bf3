r"""The Flatte line shape: one resonance whose width is shared by several two-body channels.

    A(s) = 1 / (m**2 - s - i sum_c g_c rho_c(s)),   rho_c = 2 q_c / sqrt(s).

Below its threshold a channel's rho is imaginary, ``rho = +i |rho|`` on the physical sheet, and its
term is real: it shifts the peak instead of widening it, which gives the cusp at the threshold.

Source: S. M. Flatte, Phys. Lett. B 63, 224 (1976); Particle Data Group, Review of Particle
Physics, section "Resonances", where the strengths are written as squares of couplings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from laddu_dask.expr import Expr, as_expr
from laddu_dask.expr import complex as complex_expr
from laddu_dask.expr import sum as sum_expr
from laddu_dask.physics.breakup import Sheet, rho
from laddu_dask.physics.checks import invalid, literal


def flatte(
    s: Expr | complex,
    *,
    mass: Expr | float,
    strengths: Iterable[Expr | float],
    channel_mass_1: Iterable[Expr | float],
    channel_mass_2: Iterable[Expr | float],
    sheets: Sequence[Sheet] | None = None,
) -> Expr:
    """Flatte amplitude ``1 / (m**2 - s - i sum_c g_c rho_c)`` of one or more S-wave channels.

    Parameters
    ----------
    s
        Squared mass, GeV squared; may be complex. Not finite at s = 0.
    mass
        Bare mass m, GeV.
    strengths
        g of each channel, GeV squared: the square of the coupling in the PDG's notation. It enters
        as it is, without a factor m.
    channel_mass_1, channel_mass_2
        Daughter masses of each channel, GeV.
    sheets
        Riemann sheet of each channel; None is the physical one for all. The pole of a resonance
        lies on a sheet where the open channels are unphysical.

    Returns
    -------
    Expr
        In GeV to the power -2. Above a threshold it satisfies unitarity for g >= 0:
        ``Im A = |A|**2 sum g rho`` over the open channels.

    Raises
    ------
    ExpressionError
        No channel; numbers of strengths, masses and sheets that differ; a literal mass that is not
        positive and finite.
    """
    value = literal(mass)
    if value is not None and not 0 < value < math.inf:
        raise invalid("Flatte", f"mass must be positive and finite, got {mass!r}")
    g, first, second = list(strengths), list(channel_mass_1), list(channel_mass_2)
    on = [Sheet.PHYSICAL] * len(g) if sheets is None else list(sheets)
    counts = (len(g), len(first), len(second), len(on))
    if not g or len(set(counts)) != 1:
        raise invalid(
            "Flatte",
            "needs one strength, two masses and one sheet for each channel, got "
            "{} strengths, {} and {} masses, {} sheets".format(*counts),
        )
    opened = sum_expr(
        as_expr(strength) * rho(s, mass1=mass1, mass2=mass2, sheet=sheet)
        for strength, mass1, mass2, sheet in zip(g, first, second, on, strict=True)
    )
    return 1 / (as_expr(mass) ** 2 - s + complex_expr(opened.imag(), -opened.real()))
