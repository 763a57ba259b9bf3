"""Evaluations as a minimiser sees them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fit_toys import Function, Spec, Toy, quadratic, scale_only

from laddu_dask.errors import EvaluationError
from laddu_dask.fit.bounds import Box
from laddu_dask.fit.evaluation import EvaluationLimit, Evaluator
from laddu_dask.fit.objective import F64, free_parameters
from laddu_dask.fit.progress import ProgressState

PARABOLA = quadratic([1.0, 2.0], np.diag([2.0, 4.0]), floor=5.0)


def evaluator_of(function: Function, *specs: Spec, **options: object) -> tuple[Evaluator, Toy]:
    toy = Toy(function, specs)
    return Evaluator(toy, Box.of(free_parameters(toy)), **options), toy  # type: ignore[arg-type]


def test_value_and_gradient_at_one_point_cost_one_pass() -> None:
    evaluator, toy = evaluator_of(PARABOLA, Spec("a"), Spec("b"))
    point = np.array([0.0, 0.0])
    value, gradient = evaluator.value_and_gradient(point)
    assert (value, gradient.tolist()) == (14.0, [-2.0, -8.0])
    assert evaluator.value(point) == 14.0
    assert evaluator.gradient(point).tolist() == [-2.0, -8.0]
    assert (toy.value_passes, toy.gradient_passes, evaluator.n_evaluations) == (0, 1, 1)


def test_value_alone_takes_the_cheaper_pass() -> None:
    evaluator, toy = evaluator_of(PARABOLA, Spec("a"), Spec("b"))
    point = np.array([0.0, 0.0])
    assert [evaluator.value(point) for _ in range(3)] == [14.0] * 3
    assert (toy.value_passes, toy.gradient_passes) == (1, 0)


def test_results_cannot_be_changed_from_outside() -> None:
    evaluator, _ = evaluator_of(PARABOLA, Spec("a"), Spec("b"))
    point = np.zeros(2)
    evaluator.gradient(point)[:] = 99
    assert evaluator.gradient(point).tolist() == [-2.0, -8.0]


def test_non_positive_intensity_is_infinite_and_recorded() -> None:
    """D5, decision of the conventions: +inf for the optimiser."""
    evaluator, toy = evaluator_of(scale_only, Spec("a"))
    bad = np.array([-1.0])
    assert evaluator.value(bad) == math.inf
    value, gradient = evaluator.value_and_gradient(bad)
    assert value == math.inf
    assert np.isnan(gradient).all()
    assert evaluator.n_failures == evaluator.n_evaluations == toy.value_passes == 1
    assert evaluator.last_failure is not None
    assert evaluator.last_failure.point == {"a": -1.0}
    assert evaluator.last_failure.error.event == 0
    assert evaluator.best_point is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_is_a_failure(value: float) -> None:
    evaluator, _ = evaluator_of(lambda p: (value, np.zeros(1)), Spec("a"))
    assert evaluator.value(np.array([3.0])) == math.inf
    assert evaluator.last_failure is not None
    assert str(value) in str(evaluator.last_failure.error)
    assert "a = 3" in str(evaluator.last_failure.error)


def test_a_gradient_that_is_no_number_names_the_parameter() -> None:
    evaluator, _ = evaluator_of(lambda p: (1.0, np.array([0.0, np.nan])), Spec("a"), Spec("b"))
    assert evaluator.value_and_gradient(np.zeros(2))[0] == math.inf
    assert evaluator.last_failure is not None
    assert "derivative by b" in str(evaluator.last_failure.error)


def test_other_errors_pass() -> None:
    def broken(_p: object) -> tuple[float, np.ndarray]:
        raise ZeroDivisionError("a bug")

    evaluator, _ = evaluator_of(broken, Spec("a"))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        evaluator.value(np.zeros(1))


def test_limit_stops_before_the_pass() -> None:
    evaluator, toy = evaluator_of(PARABOLA, Spec("a"), Spec("b"), limit=2)
    evaluator.value(np.array([0.0, 0.0]))
    evaluator.value(np.array([1.0, 0.0]))
    evaluator.value(np.array([0.0, 0.0]))
    with pytest.raises(EvaluationLimit):
        evaluator.value(np.array([2.0, 0.0]))
    assert toy.value_passes == 2
    assert evaluator.best_value == 13.0
    assert evaluator.best_point is not None
    assert evaluator.best_point.tolist() == [1.0, 0.0]


def test_periodic_parameters_are_wrapped_for_evaluation() -> None:
    evaluator, toy = evaluator_of(
        lambda p: (float(np.cos(p[0])), -np.sin(p)),
        Spec("phi", bounds=(-np.pi, np.pi), periodic=True),
    )
    evaluator.value(np.array([np.pi + 0.5]))
    evaluator.value(np.array([0.3]))
    assert toy.points[0][0] == pytest.approx(-np.pi + 0.5, abs=1e-15)
    assert toy.points[1][0] == 0.3


def test_progress_is_told_after_each_pass() -> None:
    states: list[ProgressState] = []
    ticks = iter(range(100))
    evaluator, _ = evaluator_of(
        scale_only, Spec("a"), progress=states.append, clock=lambda: float(next(ticks))
    )
    for a in (1.0, -1.0, 2.0, 2.0):
        evaluator.value(np.array([a]))
    evaluator.finish()
    assert [s.n_evaluations for s in states] == [1, 2, 3, 3]
    assert states[1].objective == math.inf
    assert states[1].best == states[0].best == states[0].objective
    assert states[2].best < states[0].best
    assert [s.stage for s in states] == ["start", "start", "start", "done"]
    assert states[2].evaluations_per_second == 3 / states[2].seconds


def test_errors_of_the_objective_are_kept_whole() -> None:
    error = EvaluationError("term nll: bad", term="nll", event=7)

    def bad(_p: object) -> tuple[float, np.ndarray]:
        raise error

    evaluator, _ = evaluator_of(bad, Spec("a"))
    evaluator.value(np.zeros(1))
    assert evaluator.last_failure is not None
    assert evaluator.last_failure.error is error


def test_runaway_points_are_not_evaluated() -> None:
    evaluator, toy = evaluator_of(PARABOLA, Spec("a", 2.0), Spec("b", scale=1e3))
    assert evaluator.value(np.array([1e15, 1e17])) < math.inf
    for point in ([3e15, 0.0], [0.0, 2e18], [math.nan, 0.0], [0.0, -math.inf]):
        assert evaluator.value(np.array(point)) == math.inf
    assert len(toy.points) == evaluator.n_evaluations == 1
    assert evaluator.n_failures == 4
    assert evaluator.last_failure is not None
    assert "parameter b has run away" in str(evaluator.last_failure.error)


class Offset(Toy):
    """A parabola far above zero: values keep nothing below one, differences everything."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(quadratic([1.0], np.diag([2.0]), floor=2.0**52), [spec])
        self.compared = 0

    def delta(self, p: F64, q: F64) -> float:
        self.compared += 1
        return float((p[0] - 1.0) ** 2 - (q[0] - 1.0) ** 2)


