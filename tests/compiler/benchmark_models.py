"""The models of the published comparison, written the textbook way."""

from __future__ import annotations

import numpy as np

import laddu_dask as ld
from laddu_dask.expr import Expr

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


def coupling(name: str, *, real: bool = False) -> Expr:
    """A complex coupling; the first wave of a coherent sum is real."""
    return ld.complex(
        ld.parameter(f"{name}_re", initial=1.0),
        ld.parameter(f"{name}_im", fixed=0.0) if real else ld.parameter(f"{name}_im", initial=0.2),
    )


def waves() -> Expr:
    """A: two coherent sums of ten waves that are read from the data."""
    total: Expr | None = None
    for start in (0, 10):
        amplitude: Expr | None = None
        for k in range(start, start + 10):
            wave = ld.complex(ld.scalar(f"a{k}re"), ld.scalar(f"a{k}im"))
            term = coupling(f"c{k:02d}", real=k % 10 == 0) * wave
            amplitude = term if amplitude is None else amplitude + term
        assert amplitude is not None
        total = amplitude.norm_sqr() if total is None else total + amplitude.norm_sqr()
    assert total is not None
    return total


def resonances() -> Expr:
    """B: six relativistic Breit-Wigners with free mass and width."""
    amplitude: Expr | None = None
    for i, (l, m, mass, width) in enumerate(RESONANCES):
        shape = ld.relativistic_breit_wigner(
            ld.scalar("s"),
            mass=ld.parameter(f"m{i}", initial=mass),
            width=ld.parameter(f"g{i}", initial=width),
            mass1=0.497,
            mass2=0.497,
            l=l,
        )
        angular = ld.spherical_harmonic(l, m, costheta=ld.scalar("ct"), phi=ld.scalar("phi"))
        term = coupling(f"c{i}", real=i == 0) * shape * angular
        amplitude = term if amplitude is None else amplitude + term
    assert amplitude is not None
    return amplitude.norm_sqr()


def two_resonances() -> Expr:
    """D: an S wave and a D wave with a D-function."""
    s, kaon = ld.scalar("s"), 0.497611
    shapes = [
        ld.relativistic_breit_wigner(
            s,
            mass=ld.parameter(f"m{l}", initial=mass),
            width=ld.parameter(f"g{l}", initial=width),
            mass1=kaon,
            mass2=kaon,
            l=l,
        )
        for l, mass, width in ((0, 1.5, 0.12), (2, 1.27, 0.18))
    ]
    rotation = ld.WignerD(2, 0, 0).D(alpha=ld.scalar("phi"), beta=ld.scalar("theta")).conj()
    strength = ld.polar_complex(ld.parameter("mag", initial=0.3), ld.parameter("ph", initial=0.4))
    return (shapes[0] + strength * shapes[1] * rotation).norm_sqr()


def k_matrix_fixed() -> Expr:
    """C-fixed: four channels and five fixed poles, only the production strengths are free."""
    return _k_matrix([[Expr(float(g)) for g in row] for row in COUPLINGS])


def k_matrix_free() -> Expr:
    """C-free: the same with free couplings, a system to solve for every event."""
    return _k_matrix(
        [
            [ld.parameter(f"k{c}{p}", initial=float(g)) for p, g in enumerate(row)]
            for c, row in enumerate(COUPLINGS)
        ]
    )


def _k_matrix(couplings: list[list[Expr]]) -> Expr:
    s, g = ld.scalar("s"), ld.matrix(couplings)
    barriers = ld.blatt_weisskopf_barriers(
        s,
        channel_mass_1=[first for first, _ in CHANNELS],
        channel_mass_2=[second for _, second in CHANNELS],
        pole_masses=POLES,
        l=0,
    )
    k = ld.k_matrix(s, pole_masses=POLES, couplings=g, barriers=barriers)
    strengths = [coupling(f"b{a}", real=a == 0) for a in range(len(POLES))]
    p = ld.p_vector(s, pole_masses=POLES, production=strengths, couplings=g, barriers=barriers)
    phase_space = [-1j * ld.rho(s, mass1=first, mass2=second) for first, second in CHANNELS]
    diagonal = ld.matrix(
        [entry if row == column else 0.0 for column in range(4)]
        for row, entry in enumerate(phase_space)
    )
    return ld.f_vector(s, pole_masses=POLES, k=k, p=p, phase_space=diagonal)[1].norm_sqr()
