"""Frames and angles of two-step reactions ``beam target -> resonance recoil, resonance -> ...``.

Every frame is reached by nested pure boosts: first into the centre-of-momentum (CM) frame of the
production, then from there into the rest frame of the resonance. A single boost from the laboratory
would differ by a Wigner rotation.

Directions are written x, y, z with ``z`` along a chosen axis, ``y`` along a reference direction
made perpendicular to it, and ``x = y x z``.

Without a defined direction (a particle at rest, a reference parallel to the axis, a resonance along
the beam) the angle is NaN, also when rounding has left a residue that could pass for a direction.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from laddu_dask.expr import Expr, atan2, where
from laddu_dask.physics.vectors import Vec3, Vec4

#: Smallest sine of an angle between two momenta, and smallest velocity, that count as a direction.
#: Boosts leave residues near 1e-15 of vectors that should vanish; data stay far above.
TINY = 1e-12


class Mandelstam(NamedTuple):
    """Invariants of a reaction with two particles in and two out, in squared units of momentum."""

    s: Expr
    t: Expr
    u: Expr


class Angles(NamedTuple):
    """A direction: cosine of the polar angle in [-1, 1] and azimuth in [-pi, pi]."""

    costheta: Expr
    phi: Expr

    @property
    def theta(self) -> Expr:
        """Polar angle in [0, pi]."""
        return self.costheta.acos()


def mandelstam(p1: Vec4, p2: Vec4, p3: Vec4, p4: Vec4) -> Mandelstam:
    """``s = (p1 + p2)**2``, ``t = (p1 - p3)**2``, ``u = (p1 - p4)**2`` of ``p1 p2 -> p3 p4``.

    `t` is first incoming minus first outgoing: for ``beam target -> resonance recoil`` it is the
    momentum transfer from the beam to the resonance.
    """
    return Mandelstam(s=(p1 + p2).m2(), t=(p1 - p3).m2(), u=(p1 - p4).m2())


def to_rest_frame(p: Vec4, parent: Vec4) -> Vec4:
    """`p` after the pure boost that brings `parent` to rest.

    Equal to ``p.boost(-parent.beta())``, written with the parent's mass M:
    ``E' = P.p / M``, ``p' = p - P (E + E') / (E_P + M)``. Not finite for a massless or spacelike
    parent, which has no rest frame.
    """
    mass = parent.m()
    if parent.m2().is_real:
        mass = mass.real()
    energy = parent.dot(p) / mass
    fraction = (p.e() + energy) / (parent.e() + mass)
    return (p.momentum() - parent.momentum() * fraction).with_energy(energy)


def angles(p: Vec3, z_axis: Vec3, y_hint: Vec3) -> Angles:
    """Direction of `p` with respect to a polar axis and a reference direction.

    Parameters
    ----------
    p
        Momentum; a null momentum gives NaN.
    z_axis
        Polar axis, of any length.
    y_hint
        Vector of any length; its part perpendicular to `z_axis` is the y axis. Only the azimuth
        depends on it.

    Returns
    -------
    Angles
        ``cos(theta) = p.z / |p|`` and ``phi = atan2(p.y, p.x)`` with ``x = y x z``.
    """
    z = z_axis.unit()
    y = _direction(y_hint - z * y_hint.dot(z), y_hint.mag2())
    x = y.cross(z)
    return Angles(costheta=p.dot(z) / p.mag(), phi=atan2(p.dot(y), p.dot(x)))


def production_normal(beam: Vec3, resonance: Vec3) -> Vec3:
    """Unit vector along ``beam x resonance``, the normal of the production plane.

    Both momenta in one frame; the CM frame, and any frame reached from it along the beam, give the
    same vector. NaN when the resonance flies along the beam.
    """
    return _direction(beam.cross(resonance), beam.mag2() * resonance.mag2())


def _direction(v: Vec3, scale: Expr) -> Vec3:
    """Unit vector along `v`, NaN where ``v**2`` is but rounding error of terms of size `scale`."""
    return v / where(v.mag2() > TINY**2 * scale, v.mag(), math.nan)


def moving(p: Vec4) -> Vec3:
    """Momentum of `p`, NaN where it is but rounding error of its energy."""
    momentum = p.momentum()
    return momentum * where(momentum.mag2() > TINY**2 * p.e() ** 2, 1.0, math.nan)


def production_angles(beam: Vec4, target: Vec4, resonance: Vec4) -> Angles:
    """Direction of the resonance in the production CM frame.

    The polar axis is the beam, and the y axis is the laboratory's: the azimuth is the laboratory
    azimuth for a beam along z.
    """
    cm = beam + target
    return angles(
        moving(to_rest_frame(resonance, cm)),
        z_axis=moving(to_rest_frame(beam, cm)),
        y_hint=Vec3.y_axis(),
    )


def helicity_angles(beam: Vec4, target: Vec4, resonance: Vec4, daughter: Vec4) -> Angles:
    """Direction of a daughter in the helicity frame of the resonance.

    The momentum of the daughter in the rest frame of the resonance, with z along the resonance in
    the production CM frame and y along ``beam x resonance`` there.

    Parameters
    ----------
    beam, target, resonance, daughter
        Four-momenta in one frame, usually the laboratory.
    """
    cm = beam + target
    resonance_cm = to_rest_frame(resonance, cm)
    return angles(
        moving(to_rest_frame(to_rest_frame(daughter, cm), resonance_cm)),
        z_axis=moving(resonance_cm),
        y_hint=production_normal(to_rest_frame(beam, cm).momentum(), resonance_cm.momentum()),
    )


def gottfried_jackson_angles(beam: Vec4, target: Vec4, resonance: Vec4, daughter: Vec4) -> Angles:
    """Direction of a daughter in the Gottfried-Jackson frame of the resonance.

    As `helicity_angles`, with z along the beam in the rest frame of the resonance; y stays along
    ``beam x resonance`` of the production CM frame, which this boost does not change.
    """
    cm = beam + target
    resonance_cm = to_rest_frame(resonance, cm)
    beam_cm = to_rest_frame(beam, cm)
    return angles(
        moving(to_rest_frame(to_rest_frame(daughter, cm), resonance_cm)),
        z_axis=moving(to_rest_frame(beam_cm, resonance_cm)),
        y_hint=production_normal(beam_cm.momentum(), resonance_cm.momentum()),
    )


def adair_angles(beam: Vec4, target: Vec4, resonance: Vec4, daughter: Vec4) -> Angles:
    """Direction of a daughter in the Adair frame of the resonance.

    As `helicity_angles`, with z along the beam in the production CM frame (K. Schilling,
    P. Seyboth, G. Wolf, Nucl. Phys. B 15, 397 (1970)).
    """
    cm = beam + target
    resonance_cm = to_rest_frame(resonance, cm)
    beam_cm = to_rest_frame(beam, cm)
    return angles(
        moving(to_rest_frame(to_rest_frame(daughter, cm), resonance_cm)),
        z_axis=moving(beam_cm),
        y_hint=production_normal(beam_cm.momentum(), resonance_cm.momentum()),
    )


def canonical_angles(beam: Vec4, target: Vec4, resonance: Vec4, daughter: Vec4) -> Angles:
    """Direction of a daughter in the canonical frame of the resonance.

    The momentum of the daughter in the rest frame of the resonance, with the axes of the
    laboratory, which the pure boosts keep parallel (S. U. Chung, Spin Formalisms, CERN 71-8).
    Unlike the other angles these depend on how the laboratory is turned.
    """
    cm = beam + target
    resonance_cm = to_rest_frame(resonance, cm)
    return angles(
        moving(to_rest_frame(to_rest_frame(daughter, cm), resonance_cm)),
        z_axis=Vec3.z_axis(),
        y_hint=Vec3.y_axis(),
    )
