"""Parameters whose minimum lies at infinity, and honest ones that look alike from afar."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fit_toys import F64, Bounds, Spec, Toy, quadratic, sum_only

import laddu_dask as ld
from laddu_dask.errors import EvaluationError
from laddu_dask.fit import fit

MESSAGE = "runs away: the likelihood hardly changes within the error of p;"


@pytest.mark.parametrize("bounds", [None, (0.6, None), (0.6, 1e12)])
def test_intensity_dominated_by_a_constant(bounds: Bounds) -> None:
    """x - 1/2 + p loses its x as p grows: the infimum is at infinity, where Minuit sees a minimum.

    The objective less its limit is 0.085 at 10 and 8.5e-6 at 1000.
    """
    x, p = ld.scalar("x"), ld.parameter("p", initial=1.0, bounds=bounds)
    data = ld.Dataset.from_arrays(scalars={"x": np.linspace(0, 1, 100)})
    execution = ld.Execution(backend="interpreter", threads=1)
    term = ld.NLL(ld.Model(x - 0.5 + p), data=data, accepted_mc=data)
    with ld.Likelihood([term], execution) as likelihood:
        assert likelihood.value([1e3]) - likelihood.value([1e6]) == pytest.approx(8.5e-6, rel=1e-2)
        result = likelihood.fit()
    assert not result.converged
    assert result.message.startswith(f"not converged: {MESSAGE}")
    assert np.isnan(result.errors).all()
    assert np.isnan(result.covariance).all()
    assert f"{result.values[0]:.6g} ± nan" in str(result)


def _falling(p: F64) -> tuple[float, F64]:
    """One over a square: one side of the error falls, the other has no value."""
    if p[0] <= -3:
        raise EvaluationError("the intensity is not positive")
    return float((p[0] + 3) ** -2), -2 * (p + 3) ** -3


def _step(p: F64) -> tuple[float, F64]:
    """Falls from 2 to 0: one side of the error falls, the other one rises as promised."""
    root = math.hypot(1.0, p[0])
    # Without cancellation: 1 - p / root.
    height = 1 / (root * (root + p[0])) if p[0] > 0 else 1 - p[0] / root
    return float(height), np.array([-(root**-3)])


@pytest.mark.parametrize("function", [_falling, _step])
@pytest.mark.parametrize("bounds", [None, (-3.0, None)])
def test_slow_approach(function: object, bounds: Bounds) -> None:
    result = fit(Toy(function, [Spec("p", 0.5, bounds)]))  # type: ignore[arg-type]
    assert not result.converged
    assert MESSAGE in result.message
    assert math.isnan(result.errors[0])


def test_exponential_approach() -> None:
    """So fast that curvature drowns in rounding; whatever is said of it, there is no minimum."""
    result = fit(Toy(lambda p: (math.exp(-p[0]), -np.exp(-p)), [Spec("p", 0.5)]))
    assert not result.converged
    assert math.isnan(result.errors[0])


def test_others_keep_their_errors() -> None:
    def function(p: F64) -> tuple[float, F64]:
        value, gradient = _falling(p[:1])
        return value + 4 * (p[1] - 3) ** 2, np.array([*gradient, 8 * (p[1] - 3)])

    result = fit(Toy(function, [Spec("p", 0.5), Spec("q", 1.0)]))
    assert not result.converged
    assert MESSAGE in result.message
    assert np.isnan(result.errors).tolist() == [True, False]
    assert result.errors[1] == pytest.approx(0.5, rel=1e-8)
    assert np.isnan(result.covariance).tolist() == [[True, True], [True, False]]


def test_with_a_flat_direction() -> None:
    """The message of the flat direction stays; the one that ran away is named as well."""

    def function(p: F64) -> tuple[float, F64]:
        fall, slope = _falling(p[:1])
        value, gradient = sum_only(p[1:])
        return fall + value, np.array([*slope, *gradient])

    result = fit(Toy(function, [Spec("p", 0.5), Spec("a", 1.0), Spec("b", 2.0)]))
    assert not result.converged
    assert result.message.startswith("not converged: flat direction: a - b;")
    assert np.isnan(result.errors).all()


@pytest.mark.parametrize("start", [0.0, 1e-9, 1e-3])
@pytest.mark.parametrize("sigma", [1e-4, 1.0, 20.0])
def test_zero_is_an_honest_value(start: float, sigma: float) -> None:
    """A true value of zero is smaller than any error; the objective keeps its promise."""
    toy = Toy(quadratic([0.0], np.array([[2 / sigma**2]]), floor=500.0), [Spec("a", start)])
    result = fit(toy)
    assert result.converged, result.message
    assert result.errors[0] == pytest.approx(sigma, rel=1e-7)


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (-1.0, None), (-0.1, 1.0), (None, 5.0)])
def test_error_wider_than_the_bounds(bounds: Bounds) -> None:
    """The data tell little, but what they tell has a minimum; the error is that of the parabola."""
    toy = Toy(quadratic([0.5], np.array([[2 / 30.0**2]])), [Spec("a", 0.0, bounds)])
    result = fit(toy)
    assert result.converged, result.message
    assert result.values[0] == pytest.approx(0.5, abs=1e-6)
    assert result.errors[0] == pytest.approx(30.0, rel=1e-6)


def test_strongly_correlated() -> None:
    """Along its column of the covariance the objective rises by one, along its axis by far more."""
    covariance = np.array([[400.0, 399.9999], [399.9999, 400.0]])
    toy = Toy(quadratic([1e-3, -1e-3], 2 * np.linalg.inv(covariance)), [Spec("a"), Spec("b")])
    result = fit(toy)
    assert result.converged, result.message
    assert result.errors == pytest.approx([20.0, 20.0], rel=1e-5)


def test_curvature_at_a_limit() -> None:
    """Held by a limit with a small curvature of its own: a minimum, with a wide error."""
    toy = Toy(
        lambda p: (float(p[0] + 1e-6 * p[0] ** 2), 1.0 + 2e-6 * p), [Spec("p", 1.0, (0.0, 5.0))]
    )
    result = fit(toy)
    assert result.converged, result.message
    assert result.limits == ("lower",)
    assert result.errors[0] == pytest.approx(1000.0, rel=1e-4)


def test_one_side_without_a_likelihood() -> None:
    """-2 ln L of a rate 1 + a that one event measures: one error below there is no value.

    Looking there for the verdict is no event of the search, and no warning tells of it.
    """

    def function(p: F64) -> tuple[float, F64]:
        if p[0] <= -1:
            raise EvaluationError("the intensity is not positive")
        return 2 * (p[0] - math.log1p(p[0])), np.array([2 * p[0] / (1 + p[0])])

    toy = Toy(function, [Spec("a", 0.0)])
    result = fit(toy)
    assert min(toy.points)[0] <= -1
    assert result.warnings == ()
    assert result.converged, result.message
    assert result.values[0] == pytest.approx(0.0, abs=1e-9)
    assert result.errors[0] == pytest.approx(1.0, rel=1e-8)
