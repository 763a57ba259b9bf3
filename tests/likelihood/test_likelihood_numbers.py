"""Objectives worked out by hand: I = 1 + a x on a handful of events.

All are -2 ln L without constant terms; nothing is divided by the number or weight of the accepted
events.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import laddu_dask as ld

BACKENDS = pytest.mark.parametrize("backend", ["cpu", "interpreter"])
A = ld.parameter("a", initial=0.5)
X = ld.scalar("x")
DATA = ([0.2, 1, 2], [1, 0.5, 2])
MC = ([0.1, 0.5, 1.5, 3], [1, 2, 0.5, 0.25])


def events(x: Any, weights: Any = None) -> ld.Dataset:
    return ld.Dataset.from_arrays(scalars={"x": x}, weights=weights)


def term(kind: Any = ld.NLL, data: Any = DATA, mc: Any = MC, **options: Any) -> Any:
    model = options.pop("model", ld.Model(1 + A * X))
    return kind(model, data=events(*data), accepted_mc=events(*mc), **options)


@BACKENDS
@pytest.mark.parametrize(
    ("kind", "value", "slope"),
    [
        (ld.NLL, 7.967043513054284, -1.4263426342634262),
        (ld.ExtendedNLL, 6.731325810043405, 0.1696969696969699),
    ],
)
def test_weighted_events(kind: Any, value: float, slope: float, backend: Any) -> None:
    """2 (N ln S - sum w ln I) and 2 (S - sum w ln I), with the derivative by a."""
    with ld.Likelihood([term(kind)], ld.Execution(backend=backend)) as likelihood:
        found, gradient = likelihood.value_and_gradient([0.5])
    assert isinstance(found, float)
    assert found == pytest.approx(value, rel=1e-14)
    assert gradient.shape == (1,)
    assert gradient.dtype == np.float64
    assert gradient == pytest.approx([slope], rel=1e-13)


@BACKENDS
def test_unit_weights(backend: Any) -> None:
    """Data sets without weights count every event once."""
    likelihood = ld.Likelihood([term(data=DATA[:1], mc=MC[:1])], ld.Execution(backend=backend))
    with likelihood:
        assert likelihood.value([0.5]) == pytest.approx(8.888945360938093, rel=1e-14)


@BACKENDS
def test_a_negative_data_weight(backend: Any) -> None:
    """A weight of -0.3, as sideband subtraction gives, enters N and the sum of logarithms."""
    data = ([0.2, 1.0], [1, -0.3])
    with ld.Likelihood([term(data=data)], ld.Execution(backend=backend)) as likelihood:
        assert likelihood.value([0.5]) == pytest.approx(2.319802245858424, rel=1e-14)


def test_a_total_data_weight_below_zero() -> None:
    """Legal: S = 5.2, N = -2, 2 (-2 ln S + 3 ln 1.1 - ln 1.5)."""
    data = ([0.2, 1.0], [-3, 1])
    with ld.Likelihood([term(data=data)]) as likelihood:
        expected = 2 * (-2 * math.log(_integral(0.5)) + 3 * math.log(1.1) - math.log(1.5))
        assert likelihood.value([0.5]) == pytest.approx(expected, rel=1e-14)


def test_negative_accepted_weights() -> None:
    """Legal as long as the whole integral is positive."""
    mc = (MC[0], [1, 2, 0.5, -0.25])
    integral = sum(w * (1 + 0.5 * x) for x, w in zip(*mc, strict=True))
    logs = sum(w * math.log(1 + 0.5 * x) for x, w in zip(*DATA, strict=True))
    with ld.Likelihood([term(ld.ExtendedNLL, mc=mc)]) as likelihood:
        assert likelihood.value([0.5]) == pytest.approx(2 * (integral - logs), rel=1e-14)


def test_zero_intensity_on_accepted_events_is_legal() -> None:
    """Nodes are physics: I = (a x)^2 on accepted x = 1, 0, 3 and data 0.2, 1, 2 at a = 1."""
    with ld.Likelihood(
        [term(data=DATA[:1], mc=([1, 0, 3],), model=ld.Model((A * X) ** 2))]
    ) as likelihood:
        value, gradient = likelihood.value_and_gradient([1.0])
    assert value == pytest.approx(17.480673485460894, rel=1e-14)
    assert gradient == pytest.approx([0.0], abs=1e-14)  # the shape does not depend on a


@BACKENDS
@pytest.mark.parametrize(
    ("kind", "value", "slope"), [(ld.NLL, 0.0, 0.0), (ld.ExtendedNLL, None, None)]
)
def test_no_data(kind: Any, value: float | None, slope: float | None, backend: Any) -> None:
    """No events: the NLL is exactly zero, the extended one is twice the expected number."""
    if value is None:
        value, slope = 2 * _integral(0.5), 2 * sum(w * x for x, w in zip(*MC, strict=True))
    empty = term(kind, data=([], []))
    for partitions in (None, 3):
        execution = ld.Execution(backend=backend, partitions=partitions)
        with ld.Likelihood([empty], execution) as likelihood:
            found, gradient = likelihood.value_and_gradient([0.5])
        assert found == pytest.approx(value, rel=1e-15)
        assert gradient == pytest.approx([slope], rel=1e-15)


def test_the_real_part_of_a_complex_model_enters() -> None:
    """T-33: imaginary parts are ignored, not refused."""
    model = ld.Model(ld.complex(1 + A * X, 3 * A))
    with ld.Likelihood([term(model=model)]) as likelihood:
        value, gradient = likelihood.value_and_gradient([0.5])
    assert value == pytest.approx(7.967043513054284, rel=1e-14)
    assert gradient == pytest.approx([-1.4263426342634262], rel=1e-13)


def test_a_model_without_free_parameters() -> None:
    """T-43: a gradient of shape (0,)."""
    with ld.Likelihood([term(model=ld.Model(1 + 0.5 * X))]) as likelihood:
        value, gradient = likelihood.value_and_gradient()
    assert value == pytest.approx(7.967043513054284, rel=1e-14)
    assert gradient.shape == (0,)
    assert likelihood.parameter_names == ()


def test_a_model_without_columns() -> None:
    """A constant intensity c: 2 (N ln(c V) - N ln c) does not depend on c."""
    with ld.Likelihood([term(model=ld.Model(A * 1.0))]) as likelihood:
        value, gradient = likelihood.value_and_gradient([0.25])
    assert value == pytest.approx(2 * sum(DATA[1]) * math.log(sum(MC[1])), rel=1e-14)
    assert gradient == pytest.approx([0.0], abs=1e-14)


def test_an_expression_is_taken_as_a_model() -> None:
    """`NLL(1 + a x)` means `NLL(Model(1 + a x))`."""
    with ld.Likelihood([term(model=1 + A * X)]) as likelihood:
        assert likelihood.value([0.5]) == pytest.approx(7.967043513054284, rel=1e-14)


def test_a_sum_that_cancels() -> None:
    """The sums are exact: 1e16 in and out leaves the small weight untouched."""
    data = ([0.2, 0.2, 1.0], [1e16, -1e16, 1.0])
    with ld.Likelihood([term(data=data)]) as likelihood:
        expected = 2 * (math.log(_integral(0.5)) - math.log(1.5))
        assert likelihood.value([0.5]) == pytest.approx(expected, rel=1e-14)


def test_hessian() -> None:
    """Second derivative of 2 (N ln S - sum w ln I): 2 (-N (V/S)^2 + sum w (x/I)^2), V = dS/da."""
    with ld.Likelihood([term()]) as likelihood:
        hessian = likelihood.hessian([0.5])
    slope = sum(w * x for x, w in zip(*MC, strict=True))
    curvature = sum(w * (x / (1 + 0.5 * x)) ** 2 for x, w in zip(*DATA, strict=True))
    expected = 2 * (curvature - sum(DATA[1]) * (slope / _integral(0.5)) ** 2)
    assert hessian.shape == (1, 1)
    assert hessian[0, 0] == pytest.approx(expected, rel=1e-14)


def _integral(a: float) -> float:
    return sum(w * (1 + a * x) for x, w in zip(*MC, strict=True))


@pytest.mark.parametrize("side", [0.0, -0.0])
def test_the_sign_of_a_zero_chooses_the_side_of_a_cut(side: float) -> None:
    """T-19: sqrt(-q - 0i) is -i sqrt(q), also where sums are regrouped."""
    sample = ld.Dataset.from_arrays(scalars={"q": [2.0, 1.0, 0.5]})
    root = ld.complex(-ld.scalar("q"), side).sqrt()
    model = ld.Model((root * ld.parameter("p", initial=0.7) + 2j).norm_sqr() + 0.1)
    sign = math.copysign(1.0, side)
    intensities = [(0.7 * sign * math.sqrt(q) + 2) ** 2 + 0.1 for q in (2.0, 1.0, 0.5)]
    expected = 2 * (3 * math.log(sum(intensities)) - sum(map(math.log, intensities)))
    for normalization in ("general", "auto"):
        execution = ld.Execution(normalization=normalization)
        with ld.Likelihood([ld.NLL(model, data=sample, accepted_mc=sample)], execution) as found:
            assert found.value() == pytest.approx(expected, rel=1e-13)
