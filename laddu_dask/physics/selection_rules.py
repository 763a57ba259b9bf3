"""Which partial waves of a two-body decay the conservation laws allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from laddu_dask.physics.checks import invalid
from laddu_dask.physics.clebsch_gordan import clebsch_gordan_signed_square
from laddu_dask.physics.partial_waves import PartialWave, coupled_waves
from laddu_dask.physics.particle import ADDITIVE, Particle

_FLAVOURS = ("strangeness", "charm", "bottomness", "topness")
_LEPTON_NUMBERS = ("electron_lepton_number", "muon_lepton_number", "tau_lepton_number")

_WEAK = frozenset({"charge", "baryon_number", *_LEPTON_NUMBERS, "exchange"})
_ELECTROMAGNETIC = _WEAK | {*_FLAVOURS, "parity", "c_parity"}
_STRONG = (_ELECTROMAGNETIC - {*_LEPTON_NUMBERS}) | {"isospin", "g_parity"}


@dataclass(frozen=True)
class _Decay:
    """One decay into one wave, as a rule sees it."""

    parent: Particle
    a: Particle
    b: Particle
    wave: PartialWave

    @property
    def identical(self) -> bool:
        return self.a.name == self.b.name

    @property
    def pair(self) -> bool:
        """A particle and its antiparticle, different from it."""
        conjugate = self.a.antiparticle == self.b.name or self.b.antiparticle == self.a.name
        return conjugate and not self.identical

    @property
    def sign(self) -> int:
        """``(-1)**(l + s)``; meant for pairs of equal spin, whose s is whole."""
        return 1 if (self.wave.l + self.wave.s) % 2 == 0 else -1


@dataclass(frozen=True)
class SelectionRules:
    """A set of conservation laws.

    Parameters
    ----------
    rules
        Names: the additive numbers of `Particle` (``charge``, ``strangeness``, ...), ``parity``,
        ``c_parity``, ``g_parity``, ``isospin`` and ``exchange``.
    max_l
        Highest orbital momentum listed; None lists all.

    Notes
    -----
    ``parity``: ``P = P_a P_b (-1)**l``. For a particle with its antiparticle ``P_a P_b`` is +1 for
    bosons and -1 for fermions, for two identical ones +1, whatever the tables know.

    ``c_parity``: of a parent that is its own antiparticle; ``(-1)**(l+s)`` for a particle with its
    antiparticle, the product of the daughters' for two that are their own antiparticles (+1 for
    identical ones), no constraint otherwise.

    ``g_parity``: of a parent that has one; the product of the daughters' when both are without
    flavour and baryon number, else ``(-1)**(l+s+I)`` for a particle with its antiparticle. Members
    of a multiplet and of its conjugate that are not each other's antiparticles (K+ with the
    antiparticle of K0) are not recognised and not constrained.

    ``isospin``: the isospins couple, with their projections where these are definite: the
    coefficient must not vanish, which forbids rho0 -> pi0 pi0.

    ``exchange``: two identical particles, bosons or fermions, have even ``l + s``.
    """

    rules: frozenset[str]
    max_l: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", frozenset(self.rules))
        _check_names(self.rules)

    @classmethod
    def strong(cls, max_l: int | None = None) -> SelectionRules:
        """Everything is conserved but lepton numbers, which hadrons have none of."""
        return cls(_STRONG, max_l)

    @classmethod
    def electromagnetic(cls, max_l: int | None = None) -> SelectionRules:
        """Neither isospin nor G parity; the lepton numbers instead."""
        return cls(_ELECTROMAGNETIC, max_l)

    @classmethod
    def weak(cls, max_l: int | None = None) -> SelectionRules:
        """Charge, baryon number, lepton numbers and the symmetry of exchange."""
        return cls(_WEAK, max_l)

    def without(self, *rules: str) -> SelectionRules:
        """The same without some rules, such as one that nothing is known to judge by."""
        _check_names(rules)
        return SelectionRules(self.rules - set(rules), self.max_l)

    def including(self, *rules: str) -> SelectionRules:
        """The same with more rules."""
        return SelectionRules(self.rules | set(rules), self.max_l)

    def check(
        self, parent: Particle, *, daughter_a: Particle, daughter_b: Particle, wave: PartialWave
    ) -> dict[str, bool | None]:
        """What each rule says of one wave, by name of the rule.

        Returns
        -------
        dict
            True when conserved, False when violated, None when the rule does not apply.

        Raises
        ------
        ExpressionError
            A number that a rule needs is not known; the message says which of what particle.
        """
        decay = _Decay(parent, daughter_a, daughter_b, wave)
        return {name: _RULES[name](decay, name) for name in sorted(self.rules)}

    def allowed_partial_waves(
        self, parent: Particle, *, daughter_a: Particle, daughter_b: Particle
    ) -> list[PartialWave]:
        """The waves that no rule forbids, by l, then by s.

        Parameters
        ----------
        parent, daughter_a, daughter_b
            The particles. Nothing is guessed: what a rule needs must be known.

        Returns
        -------
        list of PartialWave
            Empty for a forbidden decay.

        Raises
        ------
        ExpressionError
            A number that a rule needs is not known. Or a daughter of spin 1 or more has no mass:
            it lacks helicities, so its waves of definite l and s are not independent, and
            a list of them would name decays that do not happen (1++ -> two photons).
        """
        for daughter in (daughter_a, daughter_b):
            if daughter.require("spin") >= 1 and daughter.mass == 0:
                raise invalid(
                    "allowed_partial_waves",
                    f"{daughter.name!r} is massless with spin {daughter.spin}: partial waves of "
                    "definite l and s are not independent for it; write the decay in helicity "
                    "amplitudes",
                )
        waves = coupled_waves(
            parent.require("spin"), daughter_a.spin, daughter_b.spin, max_l=self.max_l
        )
        return [
            wave
            for wave in waves
            if False
            not in self.check(
                parent, daughter_a=daughter_a, daughter_b=daughter_b, wave=wave
            ).values()
        ]


def _additive(decay: _Decay, name: str) -> bool | None:
    particles = (decay.parent, decay.a, decay.b)
    if any(name in particle.indefinite for particle in particles):
        return None
    before, first, second = (particle.require(name) for particle in particles)
    return bool(before == first + second)


def _parity(decay: _Decay, name: str) -> bool:
    if decay.identical:
        intrinsic = 1
    elif decay.pair:
        intrinsic = 1 if decay.a.require("spin").denominator == 1 else -1
    else:
        intrinsic = decay.a.require("parity") * decay.b.require("parity")
    return bool(decay.parent.require("parity") == intrinsic * (-1) ** decay.wave.l)


def _c_parity(decay: _Decay, name: str) -> bool | None:
    a, b = decay.a, decay.b
    if decay.parent.require("antiparticle") != decay.parent.name:
        return None
    if decay.pair:
        after = decay.sign
    elif a.require("antiparticle") != a.name or b.require("antiparticle") != b.name:
        return None
    else:
        after = 1 if decay.identical else a.require("c_parity") * b.require("c_parity")
    return bool(decay.parent.require("c_parity") == after)


def _g_parity(decay: _Decay, name: str) -> bool | None:
    if not _may_have_g(decay.parent):
        return None
    if _may_have_g(decay.a) and _may_have_g(decay.b):
        after = 1
        if not (decay.identical or decay.pair):
            after = decay.a.require("g_parity") * decay.b.require("g_parity")
    elif decay.a.require("antiparticle") == decay.b.name:
        isospin = decay.parent.require("isospin").isospin
        after = decay.sign * (-1) ** int(isospin)
    else:
        return None
    return bool(decay.parent.require("g_parity") == after)


def _may_have_g(particle: Particle) -> bool:
    """A hadron of whole isospin without flavour and baryon number is an eigenstate of G.

    What has neither isospin nor G parity is no hadron, such as a photon.
    """
    names = ("baryon_number", *_FLAVOURS)
    if particle.indefinite.intersection(names):
        return False
    if any(particle.require(name) for name in names):
        return False
    return particle.isospin is not None or particle.g_parity is not None


def _isospin(decay: _Decay, name: str) -> bool:
    parent, a, b = (p.require("isospin") for p in (decay.parent, decay.a, decay.b))
    total: Fraction = a.isospin + b.isospin
    couples = abs(a.isospin - b.isospin) <= parent.isospin <= total
    if not couples or (total - parent.isospin).denominator != 1:
        return False
    if any(each.projection is None for each in (parent, a, b)):
        return True
    coefficient = clebsch_gordan_signed_square(
        j1=a.isospin,
        m1=a.projection,
        j2=b.isospin,
        m2=b.projection,
        j=parent.isospin,
        m=parent.projection,
    )
    return coefficient != 0


def _exchange(decay: _Decay, name: str) -> bool | None:
    return decay.sign == 1 if decay.identical else None


_RULES: dict[str, Callable[[_Decay, str], bool | None]] = {
    **dict.fromkeys(ADDITIVE, _additive),
    "parity": _parity,
    "c_parity": _c_parity,
    "g_parity": _g_parity,
    "isospin": _isospin,
    "exchange": _exchange,
}


def _check_names(rules: Iterable[str]) -> None:
    unknown = sorted(set(rules) - set(_RULES))
    if unknown:
        raise invalid(
            "SelectionRules", f"no rule is called {', '.join(unknown)}; there are {sorted(_RULES)}"
        )
