"""Published K-matrix tables and their amplitudes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracle import evaluate

import laddu_dask as ld
from laddu_dask.expr import complex, parameter, scalar
from laddu_dask.physics import chew_mandelstam

S = scalar("s")
WAVES = ("f0", "f2", "a0", "a2", "rho")
#: Squared mass of two K_S of 0.498 GeV, momenta (-0.112, 0.293, 3.081) and (-0.007, -0.667, 5.446).
TWO_KAONS = 1.8889166211166355


def strengths(table: Any) -> np.ndarray:
    """0.1 + 0.2i, 0.3 + 0.4i and so on."""
    count = np.arange(len(table.poles))
    return np.asarray((2 * count + 1) / 10 + 1j * (2 * count + 2) / 10)


def at(expr: Any, *s: float) -> np.ndarray:
    return np.asarray(evaluate(expr, {"s": np.array(s)}, {}))


@pytest.mark.parametrize(
    ("wave", "channel", "expected"),
    [
        ("f0", "2pi 2pi", 0.2674945594859745 + 0.7289451151846622j),
        ("f2", "2pi 2pi", 0.025233045240226043 + 0.39712393858386263j),
        ("a0", "K Kbar", -0.8002759157259999 - 0.1359306632058216j),
        ("a2", "K Kbar", -0.2092661754354623 - 0.09850621309829852j),
        ("rho", "2pi 2pi", 0.09484736010326478 + 0.260866462141048j),
    ],
)
def test_values_of_laddu(wave: str, channel: str, expected: Any) -> None:
    table = ld.kopf_k_matrix(wave)
    amplitude = table.amplitudes(S, strengths(table))[table.channel(channel)]
    assert at(amplitude, TWO_KAONS)[0] == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("wave", WAVES)
def test_formula_with_its_poles(wave: str) -> None:
    """The formula as it is written, K with poles and not cleared, solved by NumPy."""
    table, s = ld.kopf_k_matrix(wave), 1.1
    first, second = np.array(table.channel_mass_1), np.array(table.channel_mass_2)

    def size(at_s: Any) -> Any:  # of the barrier, as far as it depends on s
        z = (at_s - (first + second) ** 2) * (at_s - (first - second) ** 2) / (4 * at_s)
        z = z / 0.1973**2 + 0j
        polynomial = {0: z**0, 1: z + 1, 2: z**2 + 3 * z + 9}[table.l]
        return np.sqrt(z**table.l / polynomial)

    barriers = np.array([size(s) / size(mass**2) for mass in table.pole_masses]).T
    g, background = np.array(table.couplings) * barriers, np.array(table.background)
    gaps = np.array(table.pole_masses) ** 2 - s
    k = (g / gaps) @ g.T + len(gaps) * background
    k *= 1 if table.adler_zero is None else s - table.adler_zero
    loops = [
        at(chew_mandelstam(S, mass1=a, mass2=b), s)[0] for a, b in zip(first, second, strict=True)
    ]
    system = np.eye(len(k)) + k @ np.diag(loops)
    expected = np.linalg.solve(system, (g / gaps) @ strengths(table))
    found = at(table.amplitudes(S, strengths(table)), s)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("wave", WAVES)
def test_tables_are_whole(wave: str) -> None:
    table = ld.kopf_k_matrix(wave)
    channels, poles = len(table.channels), len(table.poles)
    assert table.name == wave
    assert "Eur. Phys. J. C 81, 1056" in table.source
    assert np.shape(table.couplings) == (channels, poles)
    assert len(table.pole_masses) == poles
    background = np.array(table.background)
    np.testing.assert_array_equal(background, background.T)
    assert background.shape == (channels, channels)
    masses = [mass**2 for mass in table.pole_masses]
    assert np.isfinite(at(table.amplitudes(S, strengths(table)), *masses)).all()
    if table.adler_zero is not None:
        np.testing.assert_allclose(at(table.k(S), table.adler_zero), 0, atol=1e-18)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_production_is_free(backend: str) -> None:
    """Linear in the strengths: their derivatives are amplitudes of single poles."""
    table = ld.kopf_k_matrix("f0")
    names = [(f"re{pole}", f"im{pole}") for pole in range(5)]
    free = [complex(parameter(re), parameter(im)) for re, im in names]
    model = ld.Model(table.amplitudes(S, free)[2].norm_sqr())
    s = [0.6, 1.0, 1.5, 2.5]
    events = ld.Dataset.from_arrays(scalars={"s": np.array(s)})
    beta = strengths(table)
    point = {re: b.real for (re, _), b in zip(names, beta, strict=True)}
    point |= {im: b.imag for (_, im), b in zip(names, beta, strict=True)}
    execution = ld.Execution(backend=backend)
    values, gradient = model.value_and_gradient(events, point, execution)
    single = np.array([at(table.amplitudes(S, row)[2], *s) for row in np.eye(5)])
    total = beta @ single
    np.testing.assert_allclose(values, abs(total) ** 2, rtol=1e-10)
    for column, name in enumerate(model.parameter_names):
        by = single[int(name[2:])] * (1j if name.startswith("im") else 1)
        slope = 2 * (total.conj() * by).real
        np.testing.assert_allclose(gradient[:, column], slope, rtol=1e-9, atol=1e-12)


def test_unknown_names() -> None:
    with pytest.raises(ld.ExpressionError, match="waves are f0, f2, a0, a2, rho, got 'pi1'"):
        ld.kopf_k_matrix("pi1")
    with pytest.raises(ld.ExpressionError, match="channels are 'pi eta', 'K Kbar', got 'pi pi'"):
        ld.kopf_k_matrix("a0").channel("pi pi")
    with pytest.raises(ld.ExpressionError, match="production must be a vector of 2"):
        ld.kopf_k_matrix("a0").amplitudes(S, [1.0])
