"""Definition of a model parameter."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from laddu_dask.errors import ParameterError

Bounds = tuple[float | None, float | None]


@dataclass(frozen=True)
class ParameterSpec:
    """Everything known about a parameter besides its place in a model.

    Attributes
    ----------
    name
        Unique within a likelihood; two uses of a name must agree in every field.
    initial
        Start value.
    initial_range
        Range for random starts, or None.
    bounds
        Inclusive limits, either end may be None.
    fixed
        A fixed parameter is a constant with value `initial`.
    periodic
        The bounds are one period apart.
    scale
        Typical size of a change, for minimisers; None lets them estimate it.
    unit, latex, description
        For tables and plots.
    """

    name: str
    initial: float = 0.0
    initial_range: tuple[float, float] | None = None
    bounds: Bounds = (None, None)
    fixed: bool = False
    periodic: bool = False
    scale: float | None = None
    unit: str | None = None
    latex: str | None = None
    description: str | None = None


def define_parameter(
    name: str,
    *,
    initial: float | tuple[float, float] | None = None,
    bounds: tuple[float | None, float | None] | None = None,
    fixed: float | None = None,
    periodic: bool = False,
    scale: float | None = None,
    unit: str | None = None,
    latex: str | None = None,
    description: str | None = None,
) -> ParameterSpec:
    """Check a definition and fill its defaults.

    Without `initial` a parameter starts at zero, or in the middle of its bounds when these exclude
    zero (at the finite bound when only one is finite). A pair of numbers is a range for random
    starts; its midpoint is the start value.

    Raises
    ------
    ParameterError
        Empty name, NaN or inverted bounds, start outside the bounds, non-positive scale, periodic
        without two finite bounds, or both `initial` and `fixed`.
    """
    if not isinstance(name, str) or not name:
        raise ParameterError(f"a parameter needs a non-empty name, got {name!r}", name=name)
    low, high = _bounds(name, bounds)
    start_range: tuple[float, float] | None = None
    if fixed is not None:
        if initial is not None:
            raise ParameterError(
                f"parameter {name!r} has both initial={initial!r} and fixed={fixed!r}; give one",
                name=name,
            )
        start = _number(name, "fixed", fixed)
    elif initial is None:
        start = _default_start(low, high)
    elif isinstance(initial, Iterable) and not isinstance(initial, (str, bytes)):
        start_range = _range(name, initial)
        start = 0.5 * (start_range[0] + start_range[1])
    else:
        start = _number(name, "initial", initial)
    for value in (start, *(start_range or ())):
        if (low is not None and value < low) or (high is not None and value > high):
            raise ParameterError(
                f"parameter {name!r}: start {value!r} lies outside its bounds [{low}, {high}]; "
                "move the start or widen the bounds",
                name=name,
                value=value,
            )
    if periodic and (low is None or high is None):
        raise ParameterError(
            f"parameter {name!r} is periodic and needs two finite bounds, got [{low}, {high}]",
            name=name,
        )
    if scale is not None and not _number(name, "scale", scale) > 0:
        raise ParameterError(
            f"parameter {name!r}: scale must be positive, got {scale!r}", name=name
        )
    return ParameterSpec(
        name=name,
        initial=start,
        initial_range=start_range,
        bounds=(low, high),
        fixed=fixed is not None,
        periodic=bool(periodic),
        scale=None if scale is None else float(scale),
        unit=unit,
        latex=latex,
        description=description,
    )


def _number(name: str, field: str, value: object) -> float:
    if not isinstance(value, (numbers.Real, np.bool_)):
        raise ParameterError(
            f"parameter {name!r}: {field} must be a real number, got {value!r}", name=name
        )
    number = float(value)
    if not math.isfinite(number):
        raise ParameterError(f"parameter {name!r}: {field} must be finite, got {number}", name=name)
    return number


def _bounds(name: str, bounds: tuple[float | None, float | None] | None) -> Bounds:
    if bounds is None:
        return (None, None)
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise ParameterError(
            f"parameter {name!r}: bounds must be a pair (low, high), got {bounds!r}", name=name
        ) from None
    ends: list[float | None] = []
    for end, unlimited in ((low, -math.inf), (high, math.inf)):
        if end is None or end == unlimited:
            ends.append(None)
        else:
            ends.append(_number(name, "a bound", end))
    if ends[0] is not None and ends[1] is not None and ends[0] >= ends[1]:
        raise ParameterError(
            f"parameter {name!r}: lower bound {ends[0]} is not below upper bound {ends[1]}",
            name=name,
        )
    return (ends[0], ends[1])


def _range(name: str, pair: Iterable[float]) -> tuple[float, float]:
    ends = [_number(name, "initial range", end) for end in pair]
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise ParameterError(
            f"parameter {name!r}: an initial range is a pair (low, high) with low < high, "
            f"got {tuple(ends)!r}",
            name=name,
        )
    return (ends[0], ends[1])


def _default_start(low: float | None, high: float | None) -> float:
    if (low is None or low <= 0) and (high is None or high >= 0):
        return 0.0
    if low is not None and high is not None:
        return 0.5 * (low + high)
    end = high if low is None else low
    assert end is not None, "without ends the start is 0"
    return end
