"""Photoproduction with a linearly polarised beam: the amplitudes of the JPAC convention.

Source: V. Mathieu et al. (JPAC), "Moments of angular distribution and beam asymmetries in eta pi0
photoproduction at GlueX", Phys. Rev. D 100, 054017 (2019), appendix D. Phi is the angle between the
linear polarisation vector of the photon and the production plane.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import Expr, as_expr, atan2, cis
from laddu_dask.physics.checks import invalid, literal
from laddu_dask.physics.frames import production_normal
from laddu_dask.physics.spherical import spherical_harmonic
from laddu_dask.physics.vectors import Vec3

Wave = tuple[Expr | complex, Expr]


def production_plane_angle(beam: Vec3, resonance: Vec3, angle: Expr | float) -> Expr:
    """Angle Phi of the polarisation vector to the production plane, in [-pi, pi].

    With ``eps = (cos(angle), sin(angle), 0)`` and ``y = unit(beam x resonance)``,
    ``Phi = atan2(y . eps, unit(beam) . (eps x y))``.

    Parameters
    ----------
    beam, resonance
        Momenta in one frame, the laboratory or the CM frame, with the beam along z.
    angle
        Azimuth of the polarisation vector in the laboratory, radians.

    Returns
    -------
    Expr
        NaN when the resonance flies along the beam.
    """
    alpha = as_expr(angle)
    polarization = Vec3(alpha.cos(), alpha.sin(), 0.0)
    y = production_normal(beam, resonance)
    return atan2(y.dot(polarization), beam.unit().dot(polarization.cross(y)))


def zlm(
    l: Any,
    m: Any,
    *,
    costheta: Expr | float,
    phi: Expr | float,
    polarization_angle: Expr | float,
) -> Expr:
    """``Z_l^m = Y_l^m(theta, phi) exp(-i Phi)``, the phase-rotated spherical harmonic.

    `costheta` and `phi` are helicity angles, `polarization_angle` is `production_plane_angle`, both
    in radians. Errors as `spherical_harmonic`.
    """
    return spherical_harmonic(l, m, costheta=costheta, phi=phi) * cis(-as_expr(polarization_angle))


def linearly_polarized_intensity(
    polarization: Expr | float,
    *,
    positive: Iterable[Wave] = (),
    negative: Iterable[Wave] = (),
) -> Expr:
    """Intensity of waves of both reflectivities in a beam of degree of polarisation P,

    ``(1 + P) |sum c Re Z|**2 + (1 - P) |sum c Im Z|**2``    (positive reflectivity)
    ``+ (1 - P) |sum c Re Z|**2 + (1 + P) |sum c Im Z|**2``  (negative reflectivity).

    This is the sum over reflectivities of eq. (D13) of the source, without its factor 2 kappa and
    for one set of nucleon helicities; add the intensities of the sets when there are more.

    Parameters
    ----------
    polarization
        Degree of polarisation, 0 to 1; a number, a parameter or an event column.
    positive, negative
        Pairs ``(c, Z)``: complex production amplitude, times line shape if any, and `zlm` of each
        wave of that reflectivity.

    Raises
    ------
    ExpressionError
        No wave at all, a wave that is not a pair, or a literal polarisation outside 0 to 1.
    """
    operation = "linearly_polarized_intensity"
    value = literal(polarization)
    if value is not None and not 0 <= value <= 1:
        raise invalid(
            operation, f"the degree of polarisation must be in [0, 1], got {polarization!r}"
        )
    degree = as_expr(polarization)
    total: Expr | None = None
    for waves, sign in ((tuple(positive), 1), (tuple(negative), -1)):
        if not waves:
            continue
        real_sum, imag_sum = _coherent_sums(waves, operation)
        favoured, other = (real_sum, imag_sum) if sign > 0 else (imag_sum, real_sum)
        part = (1 + degree) * favoured.norm_sqr() + (1 - degree) * other.norm_sqr()
        total = part if total is None else total + part
    if total is None:
        raise invalid(operation, "needs at least one wave")
    return total


def _coherent_sums(waves: tuple[Wave, ...], operation: str) -> tuple[Expr, Expr]:
    """``sum c Re Z`` and ``sum c Im Z``."""
    try:
        pairs = [(as_expr(c), as_expr(z)) for c, z in waves]
    except (TypeError, ValueError) as error:
        raise ExpressionError(
            f"{operation}: each wave is a pair (amplitude, zlm): {error}",
            operation=operation,
            shapes=[],
        ) from error
    real_sum, imag_sum = pairs[0][0] * pairs[0][1].real(), pairs[0][0] * pairs[0][1].imag()
    for c, z in pairs[1:]:
        real_sum, imag_sum = real_sum + c * z.real(), imag_sum + c * z.imag()
    return real_sum, imag_sum
