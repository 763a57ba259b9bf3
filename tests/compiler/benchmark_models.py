"""The models of the published comparison, written the textbook way."""

from __future__ import annotations

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
