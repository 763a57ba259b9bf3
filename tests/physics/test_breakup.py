"""Breakup momentum and phase space on both sheets."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import evaluate

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import Expr, complex, parameter, scalar
from laddu_dask.physics import Sheet, kallen, q, q_squared, rho

M1, M2 = 0.51, 0.62
S = scalar("s")

TABLE = [
    (1.3, 0.07563893228307206, 0.13267946426137936),
    (1.2, 0.13795342662169216j, 0.251867345486115j),
    (1.0, 0.2615098038315197j, 0.5230196076630395j),
    (0.01, 0.2578996898020622, 5.157993796041243),
    (-0.5, -0.674518528285176j, -1.9078265015456717),
]


def at(expr: Expr, s: float) -> np.complex128:
    return evaluate(expr, {"s": np.array([s])}, {"m1": M1, "m2": M2})[0]


@pytest.mark.parametrize(("s", "momentum", "phase_space"), TABLE)
def test_table(s: float, momentum: np.complex128, phase_space: np.complex128) -> None:
    """Column, literal and parameter inputs, and both sheets."""
    masses = {"mass1": M1, "mass2": M2}
    free = {"mass1": parameter("m1"), "mass2": parameter("m2")}
    for expr in (q(S, **masses), q(s, **masses), q(S, **free)):
        assert at(expr, s) == pytest.approx(momentum, rel=1e-12)
    for expr in (rho(S, **masses), rho(s, **masses), rho(S, **free)):
        assert at(expr, s) == pytest.approx(phase_space, rel=1e-12)
    assert at(q(S, **masses, sheet=Sheet.UNPHYSICAL), s) == pytest.approx(-momentum, rel=1e-12)
    assert at(rho(S, **masses, sheet=Sheet.UNPHYSICAL), s) == pytest.approx(-phase_space, rel=1e-12)
    assert at(q_squared(S, **masses), s) == pytest.approx(momentum**2, rel=1e-12)


def test_complex_s() -> None:
    expected = 0.12474915975127189 + 0.09929039586782522j
    for s in (1.3 + 0.1j, complex(S, 0.1)):
        assert at(q(s, mass1=M1, mass2=M2), 1.3) == pytest.approx(expected, rel=1e-12)


def test_threshold() -> None:
    assert at(q(S, mass1=0.5, mass2=0.5), 1.0) == 0


def test_zero_s_is_not_finite() -> None:
    """D8: nothing plausible at the pole of 1/sqrt(s)."""
    for function in (q, rho):
        assert not np.isfinite(at(function(S, mass1=M1, mass2=M2), 0.0))


def test_kinds() -> None:
    assert kallen(S, mass1=M1, mass2=M2).is_real
    assert q_squared(S, mass1=M1, mass2=M2).is_real
    assert not q(S, mass1=M1, mass2=M2).is_real
    assert not rho(S, mass1=M1, mass2=M2).is_real


@pytest.mark.parametrize("mass", [-0.1, float("nan"), float("inf")])
def test_impossible_masses(mass: float) -> None:
    with pytest.raises(ExpressionError, match="mass2 must be finite and >= 0"):
        q(S, mass1=0.1, mass2=mass)


def test_sheet_must_be_a_sheet() -> None:
    with pytest.raises(TypeError, match=r"Sheet\.PHYSICAL"):
        q(S, mass1=M1, mass2=M2, sheet="physical")  # type: ignore[arg-type]
