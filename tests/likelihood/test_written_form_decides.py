"""D8, D10: no identity is applied that fails for zeros, infinities or NaN of the written form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import laddu_dask as ld

P = ld.parameter("p", initial=0.5)
X, Y, Z = ld.scalar("x"), ld.scalar("y"), ld.scalar("z")
BACKENDS = pytest.mark.parametrize("backend", ["cpu", "interpreter"])


def sample(**bad: float) -> ld.Dataset:
    """Three ordinary events and a fourth with the given numbers."""
    ordinary = {"x": [0.5, 1.5, 2.5], "y": [1.0, 2.0, 4.0], "z": [1.0, 1.0, 2.0]}
    return ld.Dataset.from_arrays(
        scalars={name: [*column, bad.get(name, 1.0)] for name, column in ordinary.items()}
    )


@BACKENDS
@pytest.mark.parametrize(
    ("expr", "bad", "culprit"),
    [
        (1 + P * (X / X), {"x": 0.0}, "x / x"),
        (1 + P * X * Y / X, {"x": 0.0}, "((p * x) * y) / x"),
        (1 + P * Z * (X - X), {"x": math.inf}, "x"),
        (1 + P * Y * 0 * X, {"x": math.nan}, "x"),
        (1 + 0 / (P * X), {"x": 0.0}, "0.0 / (p * x)"),
        ((1 / X - 1 / X) * P + Y, {"x": 0.0}, "1.0 / x"),
        (1 + P * Y * (X.log() - X.log()).real(), {"x": 0.0}, "log(x)"),
        (2 + P * (X * Y) / (X * Y), {"x": 1e200, "y": 1e200}, "x * y"),
        (2 + P * ((X * 250).exp() / (X * 250).exp()), {"x": 4.0}, "exp(x * 250.0)"),
        ((P * X).norm_sqr() / X**2 + Y, {"x": 0.0}, "norm_sqr(p * x) / (x**2)"),
    ],
)
def test_an_event_is_not_finite_in_either_form(
    expr: ld.Expr, bad: dict[str, float], culprit: str, backend: Any
) -> None:
    """a/a, 0 a, 0/a and a - a stay what they are, and the part that went bad is named."""
    events = sample(**bad)
    value = ld.Model(expr).evaluate(events, execution=ld.Execution(backend=backend))
    assert np.isfinite(value[:3]).all()
    assert not np.isfinite(value[3])
    for normalization in ("auto", "general"):
        execution = ld.Execution(backend=backend, normalization=normalization)
        term = ld.NLL(ld.Model(expr), data=events, accepted_mc=sample())
        with (
            ld.Likelihood([term], execution) as likelihood,
            pytest.raises((ld.EvaluationError, ld.DataError)) as caught,
        ):
            likelihood.value()
        assert caught.value.event == 3
        assert culprit in str(caught.value)


@BACKENDS
@pytest.mark.parametrize(
    ("expr", "x", "y"),
    [
        # Regrouped, these would leave the range: a product of two parts that only meet there.
        ((P * X * 1e-200) * (Y * 1e-200) * 1e300 + 1, 1e200, 1e-100),
        ((P * (X * 1e-160)) ** 2 * (Y * 1e160) + 1, 1e160, 1e-160),
        (P / (X * 1e300) * (Y / 1e-300) + 1, 1e-300, 1e-300),
        (1 + (P * (X * 1e-200)) ** 2 * Y, 1e190, 1e20),
        (1 + (P * (X * (1e-200 + 1e-200j))).norm_sqr() * Y, 1e190, 1e20),
        (1 + P * (1e-200 * X) * (1e-200 * Y) * Z, 1e200, 1e200),
        (1 + (P * X + Y) / (1 + (P * X - Y) ** 2), 1e140, -1e140),
    ],
)
def test_a_finite_written_form_has_its_value(
    expr: ld.Expr, x: float, y: float, backend: Any
) -> None:
    """All intermediates as written are finite: so is the sum, and it is theirs."""
    events = sample(x=x, y=y)
    execution = ld.Execution(backend=backend)
    values = ld.Model(expr).evaluate(events, execution=execution, real=True)
    assert np.isfinite(values).all()
    assert (values > 0).all()
    term = ld.NLL(ld.Model(expr), data=events, accepted_mc=events)
    with ld.Likelihood([term], execution) as likelihood:
        found = likelihood.value()
    expected = 2 * (4 * math.log(math.fsum(values)) - math.fsum(np.log(values)))
    assert found == pytest.approx(expected, rel=1e-12)


@BACKENDS
def test_overflow_is_infinity(backend: str) -> None:
    """D10: exp(1000) is inf without an imaginary part, and 1/0 beside an imaginary part too."""
    assert ld.Model(ld.as_expr(1000).exp()).evaluate() == complex(math.inf, 0.0)
    assert ld.Model(ld.parameter("a").exp()).evaluate(parameters=[1000.0]) == math.inf
    events = ld.Dataset.from_arrays(scalars={"x": [1000.0, 0.0]})
    execution: Any = ld.Execution(backend=backend)
    values = ld.Model(X.exp()).evaluate(events, execution=execution)
    assert (values[0].real, values[0].imag) == (math.inf, 0.0)
    values = ld.Model(1 / X + 1j * P).evaluate(events, execution=execution)
    assert (values[1].real, values[1].imag) == (math.inf, 0.5)
    values = ld.Model((1 / X) * (2 + 1j)).evaluate(events, execution=execution)
    assert (values[1].real, values[1].imag) == (math.inf, math.inf)


@BACKENDS
def test_frames_without_an_axis(backend: str) -> None:
    """D8: a particle at rest has no direction, and a hint along the axis makes no plane."""
    px, py, pz = (ld.scalar(name) for name in ("px", "py", "pz"))
    v = ld.Vec3(px, py, pz)
    events = ld.Dataset.from_arrays(scalars={"px": [0.3, 0.0], "py": [0.4, 0.0], "pz": [1.2, 0.0]})
    execution: Any = ld.Execution(backend=backend)
    values = ld.Model(v.costheta()).evaluate(events, execution=execution)
    assert values[0] == pytest.approx(1.2 / 1.3, rel=1e-15)
    assert np.isnan(values[1])
    plane = v.cross(2 * v).unit()
    for component in (plane.x, plane.y, plane.z):
        expr = component() if callable(component) else component
        assert np.isnan(ld.Model(expr).evaluate(events, execution=execution)).all()
