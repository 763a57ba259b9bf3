"""MIGRAD with the exact gradient in internal units, then Newton steps to the minimum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from iminuit import Minuit

from laddu_dask.fit.barrier import Barrier
from laddu_dask.fit.bounds import Box
from laddu_dask.fit.evaluation import Evaluator
from laddu_dask.fit.newton import Polished, polish
from laddu_dask.fit.objective import F64, Parameter
from laddu_dask.fit.scaling import units, widest

# -2 ln L: one standard deviation changes it by one.
ERRORDEF = 1.0
# Minuit's own Hessian, which higher strategies compute, would be thrown away: the Newton steps that
# follow have an exact one.
STRATEGY = 0
# Vertical distance with which a minimum counts as found: 1e-4 standard deviations.
EDM_GOAL = 1e-8
_ATTEMPTS = 3


def minimize(
    evaluator: Evaluator, parameters: Sequence[Parameter], box: Box, start: F64
) -> Polished:
    """Find the minimum of the objective from a point where it is finite.

    Parameters
    ----------
    evaluator
        The objective.
    parameters
        Definitions of the free parameters.
    box
        Their limits.
    start
        Start inside `box`, shape (n,).

    Notes
    -----
    Whether the result is a minimum is judged elsewhere. When MIGRAD and Newton stop far from one,
    they begin again there with units taken from the curvature, at most twice.
    """
    point = start
    unit = units(parameters, start, evaluator.gradient(start))
    for attempt in range(_ATTEMPTS):
        migrad(evaluator, box, point, unit)
        best = evaluator.best_point
        # The lowest value may have been seen where the gradient does not exist.
        if best is not None and math.isfinite(evaluator.value_and_gradient(best)[0]):
            point = box.clip(best)
        found = polish(evaluator, point, box, unit, widest(parameters, unit, start, point))
        free = ~box.blocked(found.point, found.gradient)
        remaining = found.free_spectrum(free).distance(found.gradient[free])
        if remaining <= EDM_GOAL or attempt == _ATTEMPTS - 1:
            break
        point, unit = found.point, found.sigma
    return found


def migrad(evaluator: Evaluator, box: Box, start: F64, unit: F64) -> None:
    """Run MIGRAD once; the evaluator remembers the lowest point it saw.

    Minuit sees x / unit. Its own verdict is not used: MIGRAD also stops happily on a wall and in a
    valley without end.
    """
    evaluator.stage = "migrad"
    begin = _inside(evaluator, box, start, unit)
    value, gradient = evaluator.value_and_gradient(begin)
    barrier = Barrier(begin / unit, value, gradient * unit)

    def physical(u: F64) -> F64 | None:
        point = u * unit
        return box.clip(point) if np.isfinite(point).all() else None

    def objective(u: F64) -> float:
        point = physical(u)
        value = math.inf if point is None else evaluator.value(point)
        return value if math.isfinite(value) else barrier.value(u)

    def slope(u: F64) -> F64:
        point = physical(u)
        if point is None:
            return barrier.gradient(u)
        value, gradient = evaluator.value_and_gradient(point)
        if not math.isfinite(value):
            return barrier.gradient(u)
        barrier.move(u, value, gradient * unit)
        return gradient * unit

    minuit = Minuit(objective, begin / unit, grad=slope)
    minuit.errordef = ERRORDEF
    minuit.strategy = STRATEGY
    # Minuit's complaints on standard error say nothing that our verdict does not.
    minuit.print_level = -1
    minuit.limits = list(zip(box.lower / unit, box.upper / unit, strict=True))
    minuit.errors = np.ones_like(unit)
    # One pass: what it leaves is work for Newton's steps, not for the same method again.
    minuit.migrad(iterate=1, use_simplex=False)


def _inside(evaluator: Evaluator, box: Box, start: F64, unit: F64) -> F64:
    """Move a start on a limit a little inwards.

    Minuit maps limits through a sine, whose slope vanishes there: it would never leave.
    """
    low, high = box.faces(start)
    if not (low | high).any():
        return start
    nudge = 0.1 * np.minimum(unit, box.upper - box.lower)
    moved = start + np.where(low, nudge, 0.0) - np.where(high, nudge, 0.0)
    return moved if math.isfinite(evaluator.value(moved)) else start
