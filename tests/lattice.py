"""Deterministic photoproduction events ``beam target -> X recoil, X -> ks1 ks2``, no generator.

Kronecker points ``u_k(i) = frac((offset + 1 + i) sqrt(p_k))`` fill the unit cube evenly for the
primes p = 2, 3, 5, 7, 11, 13. The events are built upwards from known decay angles, by rotations
and boosts of this file alone, so that they can close the circle with the package's frames.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PROTON_MASS = 0.93827208816
KAON_MASS = 0.497611

Array = NDArray[np.float64]


def kronecker(n: int, offset: int = 0) -> Array:
    """The points ``u0`` to ``u5``, shape ``(6, n)``, each in [0, 1)."""
    index = offset + 1.0 + np.arange(n)
    return np.stack([np.modf(index * np.sqrt(prime))[0] for prime in (2.0, 3, 5, 7, 11, 13)])


def events(n: int, offset: int = 0) -> dict[str, Array]:
    """Columns of `n` events, GeV and radians.

    Returns
    -------
    dict
        ``<p4>_e, _px, _py, _pz`` for beam, target, recoil, ks1, ks2 in the laboratory; `weight`;
        ``u0`` to ``u5``; and the inputs of the construction: `mass`, `s`, production `cm_costheta`
        and `cm_phi`, helicity `costheta` and `phi`.
    """
    u = kronecker(n, offset)
    energy, mass = 8 + u[0], 1 + u[1]
    s = PROTON_MASS**2 + 2 * energy * PROTON_MASS
    q = _breakup(s, mass, PROTON_MASS)
    cm_costheta, cm_phi = 1 - 0.4 * u[2], 2 * np.pi * u[3] - np.pi
    direction = _direction(cm_costheta, cm_phi)
    costheta, phi = 2 * u[4] - 1, 2 * np.pi * u[5] - np.pi

    k = np.sqrt(mass**2 / 4 - KAON_MASS**2)
    # z along X, y along beam x X, both known without any boost: the beam is along z.
    y = np.stack([-direction[1], direction[0], np.zeros(n)])
    y /= np.sqrt((y * y).sum(axis=0))
    x = np.cross(y, direction, axis=0)
    local = _direction(costheta, phi)
    momentum = k * (local[0] * x + local[1] * y + local[2] * direction)

    resonance_energy = np.sqrt(q**2 + mass**2)
    to_cm = q / resonance_energy * direction
    to_laboratory = np.stack([np.zeros(n), np.zeros(n), energy / (energy + PROTON_MASS)])
    laboratory = {
        "beam": np.stack([energy, np.zeros(n), np.zeros(n), energy]),
        "target": np.stack([np.full(n, PROTON_MASS), *np.zeros((3, n))]),
        "recoil": _boost(
            np.stack([np.sqrt(q**2 + PROTON_MASS**2), *(-q * direction)]), to_laboratory
        ),
        "ks1": _boost(_boost(np.stack([mass / 2, *momentum]), to_cm), to_laboratory),
        "ks2": _boost(_boost(np.stack([mass / 2, *-momentum]), to_cm), to_laboratory),
    }
    columns = {
        f"{name}_{component}": p4[i]
        for name, p4 in laboratory.items()
        for i, component in enumerate(("e", "px", "py", "pz"))
    }
    return columns | {
        "weight": q * k * (1 + 0.1 * u[0]),
        **{f"u{i}": u[i] for i in range(6)},
        "mass": mass,
        "s": s,
        "cm_costheta": cm_costheta,
        "cm_phi": cm_phi,
        "costheta": costheta,
        "phi": phi,
    }


def _breakup(s: Array, mass1: Array, mass2: float) -> Array:
    product = (s - (mass1 + mass2) ** 2) * (s - (mass1 - mass2) ** 2)
    return np.asarray(np.sqrt(product / (4 * s)))


def _direction(costheta: Array, phi: Array) -> Array:
    sintheta = np.sqrt(1 - costheta**2)
    return np.stack([sintheta * np.cos(phi), sintheta * np.sin(phi), costheta])


def _boost(p4: Array, beta: Array) -> Array:
    """Active boost of ``(4, n)`` four-momenta by ``(3, n)`` velocities."""
    beta2 = (beta * beta).sum(axis=0)
    gamma = 1 / np.sqrt(1 - beta2)
    along = (beta * p4[1:]).sum(axis=0)
    shift = (gamma - 1) / beta2 * along + gamma * p4[0]
    return np.stack([gamma * (p4[0] + along), *(p4[1:] + beta * shift)])
