"""Newton steps with our own Hessian, to go from a minimiser's stopping point to the minimum.

A minimiser stops when it can promise a small vertical distance; the position is then only good to
a small fraction of a standard deviation. The gradient is exact, so a few Newton steps find the
minimum to rounding.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from laddu_dask.fit.bounds import Box, Mask
from laddu_dask.fit.evaluation import Evaluator
from laddu_dask.fit.hessian import Curvature, best, near
from laddu_dask.fit.objective import F64
from laddu_dask.fit.spectrum import Spectrum

# Vertical distance below which another Hessian cannot help: 1e-9 standard deviations.
_EXACT = 1e-18
# Vertical distance that is good enough to stop looking for a better Hessian.
_CLOSE = 1e-13
_ROUNDS = 8
_CHORD_STEPS = 8
_HALVINGS = 12


class Polished(NamedTuple):
    """Where Newton's steps ended.

    Attributes
    ----------
    point, value, gradient
        The last accepted point.
    curvature
        Hessian there, of all parameters: exact, or by fourth-order differences.
    sigma
        Each parameter's own standard deviation sqrt(2 / |H_ii|), from the last walk.
    widest
        Largest standard deviation that counts as known.
    """

    point: F64
    value: float
    gradient: F64
    curvature: Curvature
    sigma: F64
    widest: F64

    def free_spectrum(self, free: Mask) -> Spectrum:
        """Return the spectrum of the parameters selected by `free`."""
        return Spectrum.of(self.curvature.block(free), self.value, self.widest[free])


def polish(evaluator: Evaluator, start: F64, box: Box, guess: F64, widest: F64) -> Polished:
    """Walk from `start` to the minimum and return it with its Hessian.

    Parameters
    ----------
    evaluator
        The objective.
    start
        A point of finite objective inside `box`, shape (n,).
    box
        Limits that no step crosses.
    guess, widest
        Guessed and largest standard deviation of each parameter, shape (n,).

    Notes
    -----
    A step is taken when it lowers the objective by more than its rounding error, or keeps it
    within that error and shortens the gradient in the metric of the Hessian. A Hessian serves
    several steps as long as each shortens the distance clearly; only when they stall is it
    measured again, by the cheap formula. The returned one is measured at the end.
    """
    walk = _Walk(evaluator, start, box, widest)
    sigma = guess
    for _ in range(_ROUNDS):
        evaluator.stage = "hessian"
        curvature, sigma = near(evaluator, walk.point, box, sigma, widest)
        evaluator.stage = "newton"
        begin = walk.point
        distance = walk.follow(curvature)
        if distance <= _CLOSE or not evaluator.change(walk.point, begin).falls:
            break
    evaluator.stage = "hessian"
    curvature = best(evaluator, walk.point, box, sigma)
    if walk.distance(curvature) > _EXACT:
        evaluator.stage = "newton"
        before = walk.distance(curvature)
        walk.follow(curvature)
        if before > _CLOSE:
            evaluator.stage = "hessian"
            curvature = best(evaluator, walk.point, box, sigma)
    return Polished(walk.point, walk.value, walk.gradient, curvature, sigma, widest)


class _Walk:
    """The current point and the rule by which it moves."""

    def __init__(self, evaluator: Evaluator, start: F64, box: Box, widest: F64) -> None:
        self._evaluator = evaluator
        self._box = box
        self._widest = widest
        self.point = start.copy()
        self.value, self.gradient = evaluator.value_and_gradient(self.point)

    def distance(self, curvature: Curvature) -> float:
        """Return the estimated vertical distance of the point to the minimum."""
        free = ~self._box.blocked(self.point, self.gradient)
        return self._spectrum(curvature, free).distance(self.gradient[free])

    def follow(self, curvature: Curvature) -> float:
        """Take steps with one Hessian while they help; return the remaining distance."""
        remaining = self.distance(curvature)
        for _ in range(_CHORD_STEPS):
            if remaining <= _EXACT or not self._step(curvature, remaining):
                break
            before, remaining = remaining, self.distance(curvature)
            if remaining > 0.1 * before and remaining < 1.0:
                break
        return remaining

    def _spectrum(self, curvature: Curvature, free: Mask) -> Spectrum:
        return Spectrum.of(curvature.block(free), self.value, self._widest[free])

    def _step(self, curvature: Curvature, remaining: float) -> bool:
        step = self._newton_step(curvature)
        for halving in range(_HALVINGS):
            trial = self._box.clip(self.point + step * 0.5**halving)
            value, gradient = self._evaluator.value_and_gradient(trial)
            if not math.isfinite(value):
                continue
            change = self._evaluator.change(trial, self.point)
            still_free = ~self._box.blocked(trial, gradient)
            rest = self._spectrum(curvature, still_free).distance(gradient[still_free])
            if change.falls or (not change.rises and rest < remaining):
                self.point, self.value, self.gradient = trial, value, gradient
                return True
            if remaining < _CLOSE:
                # This close a shorter step fails for the same reason: rounding.
                return False
        return False

    def _newton_step(self, curvature: Curvature) -> F64:
        """Return the step to the minimum of the parabola inside the box.

        A parameter that would pass its limit goes just to it, and the others are sought again
        with it there.
        """
        free = ~self._box.blocked(self.point, self.gradient)
        step = np.zeros_like(self.point)
        while free.any():
            slope = self.gradient[free] + curvature.matrix[np.ix_(free, ~free)] @ step[~free]
            step[free] = self._spectrum(curvature, free).descent(slope)
            goal = self.point + step
            outside = free & ((goal < self._box.lower) | (goal > self._box.upper))
            if not outside.any():
                break
            step[outside] = (self._box.clip(goal) - self.point)[outside]
            free = free & ~outside
        return step
