"""Parameters whose minimum lies at infinity.

An objective that falls ever more slowly looks like a minimum from close by: the gradient vanishes
and the curvature is positive, as exp(-p) has it. Only the error gives it away. It promises that the
objective is higher by one that far away; where the parameter has run away, hardly anything happens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from laddu_dask.fit.bounds import Box, Mask
from laddu_dask.fit.evaluation import Evaluator, rounding
from laddu_dask.fit.objective import F64, Parameter

# An error this many times larger than value, start and scale of its parameter is put to the test.
_SUSPICIOUS = 10.0
# Part of the promised rise that has to be there.
_ENOUGH = 0.1
# Where bounds allow only a small part of the error on one side, the other side decides.
_COMPARABLE = 0.5


def runaways(
    evaluator: Evaluator,
    parameters: Sequence[Parameter],
    box: Box,
    start: F64,
    point: F64,
    value: float,
    covariance: F64,
) -> Mask:
    """Return which parameters have errors that the objective does not know of, shape (n,).

    Parameters
    ----------
    evaluator
        The objective; asked twice for each parameter of suspiciously large error.
    parameters, box
        Definitions of the parameters and their limits.
    start
        Where the fit began, shape (n,).
    point, value
        Where it ended, and the objective there.
    covariance
        The claim to be tested, shape (n, n); parameters of unknown variance and those on a limit
        are not looked at.

    Notes
    -----
    From the end point one error along the parameter's column of the covariance (the others follow
    it as far as they are correlated) the objective of a parabola is higher by one, after a part t
    of the way by t^2. Limits may leave room only for a part. A side without a likelihood says
    nothing. A parameter has run away if the objective rises by less than a tenth of what was
    promised on every side that counts, or if it is lower on one of them.
    """
    variance = np.diag(covariance)
    found = np.zeros(len(point), dtype=bool)
    reach = evaluator.reach
    lower, upper = np.maximum(box.lower, -reach), np.minimum(box.upper, reach)
    # A parameter on a limit is where it is because of the limit, and the result says so.
    at_limit = (point <= box.lower) | (point >= box.upper)
    for i in np.flatnonzero(np.isfinite(variance) & (variance > 0) & ~at_limit):
        error = math.sqrt(variance[i])
        if error <= _size(parameters[int(i)], float(start[i]), float(point[i])):
            continue
        direction = np.where(np.isfinite(covariance[:, i]), covariance[:, i], 0.0) / error
        parts = [_part(point, sign * direction, lower, upper) for sign in (1.0, -1.0)]
        rises = []
        for sign, part in zip((1.0, -1.0), parts, strict=True):
            promised = part * part
            if part < _COMPARABLE * max(parts) or promised <= 100 * rounding(value):
                continue
            rise = evaluator.probe(box.clip(point + sign * part * direction)) - value
            if math.isfinite(rise):
                rises.append((rise, promised))
        falls = any(rise < -rounding(value) for rise, _ in rises)
        hardly = bool(rises) and all(rise < _ENOUGH * promised for rise, promised in rises)
        found[i] = falls or hardly
    return found


def faded(evaluator: Evaluator, box: Box, start: F64, point: F64, value: float, idle: Mask) -> Mask:
    """Return which parameters have lost all influence on the way, shape (n,).

    Parameters
    ----------
    evaluator
        The objective; asked once for each idle parameter.
    box
        Limits.
    start
        Where the fit began, shape (n,).
    point, value
        Where it ended, and the objective there.
    idle
        Parameters without curvature at the end.

    Notes
    -----
    One that never had any influence can go back to its start at no cost; one that has run to where
    it has none cannot.
    """
    found = np.zeros(len(point), dtype=bool)
    at_limit = (point <= box.lower) | (point >= box.upper)
    for i in np.flatnonzero(idle & ~at_limit):
        back = point.copy()
        back[i] = start[i]
        found[i] = evaluator.probe(back) - value > 100 * rounding(value)
    return found


def _size(parameter: Parameter, start: float, value: float) -> float:
    """The largest error that needs no test."""
    low, high = parameter.bounds or (None, None)
    width = math.inf if low is None or high is None else high - low
    return min(_SUSPICIOUS * max(abs(value), abs(start), parameter.scale or 0.0), width)


def _part(point: F64, step: F64, lower: F64, upper: F64) -> float:
    """The largest part of `step`, at most one, that stays within the limits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(step > 0, (upper - point) / step, (lower - point) / step)
    return float(np.clip(np.where(step == 0, 1.0, room), 0.0, 1.0).min())
