"""Partial waves: which couple, what they are called, and their amplitudes in helicities."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import evaluate

import laddu_dask as ld
from laddu_dask.errors import ExpressionError
from laddu_dask.physics import PartialWave, coupled_waves, helicity_amplitudes, helicity_couplings

HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ((2, 2, 0), "1D2"),
        ((1.5, 1, 0.5), "2P3/2"),
        ((1, 0, 1), "3S1"),
        ((7, 7, 0), "1K7"),
        ((25, 24, 1), "3[24]25"),
    ],
)
def test_names(labels: tuple[Any, ...], name: str) -> None:
    assert str(PartialWave(*labels)) == PartialWave(*labels).label == name


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ((3, 1, 1), "l = 1 and s = 1 do not couple to 3"),
        ((1, 1, 0.5), "do not couple"),
        ((1, 0.5, 0.5), "l must be a whole number"),
        ((-1, 1, 0), ">= 0"),
        ((0.3, 1, 1), "j must be an integer or half-integer"),
    ],
)
def test_impossible_waves(labels: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        PartialWave(*labels)


def test_waves_of_a_decay() -> None:
    assert [w.label for w in coupled_waves(1, 0.5, 0.5)] == ["3S1", "1P1", "3P1", "3D1"]
    assert [w.label for w in coupled_waves(1, 0.5, 0.5, max_l=0)] == ["3S1"]
    assert [w.label for w in coupled_waves(1.5, 0.5, 0)] == ["2P3/2", "2D3/2"]
    assert coupled_waves(1, 0.5, 0) == []
    with pytest.raises(ExpressionError, match="spin_b >= 0"):
        coupled_waves(1, 0, -1)


spins = st.integers(0, 5).map(lambda doubled: Fraction(doubled, 2))


@given(st.integers(0, 8), spins, spins)
@settings(max_examples=30, deadline=None)
def test_waves_and_helicities_are_two_bases(twice_j: int, a: Fraction, b: Fraction) -> None:
    """As many waves as helicity pairs, and an orthogonal matrix between them."""
    j = Fraction(twice_j, 2)
    if (j + a + b).denominator != 1:
        j += HALF
    waves = coupled_waves(j, a, b)
    rows = [helicity_couplings(wave, a, b) for wave in waves]
    keys = list(rows[0])
    assert len(waves) == len(keys)
    matrix = np.array([[row[key] for key in keys] for row in rows])
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(len(waves)), atol=1e-14)
    for wave, row in zip(waves, rows, strict=True):
        # Jacob and Wick: what parity makes of both helicities turned round.
        sign = (-1) ** int(wave.l + a + b - j)
        assert all(row[-first, -second] == sign * row[first, second] for first, second in keys)


def test_known_couplings() -> None:
    """Vector to a fermion pair: in S wave the squares of ++ and +- are as 1 to 2."""
    s_wave = helicity_couplings(PartialWave(1, 0, 1), 0.5, 0.5)
    assert s_wave[HALF, HALF] == s_wave[-HALF, -HALF] == math.sqrt(1 / 6)
    assert s_wave[HALF, -HALF] == s_wave[-HALF, HALF] == math.sqrt(1 / 3)
    d_wave = helicity_couplings(PartialWave(1, 2, 1), 0.5, 0.5)
    assert d_wave[HALF, HALF] == -math.sqrt(1 / 3)
    assert d_wave[HALF, -HALF] == math.sqrt(1 / 6)
    # Two pseudoscalars: one helicity amplitude, and nothing to couple.
    assert helicity_couplings(PartialWave(3, 3, 0), 0, 0) == {(0, 0): 1.0}


def test_couplings_that_do_not_exist() -> None:
    with pytest.raises(ExpressionError, match="do not add up to s = 1 of 3S1"):
        helicity_couplings(PartialWave(1, 0, 1), 0, 0)


def test_amplitudes_of_free_waves() -> None:
    """Expressions go in and come out; the sum of squares stays what it was."""
    s, d = ld.cparameter("s"), ld.parameter("d")
    amplitudes = helicity_amplitudes({PartialWave(1, 0, 1): s, PartialWave(1, 2, 1): d}, 0.5, 0.5)
    at = {"s real": 1.5, "s imag": -0.5, "d": 0.25}
    total = sum(abs(evaluate(value, parameters=at)[0]) ** 2 for value in amplitudes.values())
    assert total == pytest.approx(1.5**2 + 0.5**2 + 0.25**2, rel=1e-14)
    flip = evaluate(amplitudes[HALF, -HALF], parameters=at)[0]
    assert flip == pytest.approx((1.5 - 0.5j) / math.sqrt(3) + 0.25 / math.sqrt(6), rel=1e-14)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_angular_distribution_of_a_pair(backend: Any) -> None:
    """J/psi made by e+ e- to a baryon pair: ``1 + alpha cos^2`` in compiled programs.

    ``alpha = (|F+-|^2 - 2 |F++|^2) / (|F+-|^2 + 2 |F++|^2)``, by summing the squares of d^1.
    """
    ratio = ld.parameter("ratio")
    waves = {PartialWave(1, 0, 1): 1.0, PartialWave(1, 2, 1): ld.polar_complex(ratio, 0.4)}
    beta = ld.acos(ld.scalar("c"))
    intensity = ld.sum(
        (ld.WignerD(1, m, a - b).D(alpha=0.0, beta=beta) * amplitude).norm_sqr()
        for m in (-1, 1)
        for (a, b), amplitude in helicity_amplitudes(waves, HALF, HALF).items()
    )
    c = np.array([-0.9, -0.2, 0.0, 0.5])
    data = ld.Dataset.from_arrays(scalars={"c": c})
    mc = ld.Dataset.from_arrays(scalars={"c": c[:2]})
    at = 0.3

    def expected(ratio: float) -> Any:
        d = ratio * np.exp(0.4j)
        same = abs(1 / math.sqrt(6) - d / math.sqrt(3)) ** 2
        other = abs(1 / math.sqrt(3) + d / math.sqrt(6)) ** 2
        return 2 * same * (1 - c**2) + other * (1 + c**2)

    def objective(ratio: float) -> float:
        values = expected(ratio)
        return float(2 * (4 * np.log(values[:2].sum()) - np.log(values).sum()))

    np.testing.assert_allclose(
        evaluate(intensity, {"c": c}, {"ratio": at}).real, expected(at), rtol=1e-13
    )
    term = ld.NLL(model=ld.Model(intensity), data=data, accepted_mc=mc)
    with ld.Likelihood([term], execution=ld.Execution(backend=backend)) as likelihood:
        value, (slope,) = likelihood.value_and_gradient([at])
    assert value == pytest.approx(objective(at), rel=1e-13)
    step = 1e-5
    steep = (objective(at + step) - objective(at - step)) / (2 * step)
    assert slope == pytest.approx(steep, rel=1e-8)


def test_amplitudes_where_no_wave_contributes() -> None:
    amplitudes = helicity_amplitudes({PartialWave(0, 0, 0): 1.0}, 1, 1)
    assert set(amplitudes) == {(1, 1), (0, 0), (-1, -1)}
    only = helicity_amplitudes({PartialWave(1, 1, 1): 1.0}, 1, 1)
    assert evaluate(only[0, 0])[0] == 0


def test_amplitudes_need_one_momentum() -> None:
    with pytest.raises(ExpressionError, match="waves of one j, got 1S0, 1P1"):
        helicity_amplitudes({PartialWave(0, 0, 0): 1, PartialWave(1, 1, 0): 1}, 0, 0)
    with pytest.raises(ExpressionError, match="got none"):
        helicity_amplitudes({}, 0, 0)
