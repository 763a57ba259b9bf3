"""The reaction that the examples fit: gamma p -> X p, X -> K_S K_S with two resonances.

An f0(1500) in an S wave interferes with an f2(1270) in the m = 1 part of a D wave. Events are drawn
in phase space with NumPy, then kept with a probability proportional to the model, so that a fit has
a truth to find. Energies and momenta in GeV.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import laddu_dask as ld

Array = NDArray[np.float64]

M_KAON = 0.497611
M_PROTON = 0.938272
TRUTH = {"f2 magnitude": 0.4, "f2 phase": 0.9}
NAMES = ("beam", "kshort1", "kshort2")  # the target is at rest, the recoil is not needed


def model() -> ld.Model:
    """|f0 + c f2|² in the helicity angles of the first kaon; the complex number c is unknown."""
    beam, kaon1, kaon2 = (ld.Vec4.event(name) for name in NAMES)
    target = ld.Vec4(M_PROTON, 0.0, 0.0, 0.0)
    resonance = kaon1 + kaon2
    costheta, phi = ld.helicity_angles(beam, target, resonance, kaon1)
    s = resonance.m2()
    kaons = {"mass1": M_KAON, "mass2": M_KAON}
    f0 = ld.relativistic_breit_wigner(s, mass=1.506, width=0.112, l=0, **kaons)
    f2 = ld.relativistic_breit_wigner(s, mass=1.2754, width=0.1866, l=2, **kaons)
    coupling = ld.polar_complex(
        ld.parameter("f2 magnitude", initial=0.6, bounds=(0.0, None)),
        ld.parameter("f2 phase", initial=0.5, periodic=True, bounds=(-np.pi, np.pi)),
    )
    s_wave = (f0 * ld.spherical_harmonic(0, 0, costheta=costheta, phi=phi)).tagged("f0(1500)")
    d_wave = (coupling * f2 * ld.spherical_harmonic(2, 1, costheta=costheta, phi=phi)).tagged(
        "f2(1270)"
    )
    return ld.Model((s_wave + d_wave).norm_sqr())


def check(result: ld.FitResult) -> None:
    """Print a fit beside the truth, and raise unless it converged within five errors of it."""
    print(result)
    print(f"{'':<14}{'truth':>8}{'pull':>8}")
    for name, value, error in zip(
        result.parameter_names, result.values, result.errors, strict=True
    ):
        pull = (value - TRUTH[name]) / error
        print(f"{name:<14}{TRUTH[name]:>8}{pull:>+8.2f}")
        assert abs(pull) < 5.0, f"{name} = {value} ± {error}"
    assert result.converged, result.message


def boost(p: Array, velocity: Array) -> Array:
    """Boost four-vectors `p` (n, 4) actively by velocities (n, 3) below that of light."""
    beta2 = np.sum(velocity**2, axis=1)
    gamma = 1.0 / np.sqrt(1.0 - beta2)
    along = np.sum(velocity * p[:, 1:], axis=1)
    energy = gamma * (p[:, 0] + along)
    momentum = p[:, 1:] + velocity * (gamma * p[:, 0] + gamma**2 / (1.0 + gamma) * along)[:, None]
    return np.column_stack([energy, momentum])


def direction(costheta: Array, phi: Array) -> Array:
    """Return unit vectors, (n, 3)."""
    sine = np.sqrt(1.0 - costheta**2)
    return np.column_stack([sine * np.cos(phi), sine * np.sin(phi), costheta])


def phase_space(rng: np.random.Generator, n: int) -> tuple[dict[str, Array], Array]:
    """Draw `n` events; return their four-vectors, each (n, 4), and their weights (n,).

    Photon energy, mass and production angle are uniform in their ranges, the decay is isotropic.
    The weight q k makes the mass distribution that of phase space; q and k are the momenta of X in
    the centre of mass and of a kaon in the rest frame of X.
    """
    energy, mass, c = rng.uniform([8.0, 1.0, 0.6], [9.0, 2.2, 1.0], (n, 3)).T
    s = M_PROTON**2 + 2.0 * energy * M_PROTON
    q = np.sqrt((s - (mass + M_PROTON) ** 2) * (s - (mass - M_PROTON) ** 2) / (4.0 * s))
    k = np.sqrt(mass**2 / 4.0 - M_KAON**2)

    zero = np.zeros(n)
    to_lab = np.column_stack([zero, zero, energy / (energy + M_PROTON)])
    resonance_cm = q[:, None] * direction(c, rng.uniform(-np.pi, np.pi, n))
    resonance = boost(np.column_stack([np.sqrt(q**2 + mass**2), resonance_cm]), to_lab)
    kaon = k[:, None] * direction(rng.uniform(-1.0, 1.0, n), rng.uniform(-np.pi, np.pi, n))
    kaon1 = boost(np.column_stack([mass / 2.0, kaon]), resonance[:, 1:] / resonance[:, :1])

    beam = np.column_stack([energy, zero, zero, energy])
    return dict(zip(NAMES, (beam, kaon1, resonance - kaon1), strict=True)), q * k


def rates(truth: ld.Model, p4s: dict[str, Array], weight: Array) -> Array:
    """Phase-space weight times intensity at `TRUTH` of each event, (n,)."""
    return weight * truth.evaluate(ld.Dataset.from_arrays(p4s=p4s), TRUTH, real=True)


def write_samples(
    folder: Path, batches: int, batch_events: int, seed: int, data_fraction: float = 0.25
) -> tuple[Path, Path]:
    """Write `data.parquet` and `accepted_mc.parquet` into `folder`, one row group per batch.

    A batch is drawn, split, written and forgotten, so the files may be of any size. The first
    `data_fraction` of each batch is thinned to events distributed like the model at `TRUTH`, with
    unit weights; the rest is kept whole, with phase-space weights.
    """
    rng = np.random.default_rng(seed)
    truth = model()
    split = int(batch_events * data_fraction)
    ceiling = 1.3 * float(np.max(rates(truth, *phase_space(np.random.default_rng(0), 50_000))))
    paths = (folder / "data.parquet", folder / "accepted_mc.parquet")
    columns = [f"{name}_{part}" for name in NAMES for part in ("e", "px", "py", "pz")]
    schema = pa.schema([(name, pa.float64()) for name in (*columns, "weight")])
    with pq.ParquetWriter(paths[0], schema) as data, pq.ParquetWriter(paths[1], schema) as mc:
        for _ in range(batches):
            p4s, weight = phase_space(rng, batch_events)
            table = pa.Table.from_arrays(
                [*np.concatenate(list(p4s.values()), axis=1).T, weight], schema=schema
            )
            rate = rates(truth, {name: p4[:split] for name, p4 in p4s.items()}, weight[:split])
            if np.max(rate) > ceiling:
                raise RuntimeError(f"an event's rate {np.max(rate)} exceeds the ceiling {ceiling}")
            kept = table.slice(0, split).filter(pa.array(rng.uniform(0.0, ceiling, split) < rate))
            data.write_table(kept.set_column(len(columns), "weight", pa.array(np.ones(len(kept)))))
            mc.write_table(table.slice(split))
    return paths
