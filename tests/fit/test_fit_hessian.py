"""Second derivatives from differences of the exact gradient."""

from __future__ import annotations

import numpy as np
import pytest
from fit_toys import Spec, Toy, line_sample, quadratic, rosenbrock, scale_only

from laddu_dask.errors import EvaluationError
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
