"""Frames and angles of ``beam target -> resonance recoil, resonance -> k1 k2``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from lattice import PROTON_MASS, events
from oracle import evaluate

from laddu_dask.expr import Expr
from laddu_dask.physics import (
    Vec3,
    Vec4,
    adair_angles,
    angles,
    canonical_angles,
    gottfried_jackson_angles,
    helicity_angles,
    mandelstam,
    production_angles,
    production_normal,
    to_rest_frame,
)

DATA = Path(__file__).resolve().parents[1] / "data"

BEAM = Vec4(5.0, 0.0, 0.0, 5.0)
TARGET = Vec4(0.938272, 0.0, 0.0, 0.0)
K1 = Vec3(0.3, 0.4, 1.2).with_mass(0.497611)
K2 = Vec3(-0.1, 0.2, 2.0).with_mass(0.497611)
X = K1 + K2


def number(expr: Expr) -> float:
    (value,) = evaluate(expr)
    assert value.imag == 0
    return float(value.real)


def numbers(vector: Vec3) -> np.ndarray:
    return evaluate(vector.as_expr())[:, 0].real


def test_invariants() -> None:
    s, t, u = mandelstam(BEAM, TARGET, X, BEAM + TARGET - X)
    assert number(X.m()) == pytest.approx(1.1690116218334814, rel=1e-13)
    assert number(s) == pytest.approx(10.263074345983995, rel=1e-13)
    assert number(t) == pytest.approx(-1.2839358817490236, rel=1e-12)
    assert number(u) == pytest.approx(-4.2553807830226695, rel=1e-12)


def test_momenta_in_nested_frames() -> None:
    cm = BEAM + TARGET
    beam_cm, x_cm = to_rest_frame(BEAM, cm), to_rest_frame(X, cm)
    np.testing.assert_allclose(
        numbers(beam_cm.momentum()), [0, 0, 1.4644010213876704], rtol=1e-13, atol=1e-15
    )
    np.testing.assert_allclose(numbers(x_cm.momentum()), [0.2, 0.6, 0.5235380901696485], rtol=1e-13)
    nested = to_rest_frame(to_rest_frame(K1, cm), x_cm).momentum()
    np.testing.assert_allclose(
        numbers(nested), [0.2005344748463586, 0.10160342453907578, -0.20854976431169753], rtol=1e-12
    )
    direct = to_rest_frame(K1, X).momentum()
    np.testing.assert_allclose(numbers(direct), [0.21469739, 0.14409216, -0.16484179], atol=5e-9)


def test_helicity_angles() -> None:
    direction = helicity_angles(BEAM, TARGET, X, K1)
    assert number(direction.costheta) == pytest.approx(-0.032231755791712044, abs=1e-13)
    assert number(direction.phi) == pytest.approx(-0.5420526419994686, rel=1e-12)
    assert number(direction.theta) == pytest.approx(1.6030336660510105, rel=1e-13)


def test_gottfried_jackson_angles() -> None:
    costheta, phi = gottfried_jackson_angles(BEAM, TARGET, X, K1)
    assert number(costheta) == pytest.approx(-0.8551743958, abs=1e-10)
    assert number(phi) == pytest.approx(-1.4684391346, abs=1e-10)


def test_adair_and_canonical_angles_of_one_event() -> None:
    """Canonical: the direction of k1 = (0.20053447, 0.10160342, -0.20854976) as it is."""
    costheta, phi = canonical_angles(BEAM, TARGET, X, K1)
    momentum = np.array([0.2005344748463586, 0.10160342453907578, -0.20854976431169753])
    assert number(costheta) == pytest.approx(momentum[2] / np.linalg.norm(momentum), rel=1e-12)
    assert number(phi) == pytest.approx(np.arctan2(momentum[1], momentum[0]), rel=1e-12)
    adair = adair_angles(BEAM, TARGET, X, K1)
    assert number(adair.costheta) == pytest.approx(number(costheta), rel=1e-13)
    # X = (0.2, 0.6, 0.5235) in the CM frame, so that x of the Adair frame has that azimuth.
    turned = np.arctan2(momentum[1], momentum[0]) - np.arctan2(0.6, 0.2)
    assert number(adair.phi) == pytest.approx(turned, rel=1e-12)


def test_adair_angles_are_helicity_angles_turned_in_the_production_plane() -> None:
    """The beam is cos(Theta) z - sin(Theta) x of the helicity frame; y is common to both."""
    columns = events(200)
    beam, target, k1, k2 = (Vec4.event(name) for name in ("beam", "target", "ks1", "ks2"))
    costheta, phi = (
        evaluate(expr, columns).real for expr in adair_angles(beam, target, k1 + k2, k1)
    )
    helicity = columns["costheta"], np.sqrt(1 - columns["costheta"] ** 2)
    cos_production = columns["cm_costheta"]
    sin_production = np.sqrt(1 - cos_production**2)
    turned = cos_production * helicity[0] - sin_production * helicity[1] * np.cos(columns["phi"])
    np.testing.assert_allclose(costheta, turned, atol=1e-12)
    np.testing.assert_allclose(
        np.sqrt(1 - costheta**2) * np.sin(phi), helicity[1] * np.sin(columns["phi"]), atol=1e-12
    )
    canonical = [
        evaluate(expr, columns).real for expr in canonical_angles(beam, target, k1 + k2, k1)
    ]
    np.testing.assert_allclose(canonical[0], costheta, atol=1e-13)
    difference = canonical[1] - phi - columns["cm_phi"]
    np.testing.assert_allclose(np.cos(difference), 1.0, atol=1e-13)


def test_axes_need_not_be_unit_vectors_and_the_hint_not_perpendicular() -> None:
    p, z, y = Vec3(0.1, 0.2, 0.3), Vec3(0.0, 0.0, 1.0), Vec3(0.0, 1.0, 0.0)
    plain = angles(p, z, y)
    stretched = angles(p, 7 * z, 3 * y + 2 * z)
    assert number(plain.costheta) == pytest.approx(0.3 / np.sqrt(0.14), rel=1e-14)
    assert number(plain.phi) == pytest.approx(np.arctan2(0.2, 0.1), rel=1e-14)
    assert number(stretched.costheta) == pytest.approx(number(plain.costheta), rel=1e-14)
    assert number(stretched.phi) == pytest.approx(number(plain.phi), rel=1e-14)


def test_every_angle_is_real_by_type() -> None:
    beam, target, x, k = (Vec4.event(name) for name in ("beam", "target", "x", "k"))
    for pair in (
        helicity_angles(beam, target, x, k),
        gottfried_jackson_angles(beam, target, x, k),
        adair_angles(beam, target, x, k),
        canonical_angles(beam, target, x, k),
        production_angles(beam, target, x),
    ):
        assert pair.costheta.is_real
        assert pair.phi.is_real
        assert pair.theta.is_real


def test_lattice_sample_is_the_recorded_one() -> None:
    columns = events(1000)
    table = pq.read_table(DATA / "mc.parquet").slice(0, 1000)
    for name in table.column_names:
        if name in columns:
            np.testing.assert_allclose(
                columns[name], table[name].to_numpy(), rtol=1e-14, atol=2e-14, err_msg=name
            )
    assert columns["weight"].sum() == pytest.approx(893.4364334303145, rel=1e-13)


def test_kinematics_of_the_lattice() -> None:
    cases = json.loads((DATA / "cases.json").read_text())["kinematics"]
    columns = events(cases["events"])
    beam, target, recoil, k1, k2 = (
        Vec4.event(name) for name in ("beam", "target", "recoil", "ks1", "ks2")
    )
    x = k1 + k2
    helicity = helicity_angles(beam, target, x, k1)
    invariants = mandelstam(beam, target, x, recoil)
    computed = [
        evaluate(expr, columns).real
        for expr in (*helicity, x.m(), invariants.t, invariants.s, invariants.u)
    ]
    np.testing.assert_allclose([v[0] for v in computed], cases["first"], rtol=1e-13)
    np.testing.assert_allclose([v.sum() for v in computed], cases["sums"], rtol=1e-12)
    computed = [
        evaluate(expr, columns).real for expr in gottfried_jackson_angles(beam, target, x, k1)
    ]
    np.testing.assert_allclose(
        [v[0] for v in computed], cases["gottfried_jackson_first"], rtol=1e-13
    )
    np.testing.assert_allclose(
        [v.sum() for v in computed], cases["gottfried_jackson_sums"], rtol=1e-12
    )
    assert columns["weight"].sum() == pytest.approx(cases["sum_weights"], rel=1e-13)


def test_angles_close_with_the_construction_of_the_events() -> None:
    """Rounding in 10 GeV momenta is divided by the decay momentum, 0.07 GeV near threshold."""
    columns = events(1000)
    beam, target, k1, k2 = (Vec4.event(name) for name in ("beam", "target", "ks1", "ks2"))
    x = k1 + k2
    costheta, phi = (evaluate(expr, columns).real for expr in helicity_angles(beam, target, x, k1))
    away = columns["mass"] > 1.01
    for computed, name in ((costheta, "costheta"), (phi, "phi")):
        error = np.abs(computed - columns[name])
        assert error[away].max() < 1e-13
        assert error.max() < 5e-13
    cm_costheta, cm_phi = (
        evaluate(expr, columns).real for expr in production_angles(beam, target, x)
    )
    np.testing.assert_allclose(cm_costheta, columns["cm_costheta"], atol=1e-14)
    np.testing.assert_allclose(cm_phi, columns["cm_phi"], atol=1e-14)


@pytest.mark.parametrize("axis", [(0.0, 0.0, 1.0), (0.3, -0.7, 0.2), (-1e3, 2e3, 1.0)])
def test_reference_along_the_axis_gives_nan(axis: tuple[float, float, float]) -> None:
    """D8: rounding residues of a vanishing axis never pass for a direction."""
    z = Vec3(*axis)
    direction = angles(Vec3(0.1, 0.2, 0.3), z_axis=z, y_hint=z * 1.7)
    assert np.isfinite(number(direction.costheta))
    assert np.isnan(evaluate(direction.phi)).all()


def test_null_axis_and_null_momentum_give_nan() -> None:
    """D8: a null axis has no direction."""
    p, z, y = Vec3(0.1, 0.2, 0.3), Vec3.z_axis(), Vec3.y_axis()
    for direction in (angles(p, Vec3.zero(), y), angles(Vec3.zero(), z, y)):
        assert np.isnan(evaluate(direction.costheta)).all()
    assert np.isnan(evaluate(angles(p, Vec3.zero(), y).phi)).all()
    assert np.isnan(evaluate(angles(p, z, Vec3.zero()).phi)).all()


@pytest.mark.parametrize("tilt", [0.0, 0.3])
def test_resonance_along_the_beam_has_no_production_plane(tilt: float) -> None:
    """D8: the azimuth is undefined, the polar angle is not."""
    along = Vec3(np.sin(tilt), 0.1 * np.sin(tilt), np.cos(tilt)).unit()
    beam = (8.7 * along).with_mass(0.0)
    x = (5.3 * along).with_mass(1.4)
    k1 = Vec3(0.4, 0.1, 2.9).with_mass(0.497611)
    target = Vec4(PROTON_MASS, 0.0, 0.0, 0.0)
    for function in (helicity_angles, gottfried_jackson_angles, adair_angles):
        direction = function(beam, target, x, k1)
        assert np.isnan(evaluate(direction.phi)).all()
        assert np.isfinite(number(direction.costheta))
    assert np.isnan(evaluate(production_normal(beam.momentum(), x.momentum()).as_expr())).all()


def test_resonance_at_rest_in_the_cm_has_no_helicity_axis() -> None:
    """D8: at threshold the axis is a rounding residue."""
    beam, target = Vec3(1.9, 0.3, 4.1).with_mass(0.0), Vec4(PROTON_MASS, 0.0, 0.0, 0.0)
    direction = helicity_angles(beam, target, 0.7 * (beam + target), K1)
    assert np.isnan(evaluate(direction.costheta)).all()
    assert np.isnan(evaluate(direction.phi)).all()


def test_angles_do_not_depend_on_the_observer() -> None:
    """Boosts along the beam and rotations of the whole event leave every angle as it is."""
    columns = events(50)
    names = ("beam", "target", "ks1", "ks2")
    still = [Vec4.event(name) for name in names]
    boosted = [p.boost(Vec3(0.0, 0.0, -0.6)) for p in still]
    # A rotation by the angle 0.7 about z and then by -0.4 about x.
    turned = []
    for p in still:
        x = np.cos(0.7) * p.px() - np.sin(0.7) * p.py()
        y = np.sin(0.7) * p.px() + np.cos(0.7) * p.py()
        z = np.sin(-0.4) * y + np.cos(-0.4) * p.pz()
        turned.append(Vec4(p.e(), x, np.cos(-0.4) * y - np.sin(-0.4) * p.pz(), z))
    for function in (helicity_angles, gottfried_jackson_angles, adair_angles):
        beam, target, k1, k2 = still
        reference = function(beam, target, k1 + k2, k1)
        for beam, target, k1, k2 in (boosted, turned):
            other = function(beam, target, k1 + k2, k1)
            for a, b in zip(reference, other, strict=True):
                np.testing.assert_allclose(
                    evaluate(a, columns), evaluate(b, columns), atol=2e-13, rtol=1e-12
                )
