"""Particles and conservation laws; textbook decays are the reference."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import pytest

from laddu_dask.errors import ExpressionError
from laddu_dask.physics import (
    Isospin,
    Parity,
    PartialWave,
    Particle,
    SelectionRules,
    Statistics,
    coupled_waves,
)

STRONG, WEAK = SelectionRules.strong(), SelectionRules.weak()
ELECTROMAGNETIC = SelectionRules.electromagnetic()


def waves(rules: SelectionRules, *names: str) -> list[str]:
    parent, a, b = (Particle.from_pdg(name) for name in names)
    found = rules.allowed_partial_waves(parent, daughter_a=a, daughter_b=b)
    return [wave.label for wave in found]


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        (("J/psi(1S)", "p", "p~"), ["3S1", "3D1"]),  # D9: P waves where antibaryons have P = +
        (("J/psi(1S)", "Lambda", "Lambda~"), ["3S1", "3D1"]),
        (("eta(c)(1S)", "p", "p~"), ["1S0"]),
        (("chi(c2)(1P)", "p", "p~"), ["3P2", "3F2"]),
        (("f(2)(1270)", "K(S)0", "K(S)0"), ["1D2"]),
        (("rho(770)0", "pi+", "pi-"), ["1P1"]),
        (("rho(770)+", "pi+", "pi0"), ["1P1"]),
        (("rho(770)0", "pi0", "pi0"), []),
        (("f(0)(980)", "pi0", "pi0"), ["1S0"]),
        (("phi(1020)", "K+", "K-"), ["1P1"]),
        (("phi(1020)", "K(S)0", "K(S)0"), []),
        (("b(1)(1235)+", "omega(782)", "pi+"), ["3S1", "3D1"]),
        (("omega(782)", "pi+", "pi-"), []),  # G parity
        (("J/psi(1S)", "pi+", "pi-"), []),  # G parity
        (("J/psi(1S)", "rho(770)0", "pi0"), ["3P1"]),
        (("J/psi(1S)", "phi(1020)", "phi(1020)"), []),  # C parity
        (("eta(c)(1S)", "rho(770)0", "rho(770)0"), ["3P0"]),
        (("eta", "pi+", "pi-"), []),  # parity
        (("Delta(1232)++", "p", "pi+"), ["2P3/2"]),
        (("Lambda", "p", "pi-"), []),  # strangeness
    ],
)
def test_strong_decays(decay: tuple[str, ...], expected: list[str]) -> None:
    assert waves(STRONG, *decay) == expected


def test_other_interactions() -> None:
    assert waves(ELECTROMAGNETIC, "J/psi(1S)", "e+", "e-") == ["3S1", "3D1"]
    assert waves(ELECTROMAGNETIC, "J/psi(1S)", "pi+", "pi-") == ["1P1"]
    assert waves(WEAK, "Lambda", "p", "pi-") == ["2S1/2", "2P1/2"]
    assert waves(WEAK, "Lambda", "p", "e-") == []
    assert waves(WEAK, "D0", "K-", "rho(770)+") == ["3P0"]
    assert waves(SelectionRules.weak(max_l=0), "Lambda", "p", "pi-") == ["2S1/2"]


def test_a_fermion_pair_needs_no_intrinsic_parity() -> None:
    assert waves(ELECTROMAGNETIC, "J/psi(1S)", "mu+", "mu-") == ["3S1", "3D1"]
    electron = Particle.from_pdg("e-")
    assert electron.parity is None
    with pytest.raises(ExpressionError, match=r"'e-': its parity is not known; give it"):
        electron.require("parity")


def test_two_identical_fermions() -> None:
    """Two protons: 1S0, 3P0,1,2, 1D2 and no others up to l = 2."""
    proton = Particle.from_pdg("p")
    rules = SelectionRules({"exchange"}, max_l=2)
    found = []
    for j in range(4):
        state = Particle(name="pp", spin=j)
        found += rules.allowed_partial_waves(state, daughter_a=proton, daughter_b=proton)
    assert [wave.label for wave in found] == ["1S0", "3P0", "3P1", "3P2", "1D2"]


def test_charge_conjugation_of_pairs_of_vectors() -> None:
    """rho+ rho- has C = (-1)**(l + s), as every pair has."""
    rho = Particle.from_pdg("rho(770)+")
    state = Particle(name="X", antiparticle="X", spin=1, c_parity="-")
    rules = SelectionRules({"c_parity"})
    found = rules.allowed_partial_waves(state, daughter_a=rho, daughter_b=rho.conjugate())
    assert found == [w for w in coupled_waves(1, 1, 1) if (w.l + w.s) % 2]
    kstar, kaon = Particle.from_pdg("K*(892)+"), Particle.from_pdg("K-")
    (wave,) = coupled_waves(1, 1, 0, max_l=0)
    verdict = rules.check(state, daughter_a=kstar, daughter_b=kaon, wave=wave)
    assert verdict == {"c_parity": None}


def test_what_each_rule_says() -> None:
    jpsi, proton = Particle.from_pdg("J/psi(1S)"), Particle.from_pdg("p")
    pair = {"daughter_a": proton, "daughter_b": proton.conjugate()}
    verdict = STRONG.check(jpsi, **pair, wave=PartialWave(1, 1, 0))
    assert {name for name, said in verdict.items() if said is False} == {"parity"}
    verdict = STRONG.check(jpsi, **pair, wave=PartialWave(1, 1, 1))
    violated = {name for name, said in verdict.items() if said is False}
    assert violated == {"parity", "c_parity", "g_parity"}
    assert verdict["exchange"] is None
    assert verdict["charge"] is True
    kshort = Particle.from_pdg("K(S)0")
    f2 = Particle.from_pdg("f(2)(1270)")
    verdict = STRONG.check(f2, daughter_a=kshort, daughter_b=kshort, wave=PartialWave(2, 2, 0))
    assert verdict["strangeness"] is None  # a K_S has no definite one


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(ExpressionError, match=r"'K\(S\)0': its c_parity is not known"):
        waves(STRONG, "phi(1020)", "K(S)0", "K(L)0")
    assert waves(STRONG.without("c_parity"), "phi(1020)", "K(S)0", "K(L)0") == ["1P1"]
    state = Particle(name="X", spin=1)
    pion = Particle.from_pdg("pi+")
    with pytest.raises(ExpressionError, match=r"'X': its .* is not known; give it: Particle"):
        STRONG.allowed_partial_waves(state, daughter_a=pion, daughter_b=pion.conjugate())
    with pytest.raises(ExpressionError, match="'gamma' is massless with spin 1"):
        waves(ELECTROMAGNETIC, "chi(c1)(1P)", "gamma", "gamma")


def test_names_of_rules() -> None:
    with pytest.raises(ExpressionError, match="no rule is called spin; there are"):
        STRONG.without("spin")
    assert WEAK.including("parity").without("parity") == WEAK


@pytest.mark.parametrize(
    ("name", "jpc", "isospin", "flavours"),
    [
        ("J/psi(1S)", "1--", (0, 0), (0, 0, 0, 0)),
        ("pi+", "0-", (1, 1), (0, 0, 0, 0)),
        ("rho(770)0", "1--", (1, 0), (0, 0, 0, 0)),
        ("p~", "1/2-", (0.5, -0.5), (-1, 0, 0, 0)),
        ("Lambda", "1/2+", (0, 0), (1, -1, 0, 0)),
        ("Omega~+", "3/2-", (0, 0), (-1, 3, 0, 0)),
        ("K+", "0-", (0.5, 0.5), (0, 1, 0, 0)),
        ("D0", "0-", (0.5, -0.5), (0, 0, 1, 0)),
        ("B(s)0", "0-", (0, 0), (0, -1, 0, 1)),
        ("a(0)(980)+", "0+", (1, 1), (0, 0, 0, 0)),
    ],
)
def test_particles_of_the_tables(
    name: str, jpc: str, isospin: tuple[Any, Any], flavours: tuple[int, ...]
) -> None:
    particle = Particle.from_pdg(name)
    assert particle.jpc == jpc
    assert particle.isospin == Isospin(*isospin)
    names = ("baryon_number", "strangeness", "charm", "bottomness")
    assert tuple(getattr(particle, each) for each in names) == flavours
    assert pickle.loads(pickle.dumps(particle)) == particle


@pytest.mark.parametrize("name", ["p", "K+", "K0", "Lambda", "e-", "pi+", "B0", "Omega-", "pi0"])
def test_conjugates_are_those_of_the_tables(name: str) -> None:
    particle = Particle.from_pdg(name)
    assert particle.conjugate() == Particle.from_pdg(particle.antiparticle or "")
    assert particle.conjugate().conjugate() == particle


def test_other_numbers_of_the_tables() -> None:
    assert Particle.from_pdg(310).mass == 0.497611
    assert Particle.from_pdg(-13).muon_lepton_number == -1
    assert Particle.from_pdg(11).statistics is Statistics.FERMION
    assert Particle.from_pdg(310).indefinite == {"strangeness"}
    assert Particle.from_pdg(130, c_parity=1).c_parity is Parity.POSITIVE
    with pytest.raises(ExpressionError, match="no particle 'unobtainium'"):
        Particle.from_pdg("unobtainium")
    with pytest.raises(ExpressionError, match=r"'psi\(4160\)' is the name of several.*9010443"):
        Particle.from_pdg("psi(4160)")
    with pytest.raises(ExpressionError, match="no particle 999999"):
        Particle.from_pdg(999999)


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ({"spin": 0.3}, "spin must be an integer or half-integer"),
        ({"spin": -1}, "spin >= 0"),
        ({"parity": 0}, r"parity must be \+1 or -1, got 0"),
        ({"g_parity": "x"}, "g_parity must be"),
        ({"charge": 0.5}, "charge must be a whole number"),
        ({"mass": -1.0}, "mass >= 0"),
        ({"mass": float("nan")}, "mass >= 0"),
        ({"isospin": -1}, "isospin >= 0"),
        ({"antiparticle": "Y", "c_parity": 1}, "only a particle that is its own antiparticle"),
    ],
)
def test_impossible_particles(numbers: dict[str, Any], problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        Particle(name="X", **numbers)


def test_parities_and_isospins() -> None:
    assert Parity("-") is Parity(-1) is Parity("negative")
    assert str(Parity.POSITIVE) == "+"
    with pytest.raises(ValueError, match="0 is not a valid Parity"):
        Parity(0)
    assert Isospin(0.5, -0.5).projection == Fraction(-1, 2)
    for impossible in ((1, 0.5), (1, 2)):
        with pytest.raises(ExpressionError, match="has no projection"):
            Isospin(*impossible)
