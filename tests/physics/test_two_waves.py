"""A whole model: two interfering waves of a K_S K_S pair on the recorded sample."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from oracle import evaluate

from laddu_dask.expr import Expr, parameter, polar_complex
from laddu_dask.physics import Vec4, helicity_angles, relativistic_breit_wigner, spherical_harmonic

DATA = Path(__file__).resolve().parents[1] / "data"
KAON = 0.497611


def columns(sample: str) -> dict[str, np.ndarray]:
    table = pq.read_table(DATA / f"{sample}.parquet")
    return {name: table[name].to_numpy() for name in table.column_names}


def intensity() -> Expr:
    beam, target, k1, k2 = (Vec4.event(name) for name in ("beam", "target", "ks1", "ks2"))
    x = k1 + k2
    costheta, phi = helicity_angles(beam, target, x, k1)
    s = x.m2()
    pair = {"mass1": KAON, "mass2": KAON}
    f0 = relativistic_breit_wigner(s, mass=1.5, width=0.11, **pair) * spherical_harmonic(
        0, 0, costheta=costheta, phi=phi
    )
    f2 = relativistic_breit_wigner(s, mass=1.27, width=0.19, **pair, l=2) * spherical_harmonic(
        2, 1, costheta=costheta, phi=phi
    )
    return (f0 + polar_complex(parameter("mag"), parameter("pha")) * f2).norm_sqr()


def test_intensities_and_objectives() -> None:
    case = json.loads((DATA / "cases.json").read_text())["two_waves"]
    data, mc = columns("data"), columns("mc")
    model = intensity()
    assert model.is_real
    at = dict(zip(("mag", "pha"), case["at"], strict=True))
    accepted = evaluate(model, mc, at).real
    observed = evaluate(model, data, at).real
    np.testing.assert_allclose(accepted[:2], case["intensity_mc_first2"], rtol=1e-12)
    assert accepted.sum() == pytest.approx(case["sum_intensity_mc"], rel=1e-12)
    total = (mc["weight"] * accepted).sum()
    assert total == pytest.approx(case["sum_weighted_intensity_mc"], rel=1e-12)
    logs = (data["weight"] * np.log(observed)).sum()
    nll = 2 * (data["weight"].sum() * np.log(total) - logs)
    assert nll == pytest.approx(case["nll"], rel=1e-12)
    assert 2 * (total - logs) == pytest.approx(case["extended_nll"], rel=1e-12)
