"""The two-wave fits of the conformance samples, on a likelihood written in plain NumPy.

Formulas: helicity frame, relativistic Breit-Wigner and spherical harmonics of the conventions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from fit_toys import F64, Spec, Toy
from numpy.typing import NDArray

from laddu_dask.errors import EvaluationError
from laddu_dask.fit import fit
from laddu_dask.fit.hessian import hessian

DATA = Path(__file__).parents[1] / "data"
CASES: dict[str, Any] = json.loads((DATA / "cases.json").read_text())
TRUTH = (0.7, 0.9)
KAON = 0.497611
Q_R = 0.1973


def boosted(p: F64, beta: F64) -> F64:
    """Active boost of four-vectors (E, px, py, pz), shape (4, n)."""
    gamma = 1 / np.sqrt(1 - (beta * beta).sum(0))
    along = (beta * p[1:]).sum(0)
    factor = gamma**2 / (1 + gamma) * along + gamma * p[0]
    return np.concatenate([[gamma * (p[0] + along)], p[1:] + factor * beta])


def breit_wigner(s: F64, mass: float, width: float, l: int) -> NDArray[np.complex128]:
    """Relativistic Breit-Wigner with running width for l = 0 or 2 into two kaons."""
    q, q0 = np.sqrt(s / 4 - KAON**2), np.sqrt(mass**2 / 4 - KAON**2)

    def barrier2(momentum: Any) -> Any:
        z = (momentum / Q_R) ** 2
        return 13 * z**2 / (z**2 + 3 * z + 9) if l else 1.0

    running = width * mass / np.sqrt(s) * q / q0 * barrier2(q) / barrier2(q0)
    return np.asarray(1 / (mass**2 - s - 1j * mass * running))


class TwoWaves:
    """|f0 + mag e^(i pha) f2|^2 on the accepted Monte Carlo, with Asimov data at `TRUTH`."""

    def __init__(self) -> None:
        table = pq.read_table(DATA / "mc.parquet")
        beam, target, k1, k2 = (
            np.array([table.column(f"{name}_{c}").to_numpy() for c in ("e", "px", "py", "pz")])
            for name in ("beam", "target", "ks1", "ks2")
        )
        self.v = table.column("weight").to_numpy()
        to_cm = -(beam + target)[1:] / (beam + target)[0]
        beam, k1, k2 = (boosted(p, to_cm) for p in (beam, k1, k2))
        x = k1 + k2
        z = x[1:] / np.linalg.norm(x[1:], axis=0)
        y = np.cross(beam[1:], x[1:], axis=0)
        y /= np.linalg.norm(y, axis=0)
        decay = boosted(k1, -x[1:] / x[0])[1:]
        cos = (decay * z).sum(0) / np.linalg.norm(decay, axis=0)
        phi = np.arctan2((decay * y).sum(0), (decay * np.cross(y, z, axis=0)).sum(0))
        s = x[0] ** 2 - (x[1:] ** 2).sum(0)
        y21 = -np.sqrt(15 / (8 * np.pi)) * cos * np.sqrt(1 - cos**2) * np.exp(1j * phi)
        self.f0 = breit_wigner(s, 1.5, 0.11, 0) * np.sqrt(1 / (4 * np.pi))
        self.f2 = breit_wigner(s, 1.27, 0.19, 2) * y21
        asimov = self.v * self.terms(*TRUTH)[0]
        self.w = 1000 * asimov / asimov.sum()

    def terms(self, mag: float, pha: float) -> tuple[F64, F64, F64]:
        """Intensity and its derivatives by magnitude and phase."""
        turn = np.exp(1j * pha) * self.f2
        amplitude = self.f0 + mag * turn
        by_mag = 2 * (amplitude.conj() * turn).real
        by_pha = 2 * (amplitude.conj() * 1j * mag * turn).real
        return np.abs(amplitude) ** 2, by_mag, by_pha

    def nll(self, p: F64) -> tuple[float, F64]:
        intensity, *slopes = self.terms(*p)
        n, total = self.w.sum(), self.v @ intensity
        value = 2 * (n * np.log(total) - self.w @ np.log(intensity))
        return float(value), np.array(
            [2 * (n * (self.v @ d) / total - self.w @ (d / intensity)) for d in slopes]
        )

    def nll_hessian(self, mag: float, pha: float) -> F64:
        """Exact second derivatives of `nll`, shape (2, 2)."""
        turn = np.exp(1j * pha) * self.f2
        amplitude = self.f0 + mag * turn
        first = (turn, 1j * mag * turn)
        second = ((0 * turn, 1j * turn), (1j * turn, -mag * turn))
        intensity, *slopes = self.terms(mag, pha)
        n, total = self.w.sum(), self.v @ intensity
        result = np.empty((2, 2))
        for i, j in np.ndindex(2, 2):
            bend = 2 * (first[i].conj() * first[j] + amplitude.conj() * second[i][j]).real
            sums = (self.v @ slopes[i]) * (self.v @ slopes[j]) / total**2
            result[i, j] = 2 * (n * ((self.v @ bend) / total - sums)) - 2 * self.w @ (
                bend / intensity - slopes[i] * slopes[j] / intensity**2
            )
        return result

    def extended(self, p: F64) -> tuple[float, F64]:
        scale = p[0]
        if not scale > 0:
            raise EvaluationError(f"data intensity must be positive at scale {scale}")
        intensity, *slopes = self.terms(*p[1:])
        n, total = self.w.sum(), self.v @ intensity
        value = 2 * (scale * total - n * np.log(scale) - self.w @ np.log(intensity))
        return float(value), np.array(
            [
                2 * (total - n / scale),
                *(2 * (scale * (self.v @ d) - self.w @ (d / intensity)) for d in slopes),
            ]
        )


@pytest.fixture(scope="module")
def waves() -> TwoWaves:
    return TwoWaves()


def test_the_likelihood_is_the_expected_one(waves: TwoWaves) -> None:
    """Case two_waves: first intensities and the sums."""
    intensity = waves.terms(*TRUTH)[0]
    assert intensity[:2] == pytest.approx([0.1633944849340501, 1.6608787239456904], rel=1e-12)
    assert intensity.sum() == pytest.approx(3260.7063177428327, rel=1e-12)
    assert waves.v @ intensity == pytest.approx(2826.4520002686954, rel=1e-12)


def test_asimov_fit(waves: TwoWaves) -> None:
    """Case asimov_fit: minimum to 1e-8, objective to 1e-10, covariance to the digits given."""
    case = CASES["asimov_fit"]
    toy = Toy(waves.nll, [Spec("mag"), Spec("pha")])
    result = fit(toy, initial=case["start"])
    assert result.converged
    assert np.abs(result.values - case["minimum"]).max() < case["minimum_tolerance"]
    assert result.objective == pytest.approx(case["objective"], rel=1e-10)
    exact = 2 * np.linalg.inv(waves.nll_hessian(*TRUTH))
    size = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert (np.abs(result.covariance - exact) <= 1e-9 * size).all()
    # The recorded covariance is by finite differences; its last digit is not exact.
    assert (np.abs(result.covariance - case["covariance"]) <= 3e-8 * size).all()
    assert result.edm < 1e-13


@pytest.mark.parametrize("bounds", [(0.0, None), None, (0.0, 1e6)])
@pytest.mark.parametrize("start", [0, 1])
def test_extended_fit(
    waves: TwoWaves, start: int, bounds: tuple[float, float | None] | None
) -> None:
    """Case extended_fit, D6: the same minimum from a bad and a good start, and without bounds."""
    case = CASES["extended_fit"]
    toy = Toy(waves.extended, [Spec("scale", 1.0, bounds), Spec("mag"), Spec("pha")])
    result = fit(toy, initial=case["starts"][start])
    assert result.converged
    assert np.abs(result.values - case["minimum"]).max() < 1e-8
    assert result.objective == pytest.approx(case["objective"], rel=1e-10)
    assert result.errors == pytest.approx(np.array(case["standard_errors"]), rel=1e-6)


def test_start_with_zero_scale(waves: TwoWaves) -> None:
    """Case extended_fit, D5: no intensity at the start."""
    case = CASES["extended_fit"]
    specs = [Spec("scale", 0.0, (0.0, None)), Spec("mag", 0.6), Spec("pha", 0.8)]
    result = fit(Toy(waves.extended, specs))
    assert result.converged
    assert np.abs(result.values - case["minimum"]).max() < 1e-8


def test_hessian_is_exact(waves: TwoWaves) -> None:
    """Nine digits of the exact second derivatives at the minimum, eight elsewhere."""
    toy = Toy(waves.nll, [Spec("mag"), Spec("pha")])
    for point, tolerance in ((TRUTH, 1e-9), ((0.4, 0.3), 1e-8), ((1.1, -0.6), 1e-8)):
        exact = waves.nll_hessian(*point)
        size = np.sqrt(np.abs(np.outer(np.diag(exact), np.diag(exact))))
        assert (np.abs(hessian(toy, np.array(point)) - exact) <= tolerance * size).all()


def test_a_wave_at_its_limit_leaves_its_phase_open(waves: TwoWaves) -> None:
    """A magnitude held at zero: the phase means nothing, and the result says so."""
    bounds = (-1.0, 0.0)
    toy = Toy(waves.nll, [Spec("mag", -0.01, bounds), Spec("pha", 0.9, (-0.5, 1.5))])
    result = fit(toy)
    assert result.values[0] == 0.0
    assert result.limits[0] == "upper"
    assert not result.converged
    assert "flat direction: pha" in result.message
    assert np.isnan(result.errors[1])
