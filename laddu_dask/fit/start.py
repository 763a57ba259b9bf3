"""Where a fit begins: the user's start checked, and a way out when it has no objective."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from laddu_dask.errors import EvaluationError, ParameterError
from laddu_dask.fit.bounds import Box
from laddu_dask.fit.evaluation import Evaluator, point_text
from laddu_dask.fit.objective import F64, Objective, Parameter

Initial = Mapping[str, float] | Sequence[float] | F64
"""Start values: all of them in order, or some of them by name."""

# Distances of the points tried around an unusable start, in sizes of the parameters.
_DISTANCES = (0.1, 1e-2, 1e-3, 1.0, 10.0)


def start_point(
    objective: Objective, parameters: Sequence[Parameter], initial: Initial | None
) -> F64:
    """Return the start vector of a fit, shape (n_free,).

    Parameters
    ----------
    objective
        The likelihood.
    parameters
        Definitions of its free parameters, in order.
    initial
        None for the defaults; a sequence of all values in order; or a mapping from names to
        values, defaults standing for the names left out.

    Raises
    ------
    ParameterError
        Unknown or fixed name, wrong length, a value that is not a finite number, or a value
        outside its bounds.
    """
    names = objective.parameter_names
    start = np.array(objective.default_parameters, dtype=np.float64)
    if isinstance(initial, Mapping):
        for name, value in initial.items():
            if name not in names:
                raise _unknown(name, objective)
            start[names.index(name)] = _number(name, value)
    elif isinstance(initial, str):
        raise ParameterError("start values must be numbers in order or a mapping, not a string")
    elif initial is not None:
        given = list(initial)
        if len(given) != len(names):
            raise ParameterError(
                f"{len(given)} start values for {len(names)} free parameters: {', '.join(names)}",
                expected=len(names),
                found=len(given),
            )
        start = np.array([_number(n, v) for n, v in zip(names, given, strict=True)])
    for parameter, value in zip(parameters, start.tolist(), strict=True):
        _check(parameter, value)
    return start


def usable_start(
    evaluator: Evaluator, box: Box, start: F64, size: F64, names: tuple[str, ...]
) -> F64:
    """Return `start`, or a near point with an objective when it has none.

    A scale that starts at zero, for instance, makes every intensity zero there and positive beside
    it. Parameters are moved one at a time both ways, then all together, over growing distances;
    of the first distance that finds anything, the lowest point is taken.

    Raises
    ------
    EvaluationError
        The one of the start, when no point around it has an objective either.
    """
    if math.isfinite(evaluator.value_and_gradient(start)[0]):
        return start
    failure = evaluator.last_failure
    tried = 0
    for distance in _DISTANCES:
        best, lowest = start, math.inf
        for direction in _directions(len(start)):
            trial = box.clip(start + distance * size * direction)
            tried += 1
            value = evaluator.value_and_gradient(trial)[0]
            if value < lowest:
                best, lowest = trial, value
        if math.isfinite(lowest):
            return best
    where = point_text(dict(zip(names, start.tolist(), strict=True)))
    reason = failure.error if failure is not None else EvaluationError("no objective")
    raise EvaluationError(
        f"no fit can start: the likelihood has no value at the start {where}, nor at {tried} "
        f"points around it. At the start: {reason}",
        **reason.context,
    ) from reason


def _directions(n: int) -> list[F64]:
    axes = np.eye(n)
    single = [sign * axes[i] for i in range(n) for sign in (1.0, -1.0)]
    return [*single, np.ones(n), -np.ones(n)] if n > 1 else single


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ParameterError(
            f"start of parameter {name!r} is not a number: {value!r}", name=name
        ) from None
    if not math.isfinite(number):
        raise ParameterError(f"start of parameter {name!r} is {number}", name=name)
    return number


def _check(parameter: Parameter, value: float) -> None:
    name = parameter.name
    if not math.isfinite(value):
        raise ParameterError(f"start of parameter {name!r} is {value}", name=name)
    low, high = parameter.bounds or (None, None)
    if low is not None and high is not None and low >= high:
        raise ParameterError(
            f"bounds [{low:g}, {high:g}] of parameter {name!r} leave no room; fix it instead",
            name=name,
        )
    if (low is not None and value < low) or (high is not None and value > high):
        raise ParameterError(
            f"start of parameter {name!r} is {value:.9g}, outside its bounds "
            f"{bounds_text(parameter.bounds)}; give a start inside or other bounds",
            name=name,
            value=value,
        )


def bounds_text(bounds: tuple[float | None, float | None] | None) -> str:
    """Return bounds as an interval: "[0, inf)"; empty when both ends are open."""
    low, high = bounds or (None, None)
    if low is None and high is None:
        return ""
    left = "(-inf" if low is None else f"[{low:.6g}"
    right = "inf)" if high is None else f"{high:.6g}]"
    return f"{left}, {right}"


def _unknown(name: object, objective: Objective) -> ParameterError:
    """The error for a name that is not a free parameter; a likelihood says it in the same words."""
    names = objective.parameter_names
    if any(parameter.name == name for parameter in objective.parameters):
        return ParameterError(f"parameter {name!r} is fixed and takes no value here", name=name)
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return ParameterError(
        f"unknown parameter {name!r}{hint} (free parameters: {', '.join(names)})", name=name
    )
