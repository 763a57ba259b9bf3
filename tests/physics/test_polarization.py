"""Linearly polarised photoproduction."""

from __future__ import annotations

import numpy as np
import pytest
from lattice import events
from oracle import evaluate

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import complex, parameter, scalar
from laddu_dask.physics import (
    Vec3,
    Vec4,
    linearly_polarized_intensity,
    production_plane_angle,
    spherical_harmonic,
    to_rest_frame,
    zlm,
)


def test_angle_is_that_of_the_polarisation_minus_that_of_the_resonance() -> None:
    """For a beam along z, in the laboratory and in the CM frame alike."""
    columns = events(200)
    columns["angle"] = np.linspace(-1, 2, 200)
    beam, target, x = (
        Vec4.event("beam"),
        Vec4.event("target"),
        Vec4.event("ks1") + Vec4.event("ks2"),
    )
    expected = np.exp(1j * (columns["angle"] - columns["cm_phi"]))
    cm = beam + target
    for frame in ((beam, x), (to_rest_frame(beam, cm), to_rest_frame(x, cm))):
        angle = production_plane_angle(frame[0].momentum(), frame[1].momentum(), scalar("angle"))
        assert angle.is_real
        np.testing.assert_allclose(np.exp(1j * evaluate(angle, columns)), expected, atol=1e-13)


def test_polarisation_in_and_across_the_plane() -> None:
    beam, x = Vec3.z_axis(), Vec3(0.3, 0.0, 0.9)
    assert evaluate(production_plane_angle(beam, x, 0.0))[0] == 0
    across = evaluate(production_plane_angle(beam, x, np.pi / 2))[0]
    assert across == pytest.approx(np.pi / 2, rel=1e-14)


def test_no_plane_no_angle() -> None:
    """D8: a resonance along the beam gives NaN."""
    assert np.isnan(evaluate(production_plane_angle(Vec3.z_axis(), Vec3(0.0, 0.0, 2.0), 0.3))).all()


def test_zlm_is_a_rotated_harmonic() -> None:
    z = evaluate(zlm(2, 1, costheta=0.3, phi=0.5, polarization_angle=0.4))[0]
    y = evaluate(spherical_harmonic(2, 1, costheta=0.3, phi=0.5))[0]
    assert z == pytest.approx(y * np.exp(-0.4j), rel=1e-14)
    with pytest.raises(ExpressionError, match=r"\|m\| <= l"):
        zlm(1, 2, costheta=0.3, phi=0.5, polarization_angle=0.4)


def test_intensity() -> None:
    c = [0.7 - 0.2j, 0.3 + 0.5j, -0.4 + 0.1j]
    z = [0.2 + 0.9j, -0.6 + 0.3j, 0.5 - 0.8j]
    p = 0.35
    amplitudes = [complex(scalar(f"r{i}"), scalar(f"i{i}")) for i in range(3)]
    columns = {f"r{i}": [z[i].real] for i in range(3)} | {f"i{i}": [z[i].imag] for i in range(3)}
    intensity = linearly_polarized_intensity(
        parameter("P"),
        positive=[(c[0], amplitudes[0]), (c[1], amplitudes[1])],
        negative=[(c[2], amplitudes[2])],
    )
    expected = (
        (1 + p) * abs(c[0] * z[0].real + c[1] * z[1].real) ** 2
        + (1 - p) * abs(c[0] * z[0].imag + c[1] * z[1].imag) ** 2
        + (1 - p) * abs(c[2] * z[2].real) ** 2
        + (1 + p) * abs(c[2] * z[2].imag) ** 2
    )
    assert intensity.is_real
    assert evaluate(intensity, columns, {"P": p})[0] == pytest.approx(expected, rel=1e-14)


def test_unpolarised_wave_has_no_azimuthal_memory() -> None:
    columns = {"angle": np.linspace(0, 6, 7)}
    z = zlm(2, 1, costheta=0.3, phi=0.5, polarization_angle=scalar("angle"))
    flat = evaluate(linearly_polarized_intensity(0.0, negative=[(2.0, z)]), columns)
    y = evaluate(spherical_harmonic(2, 1, costheta=0.3, phi=0.5))[0]
    np.testing.assert_allclose(flat, 4 * abs(y) ** 2, rtol=1e-13)


def test_full_polarisation_modulates_by_reflectivity() -> None:
    """An S wave of positive reflectivity follows 1 + cos(2 Phi), one of negative its opposite."""
    angle = np.linspace(0, 6, 7)
    z = zlm(0, 0, costheta=0.3, phi=0.5, polarization_angle=scalar("angle"))
    for waves, sign in (({"positive": [(1.0, z)]}, 1), ({"negative": [(1.0, z)]}, -1)):
        value = evaluate(linearly_polarized_intensity(1.0, **waves), {"angle": angle})
        expected = (1 + sign * np.cos(2 * angle)) / (4 * np.pi)
        np.testing.assert_allclose(value, expected, atol=1e-15)


def test_wrong_arguments() -> None:
    z = zlm(0, 0, costheta=0.3, phi=0.5, polarization_angle=0.1)
    with pytest.raises(ExpressionError, match="at least one wave"):
        linearly_polarized_intensity(0.3)
    with pytest.raises(ExpressionError, match=r"must be in \[0, 1\], got 35"):
        linearly_polarized_intensity(35, positive=[(1.0, z)])
    with pytest.raises(ExpressionError, match="pair"):
        linearly_polarized_intensity(0.3, positive=[z])  # type: ignore[list-item]
