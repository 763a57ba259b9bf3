"""Fits of objectives whose truth is known, good and bad."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fit_toys import (
    Line,
    Spec,
    Toy,
    line_sample,
    quadratic,
    rosenbrock,
    scale_only,
    sum_normalised,
    sum_only,
)

from laddu_dask.errors import EvaluationError, ParameterError
from laddu_dask.fit import FitResult, fit

BAD_SCALES = np.array([[1e12, 5e5, 0.0], [5e5, 1.0, 1e-7], [0.0, 1e-7, 1e-10]])
BAD_MINIMUM = [1e-5, 3.0, 2e6]


def test_objectives_of_the_line() -> None:
    """Check values of the conventions for NLL and ExtendedNLL of I = 1 + a x."""
    line = Line(
        x=np.array([0.2, 1.0, 2.0]),
        w=np.array([1.0, 0.5, 2.0]),
        y=np.array([0.1, 0.5, 1.5, 3.0]),
        v=np.array([1.0, 2.0, 0.5, 0.25]),
    )
    half = np.array([0.5])
    assert line.nll(half)[0] == pytest.approx(7.967043513054284, rel=1e-14)
    assert line.nll(half)[1][0] == pytest.approx(-1.4263426342634262, rel=1e-13)
    assert line.extended(half)[0] == pytest.approx(6.731325810043405, rel=1e-14)
    assert line.extended(half)[1][0] == pytest.approx(0.1696969696969699, rel=1e-13)


def test_line_minimum_and_exact_error() -> None:
    line = line_sample(0.5, 5000)
    result = fit(Toy(line.nll, [Spec("s", 0.0)]))
    assert result.converged
    assert result.values[0] == pytest.approx(0.5, abs=2e-3)
    # Far below a millionth of a standard deviation away from the root of the gradient.
    gradient = line.nll(result.values)[1][0]
    assert abs(gradient / line.nll_hessian(float(result.values[0]))) < 1e-9
    sigma = math.sqrt(2 / line.nll_hessian(float(result.values[0])))
    assert result.errors[0] == pytest.approx(sigma, rel=1e-9)
    assert result.objective == line.nll(result.values)[0]


def test_doubled_weights_shrink_the_error() -> None:
    """Weighted data: the covariance is 2 H^-1, not corrected."""
    line = line_sample(0.5, 1000)
    twice = Line(line.x, 2 * line.w, line.y, line.v)
    one, two = (fit(Toy(sample.nll, [Spec("s")])) for sample in (line, twice))
    assert two.errors[0] * math.sqrt(2) == pytest.approx(one.errors[0], rel=1e-9)


@pytest.mark.parametrize("start", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (1e-4, -50.0, 1e7)])
@pytest.mark.parametrize("scales", [(None, None, None), (1e-6, 1.0, 1e5)])
def test_badly_scaled_parabola(start: tuple[float, ...], scales: tuple[float | None, ...]) -> None:
    """D6: twenty-two orders of magnitude between the curvatures."""
    specs = [Spec(n, x, scale=s) for n, x, s in zip("uvw", start, scales, strict=True)]
    result = fit(Toy(quadratic(BAD_MINIMUM, BAD_SCALES, floor=7.0), specs))
    truth = 2 * np.linalg.inv(BAD_SCALES)
    assert result.converged
    assert result.objective == pytest.approx(7.0, abs=1e-12)
    assert result.values == pytest.approx(np.array(BAD_MINIMUM), rel=1e-9)
    assert result.errors == pytest.approx(np.sqrt(np.diag(truth)), rel=1e-8)
    assert (result.covariance == result.covariance.T).all()


def test_rosenbrock() -> None:
    result = fit(Toy(rosenbrock, [Spec("x", -1.2), Spec("y", 1.0)]))
    assert result.converged
    assert result.values == pytest.approx([1.0, 1.0], abs=1e-8)
    # 2 H^-1 = [[1, 2], [2, 4.01]]
    assert result.covariance == pytest.approx(np.array([[1.0, 2.0], [2.0, 4.01]]), rel=1e-8)
    assert result.correlation[0, 1] == pytest.approx(2 / math.sqrt(4.01), rel=1e-8)
    assert result.edm < 1e-13


@pytest.mark.parametrize("bounds", [None, (0.0, None), (0.0, 1e9), (-5.0, 1e4)])
@pytest.mark.parametrize("start", [1e-3, 1.0, 40.0, 4000.0])
def test_non_positive_intensity_does_not_end_a_fit(
    start: float, bounds: tuple[float, float | None] | None
) -> None:
    """D5: a step to zero or negative intensity is +inf, the fit goes on."""
    result = fit(Toy(scale_only, [Spec("a", start, bounds)]))
    assert result.converged
    assert result.values[0] == pytest.approx(2.0, abs=1e-9)
    assert result.errors[0] == pytest.approx(2 / math.sqrt(1000), rel=1e-8)
    assert math.isfinite(result.objective)


def test_points_without_a_likelihood_are_reported() -> None:
    """D5: the result says how many there were and what the last one was."""
    result = fit(Toy(scale_only, [Spec("a", 4000.0)]))
    (warning,) = result.warnings
    assert "the search met points without a likelihood" in warning
    assert "data intensity of event 0 is -" in warning


@pytest.mark.parametrize("bounds", [None, (0.0, None)])
def test_start_at_zero_intensity(bounds: tuple[float, None] | None) -> None:
    """D5: a scale that starts at 0 begins beside it, and the result says so."""
    result = fit(Toy(scale_only, [Spec("a", 0.0, bounds)]))
    assert result.converged
    assert result.values[0] == pytest.approx(2.0, abs=1e-9)
    assert "no value at the start; the fit began at (a = 0.1)" in result.warnings[0]


def test_nothing_to_evaluate_anywhere() -> None:
    """NaN everywhere: the error of the start reaches the user with its fields."""

    def hopeless(_p: np.ndarray) -> tuple[float, np.ndarray]:
        raise EvaluationError("term nll: event 3 of data has intensity nan", term="nll", event=3)

    with pytest.raises(EvaluationError, match=r"no fit can start.*a = 1.*event 3") as caught:
        fit(Toy(hopeless, [Spec("a", 1.0)]))
    assert (caught.value.term, caught.value.event) == ("nll", 3)


@pytest.mark.parametrize("start", [(1.0, 2.0), (1.0, 0.0), (0.1, 30.0)])
def test_flat_direction_of_a_sum(start: tuple[float, float]) -> None:
    """D7: I = (a + b) x is singular; errors are unknown, never zero."""
    result = fit(Toy(sum_only, [Spec("a", start[0]), Spec("b", start[1])]))
    assert not result.converged
    assert "flat direction: a - b;" in result.message
    assert result.values.sum() == pytest.approx(2.0, abs=1e-9)
    assert np.isnan(result.errors).all()
    assert np.isnan(result.covariance).all()
    assert result.edm < 1e-13


def test_flat_direction_leaves_the_others_their_errors() -> None:
    """D7: a parameter outside the flat direction keeps its error."""

    def function(p: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = sum_only(p[:2])
        return value + 4 * (p[2] - 3) ** 2, np.array([*gradient, 8 * (p[2] - 3)])

    result = fit(Toy(function, [Spec("a", 1.0), Spec("b", 2.0), Spec("c", -5.0)]))
    assert not result.converged
    assert "flat direction: a - b;" in result.message
    assert np.isnan(result.errors[:2]).all()
    assert result.values[2] == pytest.approx(3.0, abs=1e-9)
    assert result.errors[2] == pytest.approx(0.5, rel=1e-9)


def test_flat_direction_with_coefficients() -> None:
    def function(p: np.ndarray) -> tuple[float, np.ndarray]:
        d = p[0] + 4 * p[1] - 9
        return d * d, np.array([2 * d, 8 * d])

    result = fit(Toy(function, [Spec("mag", 1.0), Spec("rate", 1.0)]))
    assert "flat direction: mag - 0.25 rate;" in result.message


def test_objective_without_dependence() -> None:
    """D7: a normalised likelihood of I = (a + b) x depends on neither parameter."""
    result = fit(Toy(sum_normalised, [Spec("a", 1.0), Spec("b", 2.0)]))
    assert not result.converged
    assert "flat directions: a, b;" in result.message
    assert np.isnan(result.errors).all()


def test_minimum_on_a_bound() -> None:
    """Errors at a limit are printed: own curvature; the others with it held there."""
    specs = [Spec("x", 0.0, (None, 0.5)), Spec("y", 0.0)]
    result = fit(Toy(rosenbrock, specs))
    assert result.converged
    assert result.values[0] == 0.5
    assert result.values[1] == pytest.approx(0.25, abs=1e-9)
    assert result.limits == ("upper", "")
    curvature = 1200 * 0.25 - 400 * 0.25 + 2
    assert result.errors[0] == pytest.approx(math.sqrt(2 / curvature), rel=1e-8)
    assert result.errors[1] == pytest.approx(0.1, rel=1e-8)
    assert result.covariance[0, 1] == result.covariance[1, 0] == 0
    assert "parameter x is at its upper limit" in result.warnings[0]


def test_start_on_a_bound_may_leave_it() -> None:
    result = fit(Toy(rosenbrock, [Spec("x", 3.0, (-3.0, 3.0)), Spec("y", 0.0, (0.0, None))]))
    assert result.converged
    assert result.values == pytest.approx([1.0, 1.0], abs=1e-8)
    assert result.limits == ("", "")
    assert result.warnings == ()


def test_no_evaluation_outside_the_bounds() -> None:
    toy = Toy(rosenbrock, [Spec("x", 0.0, (-2.0, 0.5)), Spec("y", 0.1, (0.05, None))])
    fit(toy)
    points = np.array(toy.points)
    assert points[:, 0].max() <= 0.5
    assert points[:, 0].min() >= -2.0
    assert points[:, 1].min() >= 0.05


def test_straight_slope_to_a_bound() -> None:
    """Held at a limit without any curvature: a minimum, but no error for that parameter."""
    toy = Toy(
        lambda p: (p[0] + p[1] ** 2, np.array([1.0, 2 * p[1]])),
        [Spec("p", 1.0, (0.0, 5.0)), Spec("q", 1.0)],
    )
    result = fit(toy)
    assert result.converged
    assert result.values[0] == 0.0
    assert math.isnan(result.errors[0])
    assert result.errors[1] == pytest.approx(1.0, rel=1e-9)
    assert "it has no error" in result.warnings[0]


def test_periodic_parameter_ends_inside_its_interval() -> None:
    def function(p: np.ndarray) -> tuple[float, np.ndarray]:
        assert -np.pi <= p[0] < np.pi
        return 10 * (1 - float(np.cos(p[0] - 3.0))), 10 * np.sin(p - 3.0)

    spec = Spec("phi", -3.0, (-math.pi, math.pi), periodic=True)
    result = fit(Toy(function, [spec]))
    assert result.converged
    assert result.values[0] == pytest.approx(3.0, abs=1e-9)
    assert result.limits == ("",)
    assert result.errors[0] == pytest.approx(math.sqrt(0.2), rel=1e-8)


def test_saddle_is_not_a_minimum() -> None:
    result = fit(Toy(lambda p: (float(p[0] * p[1]), p[::-1].copy()), [Spec("p"), Spec("q")]))
    assert not result.converged
    assert "not a minimum: the objective falls both ways along p - q" in result.message
    assert np.isnan(result.errors).all()


@pytest.mark.parametrize("start", [1.0, -1e3, 1e12])
def test_objective_without_end(start: float) -> None:
    """The objective falls for ever: whatever stops the search, it is no minimum."""
    toy = Toy(
        lambda p: (p[0] + p[1] ** 2, np.array([1.0, 2 * p[1]])), [Spec("p", start), Spec("q", 1.0)]
    )
    result = fit(toy)
    assert not result.converged
    assert result.message.startswith("not converged: ")
    assert math.isnan(result.errors[0])
    assert result.objective < start


def test_far_start_is_allowed() -> None:
    """A start may be far larger than the default."""
    result = fit(Toy(quadratic([3e20], np.array([[1e-38]])), [Spec("a", 1.0)]), initial=[2e20])
    assert result.converged
    assert result.values[0] == pytest.approx(3e20, rel=1e-9)


def test_limit_of_evaluations() -> None:
    toy = Toy(rosenbrock, [Spec("x", -1.2), Spec("y", 1.0)])
    result = fit(toy, max_evaluations=25)
    assert result.n_evaluations == toy.value_passes + toy.gradient_passes == 25
    assert not result.converged
    assert "stopped at the limit of 25 evaluations" in result.message
    assert result.objective == min(rosenbrock(np.array(p))[0] for p in toy.points)
    assert result.objective == rosenbrock(result.values)[0]
    assert np.isnan(result.errors).all()
    assert math.isnan(result.edm)


def test_no_second_derivative_is_not_converged() -> None:
    """Only the start has a value: the fit ends there and says why."""

    def lonely(p: np.ndarray) -> tuple[float, np.ndarray]:
        if p[0] != 1.0:
            raise EvaluationError("no intensity")
        return 3.0, np.array([0.5])

    result = fit(Toy(lonely, [Spec("a", 1.0)]))
    assert not result.converged
    assert "no second derivative by parameter 0" in result.message
    assert (result.values[0], result.objective) == (1.0, 3.0)
    assert math.isnan(result.errors[0])


def test_repetition_gives_the_same_bits() -> None:
    def once() -> FitResult:
        return fit(Toy(scale_only, [Spec("a", 4000.0)]))

    one, two = once(), once()
    assert one.values.tobytes() == two.values.tobytes()
    assert one.covariance.tobytes() == two.covariance.tobytes()
    assert (one.objective, one.edm, one.n_evaluations) == (
        two.objective,
        two.edm,
        two.n_evaluations,
    )
    assert one.warnings == two.warnings


def test_evaluations_are_counted() -> None:
    toy = Toy(rosenbrock, [Spec("x", -1.2), Spec("y", 1.0)])
    result = fit(toy)
    assert result.n_evaluations == toy.value_passes + toy.gradient_passes
    assert result.seconds > 0
    assert result.evaluations_per_second == result.n_evaluations / result.seconds


def test_unknown_method() -> None:
    with pytest.raises(ParameterError, match="no minimiser 'simplex'; available: migrad"):
        fit(Toy(scale_only, [Spec("a", 1.0)]), method="simplex")


@pytest.mark.parametrize("limit", [0, -3, 2.5, 100.0, "100", True, math.nan])
def test_senseless_limit(limit: Any) -> None:
    toy = Toy(scale_only, [Spec("a", 1.0)])
    with pytest.raises(ParameterError, match="max_evaluations is .*an integer of at least 1") as at:
        fit(toy, max_evaluations=limit)
    assert at.value.option == "max_evaluations"
    assert toy.points == []


def test_limit_of_any_integer_type() -> None:
    toy = Toy(rosenbrock, [Spec("x", -1.2), Spec("y", 1.0)])
    assert fit(toy, max_evaluations=np.int64(25)).n_evaluations == 25


def test_nothing_to_fit() -> None:
    with pytest.raises(ParameterError, match="no free parameter"):
        fit(Toy(lambda p: (1.0, p), []))
