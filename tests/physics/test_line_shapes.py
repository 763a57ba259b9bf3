"""Breit-Wigner amplitudes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracle import evaluate

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import complex, parameter, scalar
from laddu_dask.expr.node import walk
from laddu_dask.physics import (
    blatt_weisskopf,
    breit_wigner,
    q,
    relativistic_breit_wigner,
    relativistic_breit_wigner_custom,
)

S = scalar("s")
POLE = {"mass": 1.0, "width": 0.1, "mass1": 0.2, "mass2": 0.3}
VALUES = {"m": 1.0, "w": 0.1, "a": 0.2, "b": 0.3, "r": 0.1973}
FREE: dict[str, Any] = {
    "mass": parameter("m"),
    "width": parameter("w"),
    "mass1": parameter("a"),
    "mass2": parameter("b"),
}


def at(expr: Any, s: float, **values: float) -> np.complex128:
    return evaluate(expr, {"s": np.array([s])}, VALUES | values)[0]


def test_breit_wigner() -> None:
    for expr in (
        breit_wigner(S, mass=1.0, width=0.1),
        breit_wigner(1.1, **{k: FREE[k] for k in ("mass", "width")}),
    ):
        assert at(expr, 1.1) == pytest.approx(-5 + 5j, rel=1e-13)
    assert at(breit_wigner(S, mass=1.0, width=-0.1), 1.1) == pytest.approx(-5 - 5j, rel=1e-13)
    assert at(breit_wigner(1.1 + 0.2j, mass=1.0, width=0.1), 0.0) == pytest.approx(
        1 / (1 - 1.1 - 0.3j), rel=1e-13
    )


@pytest.mark.parametrize(
    ("l", "expected"),
    [
        (0, -4.923079030645095 + 4.999408281434281j),
        (1, -4.819407418948968 + 4.996737567620446j),
        (2, -4.505779371245825 + 4.975514643744302j),
        (3, -3.847065092866496 + 4.865258585102461j),
        (4, -3.063589423282284 + 4.6098062951035015j),
    ],
)
def test_running_width(l: int, expected: np.complex128) -> None:
    """Column, literal, parameter and complex inputs agree."""
    for expr in (
        relativistic_breit_wigner(S, **POLE, l=l),
        relativistic_breit_wigner(1.1, **POLE, l=l),
        relativistic_breit_wigner(S, **FREE, l=l),
        relativistic_breit_wigner(complex(S, 0.0), **FREE, l=l),
        relativistic_breit_wigner_custom(S, **POLE, l=l, q_r=parameter("r")),
    ):
        assert at(expr, 1.1) == pytest.approx(expected, rel=1e-13)


def test_custom_width() -> None:
    bare = relativistic_breit_wigner_custom(S, **POLE, l=1, barrier_factors=False)
    assert at(bare, 1.1) == pytest.approx(-4.297349067542942 + 4.950381971839878j, rel=1e-13)
    wide = relativistic_breit_wigner_custom(S, **POLE, l=1, q_r=1.0)
    assert at(wide, 1.1) == pytest.approx(-4.399676651245005 + 4.963830363433036j, rel=1e-13)


@pytest.mark.parametrize("l", range(9))
@pytest.mark.parametrize("barriers", [True, False])
@pytest.mark.parametrize("s", [1.1, 0.7, 0.26, 0.2, 0.02, 0.005, -0.4])
def test_textbook_form(l: int, barriers: bool, s: float) -> None:
    """The form with few roots equals the formula as written, also where the width is imaginary."""
    masses = {"mass1": 0.2, "mass2": 0.3}
    ratio = q(S, **masses) / q(1.0, **masses)
    factor = ratio ** (2 * l + 1)
    if barriers:
        b = blatt_weisskopf(q(S, **masses), l=l) / blatt_weisskopf(q(1.0, **masses), l=l)
        factor = ratio * b * b
    width = 0.1 * (1 / S.sqrt()) * factor
    textbook = at(1 / (1 - S - 1j * width), s)
    expr = relativistic_breit_wigner_custom(S, **POLE, l=l, barrier_factors=barriers)
    assert at(expr, s) == pytest.approx(textbook, rel=2e-12)


def test_below_threshold_the_amplitude_is_real() -> None:
    for l, expected in ((0, 1.1674651233807258), (1, 1.2987564310193591)):
        value = at(relativistic_breit_wigner(S, **POLE, l=l), 0.2)
        assert value.real == pytest.approx(expected, rel=1e-13)
        assert value.imag == 0
    assert at(relativistic_breit_wigner(S, **POLE, l=1), 0.25) == pytest.approx(4 / 3, rel=1e-12)


def test_pole_below_threshold() -> None:
    """q0 is imaginary, and the width above threshold too."""
    pole = {"mass": 0.45, "width": 0.1, "mass1": 0.2, "mass2": 0.3}
    phase_space = (1.1 - 0.25) ** 0.5 * (1.1 - 0.01) ** 0.5 / 1.1
    at_pole = 1j * ((0.25 - 0.2025) * (0.2025 - 0.01)) ** 0.5 / 0.2025
    expected = 1 / (0.2025 - 1.1 - 0.45j * 0.1 * phase_space / at_pole)
    for expr in (
        relativistic_breit_wigner(S, **pole),
        relativistic_breit_wigner(S, **(FREE | {"mass": parameter("m")})),
    ):
        assert at(expr, 1.1, m=0.45) == pytest.approx(expected, rel=1e-13)


def test_zero_s_is_not_finite() -> None:
    """D8: nothing plausible at s = 0."""
    assert not np.isfinite(at(relativistic_breit_wigner(S, **POLE, l=0), 0.0))


@pytest.mark.parametrize("l", [0, 2, 8])
def test_one_root_per_event(l: int) -> None:
    """Barriers add no root, and all that depends on the event is a function of s alone."""
    expr = relativistic_breit_wigner(S, **(POLE | {k: FREE[k] for k in ("mass", "width")}), l=l)
    free: dict[int, bool] = {}
    for node in walk(expr.node):
        free[id(node)] = node.op == "parameter" or any(free[id(arg)] for arg in node.args)
    event_roots = [n for n in walk(expr.node) if n.op == "sqrt" and not free[id(n)]]
    assert len(event_roots) == 1
    mixed = [
        n for n in walk(expr.node) if free[id(n)] and any(leaf.op == "column" for leaf in walk(n))
    ]
    # m**2 - s, W, its two parts and the sign, complex, sum, reciprocal.
    assert len(mixed) == 8


@pytest.mark.parametrize("l", [9, -1, 1.5])
def test_l_out_of_range(l: Any) -> None:
    with pytest.raises(ExpressionError, match="relativistic Breit-Wigner"):
        relativistic_breit_wigner(S, **POLE, l=l)


def test_impossible_literals() -> None:
    with pytest.raises(ExpressionError, match="mass must be positive"):
        relativistic_breit_wigner(S, **(POLE | {"mass": 0.0}))
    with pytest.raises(ExpressionError, match="mass1 must be finite"):
        relativistic_breit_wigner(S, **(POLE | {"mass1": -0.2}))
    with pytest.raises(ExpressionError, match="q_r must be finite"):
        relativistic_breit_wigner_custom(S, **POLE, l=1, q_r=0.0)
    relativistic_breit_wigner_custom(S, **POLE, l=1, barrier_factors=False, q_r=0.0)
