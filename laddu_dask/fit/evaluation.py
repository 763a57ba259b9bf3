"""Evaluations of an objective as a minimiser wants them: counted, cached, never raising.

A point where an intensity is not positive is not a mistake while a minimiser is exploring: its
objective is +inf. It is recorded, because a fit that ends beside such points should say so.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from laddu_dask.errors import EvaluationError
from laddu_dask.fit.bounds import Box
from laddu_dask.fit.objective import (
    F64,
    Comparable,
    Objective,
    TwiceDifferentiable,
    free_parameters,
)
from laddu_dask.fit.progress import Progress, ProgressState, quiet

# A line search of MIGRAD asks for the gradient at one of its last few points.
_REMEMBERED = 8
# A parameter this many times its start or its scale has run away; no model is asked there.
_RUNAWAY = 1e15


class Failure(NamedTuple):
    """A point without a usable objective, and why."""

    point: dict[str, float]
    error: EvaluationError


class Change(NamedTuple):
    """How much the objective changes between two points.

    Attributes
    ----------
    amount
        The change.
    rounding
        How much of it may be rounding alone.
    """

    amount: float
    rounding: float

    @property
    def falls(self) -> bool:
        """Whether the objective is lower, beyond rounding."""
        return self.amount < -self.rounding

    @property
    def rises(self) -> bool:
        """Whether it is higher, beyond rounding."""
        return self.amount > self.rounding


class EvaluationLimit(Exception):  # noqa: N818 - a signal to stop, not an error of the user
    """The allowed number of evaluations is used up."""


class _Known(NamedTuple):
    value: float
    gradient: F64 | None


class Evaluator:
    """Objective seen by a minimiser.

    Parameters
    ----------
    objective
        The likelihood.
    box
        Its limits; periodic parameters are wrapped before each evaluation.
    progress
        Called after each evaluation.
    limit
        Largest number of evaluations, or None.
    start
        Where the search begins, shape (n,); the defaults of the objective by default. Parameters
        1e15 times larger than there have run away and are not evaluated.
    clock
        Source of the time in seconds.

    Notes
    -----
    Asking for the value and then the gradient at a point known with its gradient costs nothing.
    `value` alone runs the cheaper value-only pass: MIGRAD spends most of its calls in line
    searches and looks at the gradient of one point in several.
    """

    def __init__(
        self,
        objective: Objective,
        box: Box,
        progress: Progress = quiet,
        limit: int | None = None,
        start: F64 | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.stage = "start"
        self.n_evaluations = 0
        self.n_failures = 0
        self.last_failure: Failure | None = None
        self.best_value = math.inf
        self.best_point: F64 | None = None
        self._objective = objective
        self._names = objective.parameter_names
        self._box = box
        self._progress = progress
        self._limit = limit
        self._clock = clock
        self._began = clock()
        self._latest = math.inf
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        home = objective.default_parameters if start is None else start
        scales = [parameter.scale or 1.0 for parameter in free_parameters(objective)]
        self.reach: F64 = _RUNAWAY * np.maximum(np.maximum(np.abs(home), scales), 1.0)

    @property
    def seconds(self) -> float:
        """Time since this evaluator was made."""
        return self._clock() - self._began

    def value(self, point: F64) -> float:
        """Return the objective at `point`, +inf where it has none."""
        at = self._box.wrap(point)
        known = self._recall(at)
        if known is not None:
            return known.value
        return self._record(at, self._attempt(at, with_gradient=False)).value

    def value_and_gradient(self, point: F64) -> tuple[float, F64]:
        """Return the objective and its gradient; +inf and NaN where there is none."""
        at = self._box.wrap(point)
        known = self._recall(at)
        if known is None or (known.gradient is None and math.isfinite(known.value)):
            known = self._record(at, self._attempt(at, with_gradient=True))
        if known.gradient is None:
            return known.value, np.full(at.shape, np.nan)
        return known.value, known.gradient.copy()

    def change(self, to: F64, since: F64) -> Change:
        """Return how much the objective changes from one point to another of finite objective.

        An objective that knows its differences is asked for this one. It has just been at both
        points and has their sums, so this is no evaluation; and the sums being exact, a sixteenth
        of what values may be off by is left for what events contribute.
        """
        before, after = self.value(since), self.value(to)
        unsure = rounding(before)
        if not isinstance(self._objective, Comparable):
            return Change(after - before, unsure)
        to, since = self._box.wrap(to), self._box.wrap(since)
        return Change(self._objective.delta(to.copy(), since.copy()), unsure / 16)

    def probe(self, point: F64) -> float:
        """Return the objective as `value` does, at a point that the search itself does not want.

        That there is none is no news about the search and is not recorded.
        """
        met = self.n_failures, self.last_failure
        try:
            return self.value(point)
        finally:
            self.n_failures, self.last_failure = met

    def gradient(self, point: F64) -> F64:
        """Return the gradient at `point`; NaN where there is none."""
        return self.value_and_gradient(point)[1]

    def hessian(self, point: F64) -> F64 | None:
        """Return the exact Hessian at `point`, or None when the objective does not know it.

        Counts as one evaluation: it is one pass over the data.

        Raises
        ------
        EvaluationError
            There is none at `point`.
        """
        if not isinstance(self._objective, TwiceDifferentiable):
            return None
        self._take_one()
        matrix = np.array(self._objective.hessian(self._box.wrap(point).copy()), dtype=np.float64)
        self._progress(self.state())
        return matrix

    def state(self) -> ProgressState:
        """Return what progress displays show."""
        seconds = self.seconds
        return ProgressState(
            stage=self.stage,
            n_evaluations=self.n_evaluations,
            objective=self._latest,
            best=self.best_value,
            seconds=seconds,
            evaluations_per_second=self.n_evaluations / seconds if seconds > 0 else math.nan,
        )

    def finish(self) -> ProgressState:
        """Tell the progress display that the fit is over and return the last state."""
        self.stage = "done"
        state = self.state()
        self._progress(state)
        return state

    def _recall(self, at: F64) -> _Known | None:
        key = at.tobytes()
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
        return known

    def _attempt(self, at: F64, *, with_gradient: bool) -> _Known:
        away = [n for n, far in zip(self._names, ~(np.abs(at) <= self.reach), strict=True) if far]
        if away:
            self.n_failures += 1
            error = EvaluationError(f"parameter {', '.join(away)} has run away", names=away)
            self.last_failure = Failure(self._named(at), error)
            return _Known(math.inf, None)
        gradient: F64 | None = None
        self._take_one()
        try:
            # A copy, so that an objective that keeps or changes its argument cannot reach ours.
            if with_gradient:
                value, derivatives = self._objective.value_and_gradient(at.copy())
                gradient = np.array(derivatives, dtype=np.float64)
            else:
                value = self._objective.value(at.copy())
            value = float(value)
            self._check(at, value, gradient)
        except EvaluationError as error:
            self.n_failures += 1
            self.last_failure = Failure(self._named(at), error)
            return _Known(math.inf, None)
        return _Known(value, gradient)

    def _take_one(self) -> None:
        if self._limit is not None and self.n_evaluations >= self._limit:
            raise EvaluationLimit
        self.n_evaluations += 1

    def _check(self, at: F64, value: float, gradient: F64 | None) -> None:
        if not math.isfinite(value):
            raise EvaluationError(f"the objective is {value} at {self._text(at)}", value=value)
        if gradient is None or np.isfinite(gradient).all():
            return
        bad = [n for n, d in zip(self._names, gradient, strict=True) if not math.isfinite(d)]
        raise EvaluationError(
            f"the derivative by {', '.join(bad)} is not finite at {self._text(at)}", names=bad
        )

    def _record(self, at: F64, known: _Known) -> _Known:
        self._latest = known.value
        self._known[at.tobytes()] = known
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        if known.value < self.best_value:
            self.best_value = known.value
            self.best_point = at.copy()
        self._progress(self.state())
        return known

    def _named(self, at: F64) -> dict[str, float]:
        return dict(zip(self._names, at.tolist(), strict=True))

    def _text(self, at: F64) -> str:
        return point_text(self._named(at))


def rounding(value: float) -> float:
    """Return the change of an objective of this value that may be rounding alone."""
    return 16 * math.ulp(max(abs(value), 1.0))


def point_text(point: dict[str, float]) -> str:
    """Return a parameter point as text, for messages."""
    return "(" + ", ".join(f"{name} = {value:.6g}" for name, value in point.items()) + ")"
