"""What all shapes between fixed knots share: their knots, fractions of intervals, and weights.

A shape is linear in its values, ``S(x) = sum_i v_i w_i(x)``, and the weights depend on the event
alone: a model prepares them once, and the values stay parameters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from laddu_dask.expr import Expr, as_expr, maximum, minimum, polar_complex, where
from laddu_dask.expr import sum as sum_expr
from laddu_dask.physics.checks import invalid, literal

#: What a shape is beyond its first and last knot.
Outside = Literal["zero", "hold"]

Values = Iterable[Expr | complex]


def fixed_knots(operation: str, knots: Iterable[float]) -> list[float]:
    """The knots as floats: two or more, finite and rising, or an `ExpressionError`."""
    given = list(knots)
    numbers = [literal(knot) for knot in given]
    fixed = [number for number in numbers if number is not None and math.isfinite(number)]
    if len(fixed) < len(given) or len(fixed) < 2:
        raise invalid(operation, f"needs two or more fixed, finite knots, got {given!r}")
    for low, high in itertools.pairwise(fixed):
        if not low < high:
            raise invalid(operation, f"knots must rise, got {high} after {low}")
    return fixed


def real_point(operation: str, x: Expr | float, outside: str) -> Expr:
    """The variable as an expression, refused if it is complex or `outside` unknown."""
    if outside not in {"zero", "hold"}:
        raise invalid(operation, f"outside must be 'zero' or 'hold', got {outside!r}")
    point = as_expr(x)
    if not point.is_real:
        raise invalid(operation, "x must be real; take real() of a complex expression")
    return point


def as_many(operation: str, what: str, values: Values, count: int) -> list[Expr]:
    """The values as expressions, refused if there are not `count` of them."""
    given = [as_expr(value) for value in values]
    if len(given) != count:
        raise invalid(operation, f"needs {count} {what}, got {len(given)}")
    return given


def fractions_of(x: Expr, knots: Sequence[float]) -> list[Expr]:
    """Place of x in each interval, clipped; exactly 0 and 1 at its ends, NaN for NaN."""
    return [
        maximum(minimum((x - low) / (high - low), 1.0), 0.0)
        for low, high in itertools.pairwise(knots)
    ]


def hats(fractions: Sequence[Expr], cut: Callable[[Expr], Expr]) -> list[Expr]:
    """Weight of each knot in a shape of straight lines: 1 at the knot, 0 at all others."""
    inner = [a - b for a, b in itertools.pairwise(fractions)]
    return [cut(weight) for weight in (1 - fractions[0], *inner, fractions[-1])]


def cut_outside(x: Expr, knots: Sequence[float], outside: Outside) -> Callable[[Expr], Expr]:
    """What makes a weight zero outside the knots, or leaves it as it is."""
    if outside == "hold":
        return lambda weight: weight
    beyond = (x < knots[0]) | (x > knots[-1])
    return lambda weight: where(beyond, 0.0, weight)


def weighted_sum(weights: Sequence[Expr], values: Sequence[Expr]) -> Expr:
    """``sum_i v_i w_i``, from left to right."""
    return sum_expr(value * weight for value, weight in zip(values, weights, strict=True))


def with_phases(
    operation: str,
    count: int,
    values: Values,
    phases: Values | None,
    shape: Callable[[Sequence[Expr]], Expr],
) -> Expr:
    """The shape of the values, or that of magnitudes times ``exp(i shape of phases)``."""
    first = shape(as_many(operation, "values", values, count))
    if phases is None:
        return first
    return polar_complex(first, shape(as_many(operation, "phases", phases, count)).real())
