r"""Published K-matrix parameters, as data, and the amplitudes that they describe.

A table fixes everything that belongs to scattering: bare masses m_a, couplings g_ia of channel i to
pole a, a symmetric background c_ij and, for the f0, an Adler zero. What is left to a fit is the
production, one complex strength for each pole.

    K_ij = (s - s_A) sum_a [g_ia g_ja B_ia B_ja / (m_a**2 - s) + c_ij],

where the factor before the sum is only there with an Adler zero s_A (in GeV squared, and the factor
taken as a pure number). The background stands inside the sum, so that it counts once for each pole.
B_ia are the barrier factors of `blatt_weisskopf_barriers`, and phase space is the Chew-Mandelstam
function of each channel. Four pions are treated as two particles of twice the mass of a pion.

Source: B. Kopf et al., Eur. Phys. J. C 81, 1056 (2021), in the form in which laddu up to 0.21 holds
it, whose values are reproduced. Other codes multiply the background by the barrier factors too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from laddu_dask.expr import Expr, as_expr, vector
from laddu_dask.physics.checks import invalid
from laddu_dask.physics.chew_mandelstam import chew_mandelstam
from laddu_dask.physics.kmatrix import (
    Vector,
    blatt_weisskopf_barriers,
    f_vector,
    k_matrix,
    p_vector,
)


@dataclass(frozen=True)
class KMatrixTable:
    """One wave of a published K-matrix.

    Attributes
    ----------
    name
        For example ``"f0"``.
    source
        Publication.
    l
        Orbital angular momentum of every channel.
    channels, poles
        Names, in the order of the rows and columns of `couplings`.
    channel_mass_1, channel_mass_2, pole_masses
        GeV.
    couplings
        Channel by pole, GeV.
    background
        Channel by channel, as published.
    adler_zero
        s_A, GeV squared, or None.
    """

    name: str
    source: str
    l: int
    channels: tuple[str, ...]
    poles: tuple[str, ...]
    channel_mass_1: tuple[float, ...]
    channel_mass_2: tuple[float, ...]
    pole_masses: tuple[float, ...]
    couplings: tuple[tuple[float, ...], ...]
    background: tuple[tuple[float, ...], ...]
    adler_zero: float | None

    def barriers(self, s: Expr | complex) -> Expr:
        """Barrier factors of channel (row) and pole (column), at q_R = 0.1973 GeV."""
        return blatt_weisskopf_barriers(
            s,
            channel_mass_1=self.channel_mass_1,
            channel_mass_2=self.channel_mass_2,
            pole_masses=self.pole_masses,
            l=self.l,
        )

    def k(self, s: Expr | complex) -> Expr:
        """Pole-cleared K-matrix, as `k_matrix` gives it and `f_vector` takes it."""
        count = len(self.poles)
        cleared = k_matrix(
            s,
            pole_masses=self.pole_masses,
            couplings=self.couplings,
            barriers=self.barriers(s),
            background=[[count * entry for entry in row] for row in self.background],
        )
        return cleared if self.adler_zero is None else (as_expr(s) - self.adler_zero) * cleared

    def p(self, s: Expr | complex, production: Vector) -> Expr:
        """Pole-cleared production vector, without background and without the Adler zero."""
        return p_vector(
            s,
            pole_masses=self.pole_masses,
            production=production,
            couplings=self.couplings,
            barriers=self.barriers(s),
        )

    def phase_space(self, s: Expr | complex) -> Expr:
        """Chew-Mandelstam function of each channel."""
        return vector(
            chew_mandelstam(s, mass1=first, mass2=second)
            for first, second in zip(self.channel_mass_1, self.channel_mass_2, strict=True)
        )

    def amplitudes(self, s: Expr | complex, production: Vector) -> Expr:
        """The amplitude of each channel, a vector in the order of `channels`.

        Parameters
        ----------
        s
            Squared mass, GeV squared. Finite at bare masses, not at s = 0.
        production
            Strength beta of each pole, usually complex parameters.

        Raises
        ------
        ExpressionError
            A number of strengths that is not that of the poles.
        """
        return f_vector(
            s,
            pole_masses=self.pole_masses,
            k=self.k(s),
            p=self.p(s, production),
            phase_space=self.phase_space(s),
        )

    def channel(self, name: str) -> int:
        """Index of a channel in `channels`, to pick an element of `amplitudes`.

        Raises
        ------
        ExpressionError
            A name that is not among them.
        """
        if name not in self.channels:
            known = ", ".join(map(repr, self.channels))
            raise invalid(f"K-matrix {self.name}", f"channels are {known}, got {name!r}")
        return self.channels.index(name)


def kopf_k_matrix(wave: str) -> KMatrixTable:
    """The K-matrix of Kopf et al. (2021) for ``"f0"``, ``"f2"``, ``"a0"``, ``"a2"`` or ``"rho"``.

    See the text of this module for the formula. Valid up to about 2 GeV.

    Raises
    ------
    ExpressionError
        Another name.
    """
    waves = _kopf()
    if wave not in waves:
        raise invalid("kopf_k_matrix", f"waves are {', '.join(waves)}, got {wave!r}")
    return waves[wave]


@cache
def _kopf() -> dict[str, KMatrixTable]:
    text = files("laddu_dask.physics").joinpath("tables", "kopf2021.json").read_text("utf-8")
    content = json.loads(text)
    return {
        name: KMatrixTable(name=name, source=content["source"], **_frozen(entries))
        for name, entries in content["waves"].items()
    }


def _frozen(entries: dict[str, Any]) -> dict[str, Any]:
    """Lists, at most two deep, as tuples."""

    def tuples(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return tuple(tuple(row) if isinstance(row, list) else row for row in value)

    return {key: tuples(value) for key, value in entries.items()}
