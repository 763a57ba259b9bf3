"""Second derivatives from differences of the exact gradient."""

from __future__ import annotations

import numpy as np
import pytest
from fit_toys import Spec, Toy, line_sample, quadratic, rosenbrock, scale_only

from laddu_dask.errors import EvaluationError
from laddu_dask.fit import fit
from laddu_dask.fit.hessian import hessian


def test_parabola_of_very_different_scales() -> None:
    truth = np.array([[1e12, 5e5, 0.0], [5e5, 1.0, 1e-7], [0.0, 1e-7, 1e-10]])
    toy = Toy(quadratic([1e-5, 3.0, 2e6], truth), [Spec("u"), Spec("v"), Spec("w")])
    found = hessian(toy, np.array([1.5e-5, 2.0, 1e6]))
    size = np.sqrt(np.outer(np.diag(truth), np.diag(truth)))
    assert (np.abs(found - truth) <= 1e-9 * size).all()
    assert (found == found.T).all()


@pytest.mark.parametrize("slope", [-0.5, 0.3, 0.5])
def test_likelihood_of_a_line(slope: float) -> None:
    """Toy I = 1 + s x: nine digits of the exact second derivative."""
    line = line_sample(0.5, 5000)
    found = hessian(Toy(line.nll, [Spec("s")]), np.array([slope]))
    assert found[0, 0] == pytest.approx(line.nll_hessian(slope), rel=1e-9)


def test_cancelling_curvature() -> None:
    """Far from the minimum the terms of the curvature cancel to a thousandth."""
    line = line_sample(0.5, 5000)
    found = hessian(Toy(line.nll, [Spec("s")]), np.array([2.0]))
    assert found[0, 0] == pytest.approx(line.nll_hessian(2.0), rel=1e-8)


def test_away_from_the_minimum_and_indefinite() -> None:
    toy = Toy(rosenbrock, [Spec("x"), Spec("y")])
    found = hessian(toy, np.array([0.0, 1.0]))
    assert found == pytest.approx(np.array([[-398.0, 0.0], [0.0, 200.0]]), rel=1e-9, abs=1e-7)


@pytest.mark.parametrize(
    ("bounds", "at"), [((2.0, None), 2.0), ((None, 2.0), 2.0), ((0.0, 2.001), 2.0)]
)
def test_no_evaluation_beyond_a_bound(bounds: tuple[float | None, float | None], at: float) -> None:
    toy = Toy(scale_only, [Spec("a", bounds=bounds)])
    found = hessian(toy, np.array([at]))
    # d2/da2 of -2 * 1000 ln a
    assert found[0, 0] == pytest.approx(2000 / at**2, rel=1e-8)
    low, high = bounds
    assert all(low is None or p[0] >= low for p in toy.points)
    assert all(high is None or p[0] <= high for p in toy.points)


def test_beside_a_region_without_intensity() -> None:
    """The objective ends just below the point: the formula turns to the other side."""

    def half(p: np.ndarray) -> tuple[float, np.ndarray]:
        if p[0] < 1.0:
            raise EvaluationError("no intensity")
        return float(np.exp(p[0])), np.exp(p)

    found = hessian(Toy(half, [Spec("a")]), np.array([1.0]))
    assert found[0, 0] == pytest.approx(np.e, rel=1e-8)


def test_a_point_alone_has_no_hessian() -> None:
    def lonely(p: np.ndarray) -> tuple[float, np.ndarray]:
        if p[0] != 1.0:
            raise EvaluationError("no intensity")
        return 0.0, np.zeros(1)

    with pytest.raises(EvaluationError, match="no second derivative by parameter 0.*either side"):
        hessian(Toy(lonely, [Spec("a")]), np.array([1.0]))


def test_a_point_without_objective_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="not positive"):
        hessian(Toy(scale_only, [Spec("a")]), np.array([-1.0]))


def test_parameter_without_influence_has_zero_rows() -> None:
    toy = Toy(lambda p: (p[0] ** 2, np.array([2 * p[0], 0.0])), [Spec("a"), Spec("idle")])
    assert hessian(toy, np.array([0.3, 0.7])) == pytest.approx(
        np.array([[2.0, 0.0], [0.0, 0.0]]), rel=1e-10
    )


class Knowing(Toy):
    """The curved valley, with its second derivatives."""

    def __init__(self, **options: tuple[float | None, float | None]) -> None:
        super().__init__(rosenbrock, [Spec(n, -1.0, bounds=options.get(n)) for n in "xy"])
        self.hessians = 0

    def hessian(self, p: np.ndarray) -> np.ndarray:
        self.hessians += 1
        x, y = p
        return np.array([[1200 * x * x - 400 * y + 2, -400 * x], [-400 * x, 200.0]])


def test_a_fit_takes_the_hessian_that_the_objective_knows() -> None:
    """Errors are those of the exact matrix, and each one is a single pass over the data."""
    exact, other = Knowing(), Toy(rosenbrock, [Spec("x", -1.0), Spec("y", -1.0)])
    found, by_differences = fit(exact), fit(other)
    assert found.converged
    assert by_differences.converged
    np.testing.assert_allclose(found.values, [1.0, 1.0], atol=1e-9)
    expected = 2 * np.linalg.inv([[802.0, -400.0], [-400.0, 200.0]])
    np.testing.assert_allclose(found.covariance, expected, rtol=1e-7)
    assert exact.hessians >= 1
    assert found.n_evaluations == exact.hessians + exact.value_passes + exact.gradient_passes
    assert found.n_evaluations < by_differences.n_evaluations


def test_a_hessian_counts_for_the_limit() -> None:
    """Stopped in front of it, a fit has no errors and says why."""
    unlimited = Knowing()
    passes = fit(unlimited).n_evaluations
    for limit in range(1, passes):
        result = fit(Knowing(), max_evaluations=limit)
        assert not result.converged
        assert result.n_evaluations <= limit
        assert "limit" in result.message


def test_an_exact_hessian_on_a_bound_needs_no_room() -> None:
    """Where x is held at its limit the other parameter still has its exact error."""
    toy = Knowing(x=(None, 0.5))
    result = fit(toy)
    assert result.converged
    np.testing.assert_allclose(result.values, [0.5, 0.25], atol=1e-9)
    assert result.limits == ("upper", "")
    assert result.errors[1] == pytest.approx(np.sqrt(2 / 200), rel=1e-9)
    assert max(p[0] for p in toy.points) <= 0.5