def test_changes_that_values_do_not_show() -> None:
    """Below the last places of the objective an exact difference still tells up from down."""
    near, far = np.array([1.25]), np.array([1.0 + 2**0.5])
    exact = Offset(Spec("a"))
    evaluator = Evaluator(exact, Box.of(free_parameters(exact)))
    change = evaluator.change(far, near)
    assert change.amount == pytest.approx(2.0 - 0.0625, rel=1e-15)
    assert (change.rises, change.falls) == (True, False)
    back = evaluator.change(near, far)
    assert back.amount == -change.amount
    assert (back.rises, back.falls) == (False, True)
    assert exact.compared == 2
    assert evaluator.n_evaluations == 2  # it has been at both points
    plain, _ = evaluator_of(quadratic([1.0], np.diag([2.0]), floor=2.0**52), Spec("a"))
    unsure = plain.change(far, near)
    assert unsure.amount == 2.0
    assert (unsure.rises, unsure.falls) == (False, False)


def test_periodic_parameters_are_compared_where_they_are_evaluated() -> None:
    exact = Offset(Spec("a", bounds=(0.0, 4.0), periodic=True))
    evaluator = Evaluator(exact, Box.of(free_parameters(exact)))
    assert evaluator.change(np.array([5.0]), np.array([2.0])).amount == -1.0
