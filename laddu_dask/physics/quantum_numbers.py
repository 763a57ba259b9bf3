"""Quantum numbers that are more than plain integers: parity, isospin, statistics."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from laddu_dask.physics.checks import invalid, twice

_PARITY_NAMES = {"+": 1, "+1": 1, "positive": 1, "-": -1, "-1": -1, "negative": -1}


class Parity(enum.IntEnum):
    """An eigenvalue ``+1`` or ``-1`` of P, C or G; ``Parity("-")`` reads the usual spellings.

    Products of parities are plain integers.
    """

    NEGATIVE = -1
    POSITIVE = 1

    @classmethod
    def _missing_(cls, value: object) -> Parity | None:
        known = _PARITY_NAMES.get(value.strip().lower()) if isinstance(value, str) else None
        return None if known is None else cls(known)

    def __str__(self) -> str:
        return "+" if self > 0 else "-"


class Statistics(enum.Enum):
    """What a state of two identical particles does when they are exchanged."""

    BOSON = "boson"
    FERMION = "fermion"

    @classmethod
    def from_spin(cls, spin: Any) -> Statistics:
        """Spin and statistics: whole spins are bosons, half-integer ones fermions."""
        return (
            cls.FERMION if half_integer(spin, "spin", "Statistics").denominator == 2 else cls.BOSON
        )


@dataclass(frozen=True)
class Isospin:
    """Total isospin, with its third component where that is definite.

    Parameters
    ----------
    isospin
        Integer or half-integer, not negative.
    projection
        The third component, positive for the u quark: ``charge - (B + S + C + B' + T) / 2``.
        None when unknown, or for a state that mixes several (K_S).

    Raises
    ------
    ExpressionError
        Not a half-integer, negative, or a projection that the isospin does not have.
    """

    isospin: Fraction
    projection: Fraction | None = None

    def __init__(self, isospin: Any, projection: Any = None) -> None:
        total = half_integer(isospin, "isospin", "Isospin")
        if total < 0:
            raise invalid("Isospin", f"needs isospin >= 0, got {isospin}")
        object.__setattr__(self, "isospin", total)
        third = None
        if projection is not None:
            third = half_integer(projection, "projection", "Isospin")
            if abs(third) > total or (total - third).denominator != 1:
                raise invalid("Isospin", f"isospin {total} has no projection {third}")
        object.__setattr__(self, "projection", third)


def half_integer(value: Any, name: str, operation: str) -> Fraction:
    """An angular momentum, isospin or projection, exactly."""
    return Fraction(twice(value, name, operation), 2)


def parity(value: Any, name: str, operation: str) -> Parity:
    """A parity from +1, -1 or a spelling of these, with an error that says whose it is."""
    try:
        return Parity(value)
    except ValueError:
        raise invalid(operation, f"{name} must be +1 or -1, got {value!r}") from None
