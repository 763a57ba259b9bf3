"""A particle species as selection rules see it: its quantum numbers, known or not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from laddu_dask.physics.checks import invalid
from laddu_dask.physics.pdg_table import pdg_quantum_numbers
from laddu_dask.physics.quantum_numbers import Isospin, Parity, Statistics, half_integer, parity

#: Whole numbers of which the antiparticle has the opposite.
ADDITIVE = (
    "charge",
    "baryon_number",
    "strangeness",
    "charm",
    "bottomness",
    "topness",
    "electron_lepton_number",
    "muon_lepton_number",
    "tau_lepton_number",
)


@dataclass(frozen=True, kw_only=True)
class Particle:
    """Quantum numbers of a particle. None means not known, and a rule that needs it says so.

    Parameters
    ----------
    name
        Name of this charge state. Particles of one name are identical.
    antiparticle
        Name of the antiparticle, its own name for a particle that is its own antiparticle.
    spin
        Integer or half-integer.
    parity, c_parity, g_parity
        +1 or -1, or ``"+"``, ``"-"``. The parity of an antifermion is opposite to that of its
        fermion, that of an antiboson is the same.
    isospin
        `Isospin`, or its size alone.
    charge, baryon_number, strangeness, charm, bottomness, topness
        In units of the positron charge; the s quark has strangeness -1, the b quark bottomness -1.
    electron_lepton_number, muon_lepton_number, tau_lepton_number
        Of each family.
    mass
        In GeV.
    indefinite
        Names of numbers that this state has no definite value of, such as the strangeness of a
        K_S. Rules that need them do not apply, which is not the same as not known.

    Raises
    ------
    ExpressionError
        A number that cannot be what it is given as, or C parity for a particle that is not its
        own antiparticle.
    """

    name: str
    antiparticle: str | None = None
    spin: Any = None
    parity: Any = None
    c_parity: Any = None
    g_parity: Any = None
    isospin: Any = None
    charge: int | None = None
    baryon_number: int | None = None
    strangeness: int | None = None
    charm: int | None = None
    bottomness: int | None = None
    topness: int | None = None
    electron_lepton_number: int | None = None
    muon_lepton_number: int | None = None
    tau_lepton_number: int | None = None
    mass: float | None = None
    indefinite: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        where = f"Particle {self.name!r}"
        if self.spin is not None:
            spin = half_integer(self.spin, "spin", where)
            if spin < 0:
                raise invalid(where, f"needs spin >= 0, got {self.spin}")
            object.__setattr__(self, "spin", spin)
        for name in ("parity", "c_parity", "g_parity"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, parity(value, name, where))
        if self.isospin is not None and not isinstance(self.isospin, Isospin):
            object.__setattr__(self, "isospin", Isospin(self.isospin))
        for name in ADDITIVE:
            value = getattr(self, name)
            if value is None:
                continue
            number = half_integer(value, name, where)
            if number.denominator != 1:
                raise invalid(where, f"{name} must be a whole number, got {value!r}")
            object.__setattr__(self, name, int(number))
        if self.mass is not None and not self.mass >= 0:
            raise invalid(where, f"needs mass >= 0, got {self.mass!r}")
        if self.c_parity is not None and self.self_conjugate is False:
            raise invalid(
                where,
                f"has a C parity, yet its antiparticle is {self.antiparticle!r}; "
                "only a particle that is its own antiparticle has one",
            )
        object.__setattr__(self, "indefinite", frozenset(self.indefinite))

    @classmethod
    def from_pdg(cls, which: int | str, **known: Any) -> Particle:
        """A particle of the PDG tables, by its number or by its name.

        Parameters
        ----------
        which
            PDG number (``211``), or a name in the spelling of the `particle` package of
            Scikit-HEP: ``"pi+"``, ``"J/psi(1S)"``, ``"p~"``.
        **known
            Numbers, by the names of the fields, that the tables do not have or that you want to
            be otherwise.

        Returns
        -------
        Particle
            What the tables do not tell is None. The mass is in GeV.

        Raises
        ------
        ExpressionError
            No such particle.

        Notes
        -----
        Strangeness and the like are counted from the quark contents, the third component of
        isospin follows from them and the charge, and the parity of an antifermion is the opposite
        of what the tables give its fermion. Leptons have no parity there.
        """
        return cls(**{**pdg_quantum_numbers(which), **known})

    @property
    def self_conjugate(self) -> bool | None:
        """Whether this is its own antiparticle; None when the antiparticle is not known."""
        return None if self.antiparticle is None else self.antiparticle == self.name

    @property
    def statistics(self) -> Statistics:
        """Boson or fermion, from the spin."""
        return Statistics.from_spin(self.require("spin"))

    def require(self, name: str) -> Any:
        """A number that has to be known.

        Raises
        ------
        ExpressionError
            It is not known.
        """
        value = getattr(self, name)
        if value is None:
            raise invalid(
                f"Particle {self.name!r}",
                f"its {name} is not known; give it: Particle(..., {name}=...), or "
                f"Particle.from_pdg(..., {name}=...)",
            )
        return value

    def conjugate(self) -> Particle:
        """The antiparticle: opposite charges, and for fermions the opposite parity.

        Raises
        ------
        ExpressionError
            The name of the antiparticle is not known, or, with a parity, the spin is not.
        """
        conjugate: str = self.require("antiparticle")
        if conjugate == self.name:
            return self
        changes: dict[str, Any] = {
            name: -value for name in ADDITIVE if (value := getattr(self, name)) is not None
        }
        if self.isospin is not None and self.isospin.projection is not None:
            changes["isospin"] = Isospin(self.isospin.isospin, -self.isospin.projection)
        if self.parity is not None and self.statistics is Statistics.FERMION:
            changes["parity"] = Parity(-self.parity)
        return replace(self, name=conjugate, antiparticle=self.name, **changes)

    @property
    def jpc(self) -> str:
        """``J^PC`` as ``1--``, ``1/2+``; a question mark stands for what is not known."""
        spin: Fraction | str = "?" if self.spin is None else self.spin
        c = self.c_parity if self.c_parity is not None else "?" if self.self_conjugate else ""
        return f"{spin}{'?' if self.parity is None else self.parity}{c}"
