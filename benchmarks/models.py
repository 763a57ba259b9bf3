"""The models of the comparison, each written once for both programs.

Every function takes the module whose interface it is written in (`laddu_dask` or `laddu`) and
returns an intensity. A: waves read from the data. B: resonances of free mass and width. C: a
K-matrix, with fixed or free couplings. D: two resonances with a D-function.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: l, m, mass, width of the resonances of model B.
RESONANCES = [
    (0, 0, 1.35, 0.20),
    (0, 0, 1.70, 0.12),
    (1, 0, 1.45, 0.30),
    (1, 1, 1.68, 0.15),
    (2, 0, 1.275, 0.186),
    (2, 2, 1.525, 0.086),
]
#: Bare masses, daughters of the channels, and couplings (channel by pole) of model C.
POLES = [1.0, 1.25, 1.5, 1.8, 2.2]
CHANNELS = [(0.1396, 0.1396), (0.4937, 0.4937), (0.5479, 0.5479), (0.1396, 0.9578)]
COUPLINGS = np.random.default_rng(11).uniform(-0.6, 0.6, (4, 5))
KAON = 0.497611


def coupling(api: ModuleType, name: str, *, real: bool = False) -> Any:
    """A complex coupling; the first wave of a coherent sum is real."""
    imaginary = {"fixed": 0.0} if real else {"initial": 0.2}
    return api.complex(
        api.parameter(f"{name}_re", initial=1.0), api.parameter(f"{name}_im", **imaginary)
    )


def coherent_sum(terms: list[Any]) -> Any:
    """Sum of amplitudes."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def waves(api: ModuleType) -> Any:
    """A: two coherent sums of ten waves that are read from the data."""
    sums = []
    for start in (0, 10):
        terms = [
            coupling(api, f"c{k:02d}", real=k % 10 == 0)
            * api.complex(api.scalar(f"a{k}re"), api.scalar(f"a{k}im"))
            for k in range(start, start + 10)
        ]
        sums.append(coherent_sum(terms).norm_sqr())
    return sums[0] + sums[1]


def resonances(api: ModuleType) -> Any:
    """B: six relativistic Breit-Wigners with free mass and width."""
    terms = []
    for i, (l, m, mass, width) in enumerate(RESONANCES):
        shape = api.relativistic_breit_wigner(
            api.scalar("s"),
            mass=api.parameter(f"m{i}", initial=mass),
            width=api.parameter(f"g{i}", initial=width),
            mass1=0.497,
            mass2=0.497,
            l=l,
        )
        angular = api.spherical_harmonic(l, m, costheta=api.scalar("ct"), phi=api.scalar("phi"))
        terms.append(coupling(api, f"c{i}", real=i == 0) * shape * angular)
    return coherent_sum(terms).norm_sqr()


def k_matrix_fixed(api: ModuleType) -> Any:
    """C-fixed: four channels and five fixed poles, only the production strengths are free."""
    return _k_matrix(api, [[api.Expr(float(g)) for g in row] for row in COUPLINGS])


def k_matrix_free(api: ModuleType) -> Any:
    """C-free: the same with free couplings, a system to solve for every event."""
    return _k_matrix(
        api,
        [
            [api.parameter(f"k{c}{p}", initial=float(g)) for p, g in enumerate(row)]
            for c, row in enumerate(COUPLINGS)
        ],
    )


def _k_matrix(api: ModuleType, couplings: list[list[Any]]) -> Any:
    s, g = api.scalar("s"), api.matrix(couplings)
    poles = api.vector([api.Expr(pole) for pole in POLES])
    barriers = api.blatt_weisskopf_barriers(
        s,
        channel_mass_1=api.vector([api.Expr(first) for first, _ in CHANNELS]),
        channel_mass_2=api.vector([api.Expr(second) for _, second in CHANNELS]),
        pole_masses=poles,
        l=0,
    )
    k = api.k_matrix(s, pole_masses=poles, couplings=g, barriers=barriers)
    strengths = api.vector([coupling(api, f"b{a}", real=a == 0) for a in range(len(POLES))])
    p = api.p_vector(s, pole_masses=poles, production=strengths, couplings=g, barriers=barriers)
    zero = api.Expr(0.0)
    phase_space = api.matrix(
        [
            [
                (-1j) * api.rho(s, mass1=first, mass2=second) if row == column else zero
                for column in range(len(CHANNELS))
            ]
            for row, (first, second) in enumerate(CHANNELS)
        ]
    )
    return api.f_vector(s, pole_masses=poles, k=k, p=p, phase_space=phase_space)[1].norm_sqr()


def two_resonances(api: ModuleType) -> Any:
    """D: an S wave and a D wave with a D-function, six parameters."""
    s = api.scalar("s")
    shapes = [
        api.relativistic_breit_wigner(
            s,
            mass=api.parameter(f"m{l}", initial=mass),
            width=api.parameter(f"g{l}", initial=width),
            mass1=KAON,
            mass2=KAON,
            l=l,
        )
        for l, mass, width in ((0, 1.5, 0.12), (2, 1.27, 0.18))
    ]
    angles = {"alpha": api.scalar("phi"), "beta": api.scalar("theta")}
    rotation = api.WignerD(2, 0, 0).D(**angles).conj()
    strength = api.polar_complex(
        api.parameter("mag", initial=0.3), api.parameter("ph", initial=0.4)
    )
    return (shapes[0] + strength * shapes[1] * rotation).norm_sqr()


MODELS: dict[str, Callable[[ModuleType], Any]] = {
    "A": waves,
    "B": resonances,
    "C-fixed": k_matrix_fixed,
    "C-free": k_matrix_free,
    "D": two_resonances,
}


#: Columns that each model reads.
READS = {
    "A": [f"a{k}{part}" for k in range(20) for part in ("re", "im")],
    "B": ["s", "ct", "phi"],
    "C-fixed": ["s"],
    "C-free": ["s"],
    "D": ["s", "phi", "theta"],
}
#: What the samples of a likelihood are for; only the Monte Carlo events are weighted.
ROLES = ("data", "accepted_mc")


def events(name: str, n: int, role: str) -> dict[str, Array]:
    """Columns that a model reads and weights, of `n` events: uniform, s above the threshold."""
    rng = np.random.default_rng(ROLES.index(role))
    found = {column: _column(column, n, rng) for column in READS[name]}
    found["weight"] = rng.uniform(0.5, 1.5, n) if role == "accepted_mc" else np.ones(n)
    return found


def _column(name: str, n: int, rng: np.random.Generator) -> Array:
    if name == "s":
        return rng.uniform(1.01 * 4.0 * KAON**2, 4.5, n)
    if name == "phi":
        return rng.uniform(-np.pi, np.pi, n)
    if name == "theta":
        return np.arccos(rng.uniform(-1.0, 1.0, n))
    return rng.uniform(-1.0, 1.0, n)
