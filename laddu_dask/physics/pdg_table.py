"""Quantum numbers from the tables of the PDG, read through the `particle` package of Scikit-HEP.

The package holds the tables of the Review of Particle Physics as a file; nothing is copied here.
Flavours are counted from quark contents, which the package gives as text.
"""

from __future__ import annotations

import contextlib
import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from laddu_dask.physics.checks import invalid
from laddu_dask.physics.quantum_numbers import Isospin, Parity

if TYPE_CHECKING:
    from particle import Particle as Entry

#: Flavour number of a quark; its antiquark, written as a capital, has the opposite.
_FLAVOURS = {
    "strangeness": ("s", -1),
    "charm": ("c", 1),
    "bottomness": ("b", -1),
    "topness": ("t", 1),
}

_LEPTONS = {
    "electron_lepton_number": (11, 12),
    "muon_lepton_number": (13, 14),
    "tau_lepton_number": (15, 16),
}

#: Gauge bosons and the Higgs boson: without flavour, baryon number or quarks.
_ELEMENTARY_BOSONS = range(21, 26)

#: PDG numbers of nuclei have ten digits.
_FIRST_NUCLEUS = 10**9


def pdg_quantum_numbers(which: int | str) -> dict[str, Any]:
    """Fields of a particle by PDG number or name; those that the tables do not have are left out.

    Raises
    ------
    ExpressionError
        No such particle.
    """
    entry = _entry(which)
    number = int(entry.pdgid)
    own = bool(entry.is_self_conjugate) and not entry.three_charge
    fields: dict[str, Any] = {
        "name": entry.name,
        "antiparticle": entry.name if own else _antiparticle(entry),
        "spin": entry.J,
        "parity": _parity(entry),
        "c_parity": _known_parity(entry.C) if own else None,
        "g_parity": _known_parity(entry.G),
        "charge": _charge(entry),
        "mass": None if entry.mass is None else float(Decimal(str(entry.mass)) / 1000),
    }
    for name, family in _LEPTONS.items():
        inside = abs(number) in family
        fields[name] = (1 if number > 0 else -1) if inside else 0
    contents = _contents(entry)
    if contents:
        numbers = [_flavours(content) for content in contents]
        for name in numbers[0]:
            values = {each[name] for each in numbers}
            if len(values) == 1:
                fields[name] = values.pop()
            else:
                fields["indefinite"] = fields.get("indefinite", frozenset()) | {name}
    if entry.I is not None:
        fields["isospin"] = Isospin(entry.I, _third_component(fields))
    return {name: value for name, value in fields.items() if value is not None}


def _entry(which: int | str) -> Entry:
    # Loaded here: reading the tables takes a while, and most models need none of them.
    from particle import InvalidParticle, Particle, ParticleNotFound

    if isinstance(which, str):
        named = _entries_by_name().get(which, [])
        if len(named) > 1:
            numbers = ", ".join(str(int(entry.pdgid)) for entry in named)
            raise invalid(
                "Particle.from_pdg", f"{which!r} is the name of several, give a number: {numbers}"
            )
        if named:
            return named[0]
    else:
        with contextlib.suppress(InvalidParticle, ParticleNotFound):
            return Particle.from_pdgid(which)
    raise invalid(
        "Particle.from_pdg",
        f"the PDG tables have no particle {which!r}; give its PDG number, or its name as "
        "particle.Particle.findall() spells it ('pi+', 'K(S)0', 'J/psi(1S)')",
    )


@lru_cache(maxsize=1)
def _entries_by_name() -> dict[str, list[Entry]]:
    """Entries by name; nuclei, which repeat the names of proton and neutron, by number only."""
    from particle import Particle

    entries: dict[str, list[Entry]] = {}
    for entry in Particle.all():
        if abs(int(entry.pdgid)) < _FIRST_NUCLEUS:
            entries.setdefault(entry.name, []).append(entry)
    return entries


def _antiparticle(entry: Entry) -> str | None:
    """Name of the entry of opposite number, which the tables lack for a few mesons.

    They also mark a charged meson or two as their own antiparticle; these come here all the same.
    """
    from particle import ParticleNotFound

    try:
        return str(type(entry).from_pdgid(-int(entry.pdgid)).name)
    except ParticleNotFound:
        return None


def _parity(entry: Entry) -> int | None:
    """Parity of the state itself: antifermions have the opposite of what their fermions have."""
    number = int(entry.pdgid)
    base = _entry(abs(number))
    known = _known_parity(base.P)
    fermion = entry.J is not None and Fraction(entry.J).denominator == 2
    return -known if known is not None and number < 0 and fermion else known


def _known_parity(value: Any) -> int | None:
    """The package marks what it does not know by a value that is neither +1 nor -1."""
    return int(value) if value is not None and int(value) in tuple(Parity) else None


def _charge(entry: Entry) -> int | None:
    thirds = entry.three_charge
    return None if thirds is None or int(thirds) % 3 else int(thirds) // 3


def _contents(entry: Entry) -> list[str]:
    """The combinations of quarks in a state; empty when the tables do not tell them.

    A state without flavour is told as such by any of its combinations, ``""`` included.
    """
    identity = entry.pdgid
    if abs(int(identity)) in (*_ELEMENTARY_BOSONS, *(n for f in _LEPTONS.values() for n in f)):
        return [""]
    text = entry.quarks
    if text.startswith("Maybe non"):
        # An unclear structure, but the numbering scheme of the PDG tells isospin and flavour of
        # mesons in two digits: 11 and 21 are isovectors, 22 and 33 isoscalars without flavour.
        light = abs(int(identity)) // 10 % 100 in (11, 21, 22, 33)
        return [""] if identity.is_meson and light else []
    contents = re.findall("[udscbtUDSCBT]+", text.replace("sqrt", ""))
    # Quarks and diquarks are no free particles; their baryon numbers are not whole.
    return [] if any((2 * _quarks(each) - len(each)) % 3 for each in contents) else contents


def _quarks(content: str) -> int:
    return sum(letter.islower() for letter in content)


def _flavours(content: str) -> dict[str, int]:
    numbers = {"baryon_number": (2 * _quarks(content) - len(content)) // 3}
    for name, (quark, sign) in _FLAVOURS.items():
        numbers[name] = sign * (content.count(quark) - content.count(quark.upper()))
    return numbers


def _third_component(fields: dict[str, Any]) -> Fraction | None:
    """Gell-Mann and Nishijima: ``I3 = Q - (B + S + C + B' + T) / 2``, None with any missing."""
    names = ("baryon_number", *_FLAVOURS)
    if fields["charge"] is None or any(name not in fields for name in names):
        return None
    hypercharge = sum(fields[name] for name in names)
    return Fraction(fields["charge"]) - Fraction(hypercharge, 2)
