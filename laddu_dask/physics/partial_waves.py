"""Partial waves of a two-body decay, and their amplitudes in helicities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from laddu_dask.expr import Expr, as_expr
from laddu_dask.expr import sum as sum_of
from laddu_dask.physics.checks import integer, invalid
from laddu_dask.physics.clebsch_gordan import clebsch_gordan_signed_square, signed_root
from laddu_dask.physics.quantum_numbers import half_integer

#: Spectroscopic letters by l; J is left out, as S and P are once they have had their turn.
_LETTERS = "SPDFGHIKLMNOQRTUVWXYZ"


@dataclass(frozen=True, order=True)
class PartialWave:
    """Two particles with orbital momentum `l` and total spin `s`, coupled to `j`.

    Parameters
    ----------
    j, s
        Integers or half-integers (int, float or Fraction), not negative.
    l
        Whole number, not negative.

    Raises
    ------
    ExpressionError
        A label that is no half-integer or negative, or `l` and `s` that do not couple to `j`.
    """

    j: Fraction
    l: int
    s: Fraction

    def __init__(self, j: Any, l: Any, s: Any) -> None:
        total = half_integer(j, "j", "PartialWave")
        orbital = integer(l, "l", "PartialWave")
        spin = half_integer(s, "s", "PartialWave")
        if total < 0 or orbital < 0 or spin < 0:
            raise invalid("PartialWave", f"needs j, l, s >= 0, got j = {j}, l = {l}, s = {s}")
        if not abs(orbital - spin) <= total <= orbital + spin or (
            (orbital + spin - total).denominator != 1
        ):
            raise invalid("PartialWave", f"l = {orbital} and s = {spin} do not couple to {total}")
        object.__setattr__(self, "j", total)
        object.__setattr__(self, "l", orbital)
        object.__setattr__(self, "s", spin)

    @property
    def label(self) -> str:
        """Spectroscopic name ``2s+1 L j``: ``3S1``, ``2P3/2``; ``[25]`` for l past the letters."""
        letter = _LETTERS[self.l] if self.l < len(_LETTERS) else f"[{self.l}]"
        return f"{2 * self.s + 1}{letter}{self.j}"

    def __str__(self) -> str:
        return self.label


def coupled_waves(j: Any, spin_a: Any, spin_b: Any, max_l: int | None = None) -> list[PartialWave]:
    """Every wave in which two spins and an orbital momentum make up `j`, by l, then by s.

    Parameters
    ----------
    j, spin_a, spin_b
        Integers or half-integers, not negative.
    max_l
        Highest orbital momentum; None lists all, since ``l <= j + spin_a + spin_b``.

    Returns
    -------
    list of PartialWave
        Empty when `j` is whole and the spins add up to a half-integer, or the other way round.
    """
    total = _spin(j, "j", "coupled_waves")
    first = _spin(spin_a, "spin_a", "coupled_waves")
    second = _spin(spin_b, "spin_b", "coupled_waves")
    lowest, highest = abs(first - second), first + second
    if (total + highest).denominator != 1:
        return []
    end = int(total + highest) if max_l is None else min(max_l, int(total + highest))
    spins = [lowest + k for k in range(int(highest - lowest) + 1)]
    return [
        PartialWave(total, l, s)
        for l in range(end + 1)
        for s in spins
        if abs(l - s) <= total <= l + s
    ]


def helicity_couplings(
    wave: PartialWave, spin_a: Any, spin_b: Any
) -> dict[tuple[Fraction, Fraction], float]:
    """Amplitude of each pair of helicities in a partial wave.

    ``<j; a b | j; l s> = sqrt((2l+1)/(2j+1)) <l 0, s a-b | j a-b> <spin_a a, spin_b -b | s a-b>``
    (M. Jacob and G. C. Wick, Ann. Phys. 7 (1959) 404, eq. B5, with their phase of the second
    particle: its state of helicity b has the projection -b along the momentum of the first, and
    no further sign). The matrix from waves to helicities is orthogonal.

    Parameters
    ----------
    wave
        The partial wave.
    spin_a, spin_b
        Spins of the first and the second particle.

    Returns
    -------
    dict
        Helicities ``(a, b)`` to their coefficient, correctly rounded; all pairs with
        ``|a - b| <= j``, from the largest a and b down.

    Raises
    ------
    ExpressionError
        Spins that do not couple to the total spin of the wave, or are not spins.
    """
    first = _spin(spin_a, "spin_a", "helicity_couplings")
    second = _spin(spin_b, "spin_b", "helicity_couplings")
    j, l, s = wave.j, wave.l, wave.s
    if not abs(first - second) <= s <= first + second or (first + second - s).denominator != 1:
        raise invalid(
            "helicity_couplings", f"spins {first} and {second} do not add up to s = {s} of {wave}"
        )
    couplings = {}
    for a in _projections(first):
        for b in _projections(second):
            net = a - b
            if abs(net) > j:
                continue
            square = Fraction(0)
            if abs(net) <= s:
                orbital = clebsch_gordan_signed_square(j1=l, m1=0, j2=s, m2=net, j=j, m=net)
                spins = clebsch_gordan_signed_square(j1=first, m1=a, j2=second, m2=-b, j=s, m=net)
                square = orbital * spins * (2 * l + 1) / (2 * j + 1)
            couplings[a, b] = signed_root(square)
    return couplings


def helicity_amplitudes(
    waves: Mapping[PartialWave, Expr | complex], spin_a: Any, spin_b: Any
) -> dict[tuple[Fraction, Fraction], Expr]:
    """Helicity amplitudes of a decay from the amplitudes of its partial waves.

    The sum over waves of `helicity_couplings` times the amplitude of the wave.

    Parameters
    ----------
    waves
        Amplitude of each partial wave: expressions or numbers. All have the same j.
    spin_a, spin_b
        Spins of the two particles.

    Returns
    -------
    dict
        Helicities ``(a, b)`` to their amplitude, 0 where no wave contributes.

    Raises
    ------
    ExpressionError
        No waves, waves of different j, or a wave that these spins do not have.
    """
    if len({wave.j for wave in waves}) != 1:
        names = ", ".join(map(str, waves)) or "none"
        raise invalid("helicity_amplitudes", f"needs waves of one j, got {names}")
    terms: dict[tuple[Fraction, Fraction], list[Expr]] = {}
    for wave, amplitude in waves.items():
        for helicities, coupling in helicity_couplings(wave, spin_a, spin_b).items():
            contributions = terms.setdefault(helicities, [])
            if coupling:
                contributions.append(coupling * as_expr(amplitude))
    return {helicities: sum_of(terms[helicities] or [0.0]) for helicities in terms}


def _spin(value: Any, name: str, operation: str) -> Fraction:
    spin = half_integer(value, name, operation)
    if spin < 0:
        raise invalid(operation, f"needs {name} >= 0, got {value}")
    return spin


def _projections(spin: Fraction) -> list[Fraction]:
    return [spin - k for k in range(int(2 * spin) + 1)]
