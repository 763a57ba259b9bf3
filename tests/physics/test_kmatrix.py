"""K-matrix family: table, pole space as independent truth, bare poles, derivatives, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from oracle import evaluate

import laddu_dask as ld
from laddu_dask.expr import Expr, scalar
from laddu_dask.physics import (
    blatt_weisskopf_barriers,
    chew_mandelstam,
    f_vector,
    k_matrix,
    p_vector,
    rho,
)

Array = NDArray[Any]
S = scalar("s")
POLES = [1.3, 1.6]
COUPLINGS = [[0.4, 0.2], [0.1, 0.5]]
FIRST, SECOND = [0.2, 0.5], [0.3, 0.5]
BETA = [1 + 0.5j, 0.3]
BACKGROUND = [[0.1, 0.05], [0.05, 0.2]]


def barriers(l: int) -> Expr:
    return blatt_weisskopf_barriers(
        S, channel_mass_1=FIRST, channel_mass_2=SECOND, pole_masses=POLES, l=l
    )


def at(expr: Expr, s: float = 1.5, **parameters: float) -> Array:
    return evaluate(expr, {"s": np.array([s])}, parameters)[..., 0]


def loops() -> list[Expr]:
    return [chew_mandelstam(S, mass1=a, mass2=b) for a, b in zip(FIRST, SECOND, strict=True)]


def amplitude(l: int = 0, phase_space: Any = None) -> Expr:
    options: Any = {"pole_masses": POLES, "couplings": COUPLINGS, "barriers": barriers(l)}
    return f_vector(
        S,
        pole_masses=POLES,
        k=k_matrix(S, **options),
        p=p_vector(S, production=BETA, **options),
        phase_space=loops() if phase_space is None else phase_space,
    )


def in_pole_space(s: float, l: int = 0) -> Array:
    """``F = G (diag(m**2 - s) + G^T C G)^-1 beta``, regular at the bare poles."""
    g = np.array(COUPLINGS) * at(barriers(l), s)
    c = np.diag([at(loop, s) for loop in loops()])
    return g @ np.linalg.solve(np.diag(np.square(POLES) - s) + g.T @ c @ g, BETA)


def test_k_matrix() -> None:
    """Pole-cleared numbers, with and without background."""
    k = k_matrix(S, pole_masses=POLES, couplings=COUPLINGS, barriers=barriers(0))
    np.testing.assert_allclose(at(k), [[0.1772, 0.0614], [0.0614, 0.0581]], rtol=1e-12)
    k = k_matrix(
        S, pole_masses=POLES, couplings=COUPLINGS, barriers=barriers(0), background=BACKGROUND
    )
    expected = [[0.19734, 0.07147], [0.07147, 0.09838]]
    np.testing.assert_allclose(at(k), expected, rtol=1e-12)


def test_barriers() -> None:
    expected = [[0.9925847781382818, 0.9740126595127475], [0.9667525999996274, 0.9157752724633867]]
    np.testing.assert_allclose(at(barriers(1)), expected, rtol=1e-12)
    assert (at(barriers(0)) == 1).all()
    for l in (1, 2):
        for a, mass in enumerate(POLES):
            np.testing.assert_allclose(at(barriers(l), mass**2)[:, a], 1.0, rtol=1e-14)


def test_barriers_of_another_radius() -> None:
    """`q_r` may be a parameter; below threshold factors are principal roots."""
    options: Any = {"channel_mass_1": FIRST, "channel_mass_2": SECOND, "pole_masses": POLES}
    free = blatt_weisskopf_barriers(S, l=1, q_r=ld.parameter("r"), **options)
    np.testing.assert_allclose(at(free, r=0.1973), at(barriers(1)), rtol=1e-14)
    for s in (0.8, 1.5):
        for i in range(2):
            q = ld.q(S, mass1=FIRST[i], mass2=SECOND[i])
            over = [
                ld.blatt_weisskopf_custom(ld.q(x, mass1=FIRST[i], mass2=SECOND[i]), l=1, q_r=0.3)
                for x in (mass**2 for mass in POLES)
            ]
            expected = [at(ld.blatt_weisskopf_custom(q, l=1, q_r=0.3) / x, s) for x in over]
            np.testing.assert_allclose(at(free, s, r=0.3)[i], expected, rtol=1e-13)


def test_p_vector() -> None:
    options: Any = {"pole_masses": POLES, "couplings": COUPLINGS, "barriers": barriers(0)}
    expected = np.array([0.4354 + 0.212j, 0.1345 + 0.053j])
    np.testing.assert_allclose(at(p_vector(S, production=BETA, **options)), expected, rtol=1e-12)
    smooth = p_vector(S, production=BETA, background=[0.5, 1j], **options)
    product = (1.3**2 - 1.5) * (1.6**2 - 1.5)
    np.testing.assert_allclose(at(smooth), expected + product * np.array([0.5, 1j]), rtol=1e-12)


def test_f_vector() -> None:
    """A vector is the diagonal of the matrix."""
    expected = [
        0.7631271749798918 + 0.9412761372588915j,
        0.15210361875942632 + 0.2304326194889859j,
    ]
    np.testing.assert_allclose(at(amplitude()), expected, rtol=1e-12)
    first, second = loops()
    matrix = ld.matrix([[first, 0], [0, second]])
    np.testing.assert_allclose(at(amplitude(phase_space=matrix)), expected, rtol=1e-12)
    np.testing.assert_allclose(
        at(amplitude(phase_space=[[first, 0], [0, second]])), expected, rtol=1e-12
    )


@pytest.mark.parametrize("l", [0, 1, 2])
@pytest.mark.parametrize("s", [0.3, 0.9, 1.5, 2.0, 2.7, 9.0])
def test_pole_space(s: float, l: int) -> None:
    """The same amplitude by another route, below and above both thresholds."""
    np.testing.assert_allclose(at(amplitude(l), s), in_pole_space(s, l), rtol=1e-11)


@pytest.mark.parametrize("shift", [0.0, 1e-15, -1e-12, 1e-10, -1e-9, 1e-8, 3e-8, -1e-7])
@pytest.mark.parametrize("pole", POLES)
def test_bare_poles(pole: float, shift: float) -> None:
    """F is a limit there: finite and right to seven digits, at and around the pole."""
    s = pole**2 + shift
    for l in (0, 1):
        expected = in_pole_space(s, l)
        size = np.abs(expected).max()
        np.testing.assert_allclose(at(amplitude(l), s), expected, rtol=0, atol=3e-7 * size)


def test_unitarity() -> None:
    """With C = -i rho and real production, Im F = T* rho F: the phases are those of scattering."""
    phase_space = [-1j * rho(S, mass1=a, mass2=b) for a, b in zip(FIRST, SECOND, strict=True)]
    options: Any = {"pole_masses": POLES, "couplings": COUPLINGS, "barriers": barriers(0)}
    k = k_matrix(S, **options)
    p = p_vector(S, production=[0.7, -0.4], **options)
    f = at(f_vector(S, pole_masses=POLES, k=k, p=p, phase_space=phase_space))
    product = np.prod(np.square(POLES) - 1.5)
    plain = at(k) / product
    phases = np.array([at(1j * loop) for loop in phase_space]).real
    scattering = np.linalg.solve(np.eye(2) - 1j * plain * phases, plain)
    np.testing.assert_allclose(f.imag, (scattering.conj() * phases) @ f, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_derivatives(backend: str) -> None:
    """Free poles, couplings and production, against central differences."""
    mass, g = ld.parameter("m", initial=1.3), ld.parameter("g", initial=0.4)
    poles = [mass, 1.6]
    couplings = [[g, 0.2], [0.1, 0.5]]
    beta = [ld.complex(ld.parameter("re"), ld.parameter("im")), 0.3]
    options: Any = {
        "pole_masses": poles,
        "couplings": couplings,
        "barriers": blatt_weisskopf_barriers(
            S, channel_mass_1=FIRST, channel_mass_2=SECOND, pole_masses=poles, l=1
        ),
    }
    f = f_vector(
        S,
        pole_masses=poles,
        k=k_matrix(S, **options),
        p=p_vector(S, production=beta, **options),
        phase_space=loops(),
    )
    model = ld.Model(f[1].norm_sqr() + f[0].real())
    events = ld.Dataset.from_arrays(scalars={"s": np.array([0.9, 1.5, 1.685, 2.2])})
    execution = ld.Execution(backend=backend)
    point = {"m": 1.3, "g": 0.4, "re": 1.0, "im": 0.5}
    _, gradient = model.value_and_gradient(events, point, execution)
    for column, name in enumerate(model.parameter_names):
        step = 1e-5
        ends = [
            model.evaluate(events, point | {name: point[name] + h}, execution)
            for h in (-2 * step, -step, step, 2 * step)
        ]
        slope = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * step)
        np.testing.assert_allclose(gradient[:, column], slope, rtol=1e-8, atol=1e-9)


def test_shapes_are_named() -> None:
    """The error names the operation, what is wrong, and the shapes."""
    b = barriers(0)
    square = ld.matrix(BACKGROUND)
    cases: list[tuple[Any, str]] = [
        (
            lambda: k_matrix(S, pole_masses=[1, 2, 3], couplings=COUPLINGS, barriers=b),
            r"k_matrix: couplings need one column per pole \(operands: 2x2 matrix, vector of 3\)",
        ),
        (
            lambda: k_matrix(S, pole_masses=POLES, couplings=COUPLINGS, barriers=[[1, 1]]),
            r"k_matrix: barriers must be a 2x2 matrix \(operands: 1x2 matrix\)",
        ),
        (
            lambda: k_matrix(
                S, pole_masses=POLES, couplings=COUPLINGS, barriers=b, background=[[1, 1]]
            ),
            r"k_matrix: background must be a 2x2 matrix \(operands: 1x2 matrix\)",
        ),
        (
            lambda: p_vector(S, pole_masses=POLES, production=[1], couplings=COUPLINGS, barriers=b),
            r"p_vector: production must be a vector of 2 \(operands: vector of 1\)",
        ),
        (
            lambda: p_vector(
                S,
                pole_masses=POLES,
                production=BETA,
                couplings=COUPLINGS,
                barriers=b,
                background=[1],
            ),
            r"p_vector: background must be a vector of 2 \(operands: vector of 1\)",
        ),
        (
            lambda: f_vector(S, pole_masses=POLES, k=square, p=[1, 2, 3], phase_space=[1, 2, 3]),
            r"f_vector: k must be a 3x3 matrix \(operands: 2x2 matrix\)",
        ),
        (
            lambda: f_vector(S, pole_masses=POLES, k=square, p=[1, 2], phase_space=[1, 2, 3]),
            r"f_vector: phase_space must be a vector of 2 \(operands: vector of 3\)",
        ),
        (
            lambda: blatt_weisskopf_barriers(
                S, channel_mass_1=[1, 2], channel_mass_2=[1], pole_masses=POLES, l=0
            ),
            r"channel masses must be a vector of 2 \(operands: vector of 1\)",
        ),
        (
            lambda: k_matrix(S, pole_masses=square, couplings=COUPLINGS, barriers=b),
            r"expected a vector \(operands: 2x2 matrix\)",
        ),
        (
            lambda: k_matrix(S, pole_masses=POLES, couplings=ld.vector([1, 2]), barriers=b),
            r"expected a matrix \(operands: vector of 2\)",
        ),
        (
            lambda: f_vector(S, pole_masses=POLES, k=square, p=[1, 2], phase_space=S),
            r"f_vector: phase_space must be a vector of 2 \(operands: scalar\)",
        ),
    ]
    for build, problem in cases:
        with pytest.raises(ld.ExpressionError, match=problem):
            build()


def test_orbital_angular_momentum() -> None:
    with pytest.raises(ld.ExpressionError, match="0 <= l <= 8"):
        barriers(9)
