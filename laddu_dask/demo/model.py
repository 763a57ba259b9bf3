"""Two resonances in gamma p -> K_S K_S p with a linearly polarised beam.

An S wave (f0(1500)) and a D wave with m = 2 (f2'(1525)) of positive reflectivity, each a
relativistic Breit-Wigner with free mass and width. The S wave's production amplitude is the unit of
all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import laddu_dask.samples
from laddu_dask.data import Dataset, read_parquet
from laddu_dask.expr import Expr, parameter, polar_complex, scalar
from laddu_dask.physics import (
    Vec4,
    helicity_angles,
    linearly_polarized_intensity,
    production_plane_angle,
    relativistic_breit_wigner,
    zlm,
)
from laddu_dask.runtime import Model

#: Masses in GeV, Particle Data Group.
PROTON, K_SHORT = 0.93827208816, 0.497611

#: Values from which the pseudo-data are drawn; the fit starts elsewhere.
TRUTH = {
    "f0 mass": 1.506,
    "f0 width": 0.112,
    "f2 mass": 1.5174,
    "f2 width": 0.086,
    "f2 magnitude": 0.55,
    "f2 phase": 0.8,
}

WAVES = ("f0(1500)", "f2'(1525)")


@dataclass(frozen=True)
class Quantities:
    """Real expressions to project on.

    Attributes
    ----------
    mass
        Invariant mass of the two kaons in GeV.
    costheta, phi
        Helicity angles of the first kaon, phi in radians.
    polarization_angle
        Angle between polarisation and production plane in radians.
    """

    mass: Expr
    costheta: Expr
    phi: Expr
    polarization_angle: Expr


def sample() -> Dataset:
    """The shipped sample, every event with unit weight, as accepted Monte Carlo."""
    return read_parquet(Path(laddu_dask.samples.ksks_photoproduction()), weight=None)


def build() -> tuple[Model, Quantities]:
    """The intensity and the quantities that describe an event."""
    beam, kaon1, kaon2 = (Vec4.event(name) for name in ("beam", "kshort1", "kshort2"))
    target = Vec4(PROTON, 0.0, 0.0, 0.0)
    resonance = kaon1 + kaon2
    frame = helicity_angles(beam, target, resonance, kaon1)
    phi_pol = production_plane_angle(beam.vec3(), resonance.vec3(), scalar("pol_angle"))
    s = resonance.m2()
    f0 = relativistic_breit_wigner(
        s,
        mass=parameter("f0 mass", initial=1.48, bounds=(1.35, 1.65), unit="GeV"),
        width=parameter("f0 width", initial=0.15, bounds=(0.02, 0.4), unit="GeV"),
        mass1=K_SHORT,
        mass2=K_SHORT,
        l=0,
    )
    f2 = relativistic_breit_wigner(
        s,
        mass=parameter("f2 mass", initial=1.54, bounds=(1.4, 1.65), unit="GeV"),
        width=parameter("f2 width", initial=0.1, bounds=(0.02, 0.4), unit="GeV"),
        mass1=K_SHORT,
        mass2=K_SHORT,
        l=2,
    )
    strength = polar_complex(
        parameter("f2 magnitude", initial=0.4, bounds=(0.0, None)),
        parameter("f2 phase", initial=0.3, unit="rad"),
    )
    angles = {
        "costheta": frame.costheta,
        "phi": frame.phi,
        "polarization_angle": phi_pol,
    }
    intensity = linearly_polarized_intensity(
        scalar("pol_magnitude"),
        positive=[
            (f0.tagged(WAVES[0]), zlm(0, 0, **angles)),
            ((strength * f2).tagged(WAVES[1]), zlm(2, 2, **angles)),
        ],
    )
    mass = s.sqrt().real()
    return Model(intensity), Quantities(mass, frame.costheta, frame.phi, phi_pol)
