r"""Shapes without a formula: interpolation between fixed knots whose values are free.

Every shape is linear in its values, ``S(x) = sum_i v_i w_i(x)``, and the weights depend on the
event alone: a model prepares them once, and the values stay parameters. In each interval
``[k_j, k_j+1]`` of length h_j the fraction ``f_j = (x - k_j) / h_j``, clipped to [0, 1], gives

    linear:  w_i = f_(i-1) - f_i   (f_(-1) = 1, f_(n-1) = 0),
    cubic:   S = sum_i v_i w_i + sum_j (h_j**2 / 6) [b(1 - f_j) M_j + b(f_j) M_j+1],
             b(t) = t**3 - t,

with the second derivatives M at the knots, which continuity of the first derivative and two
conditions at the ends make a fixed linear map of the values.

Source: C. de Boor, A Practical Guide to Splines (1978), chapter IV; the use for partial waves of
unknown shape, E. M. Aitala et al., Phys. Rev. D 73, 032004 (2006).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from laddu_dask.expr import Expr, as_expr, maximum, minimum, polar_complex, where
from laddu_dask.expr import sum as sum_expr
from laddu_dask.physics.checks import invalid, literal

#: What a shape is beyond its first and last knot.
Outside = Literal["zero", "hold"]

Values = Iterable[Expr | complex]


def piecewise_constant(
    x: Expr | float,
    *,
    edges: Iterable[float],
    values: Values,
    phases: Values | None = None,
    outside: Outside = "zero",
) -> Expr:
    """A step function: ``values[i]`` for ``edges[i] <= x < edges[i + 1]``.

    The last interval includes its upper edge. One value fewer than edges; all else as
    `piecewise_linear`.
    """
    ends = _knots("piecewise_constant", edges)
    point = _point("piecewise_constant", x, outside)
    last = len(ends) - 2

    def weight(i: int) -> Expr:
        upper = ends[i + 1]
        # A NaN satisfies no comparison and comes out as itself.
        if i == last and outside == "hold":
            inside = where((point < upper) | (point >= upper), 1.0, point)
        elif i == last:
            inside = where(point <= upper, 1.0, where(point > upper, 0.0, point))
        else:
            inside = where(point < upper, 1.0, where(point >= upper, 0.0, point))
        return inside if i == 0 and outside == "hold" else where(point < ends[i], 0.0, inside)

    weights = [weight(i) for i in range(last + 1)]
    return _combined(
        "piecewise_constant", len(weights), values, phases, lambda v: _linear(weights, v)
    )


def piecewise_linear(
    x: Expr | float,
    *,
    knots: Iterable[float],
    values: Values,
    phases: Values | None = None,
    outside: Outside = "zero",
) -> Expr:
    """Straight lines from ``(knots[i], values[i])`` to the next.

    Parameters
    ----------
    x
        A real expression, usually a mass; NaN gives NaN.
    knots
        Fixed positions, rising, at least two.
    values
        One for each knot: parameters, numbers or other expressions, real or complex. Complex ones
        are interpolated in their real and imaginary parts.
    phases
        Phases in radians, one for each knot. Then `values` are magnitudes, and magnitude and phase
        are interpolated each for itself. Phases are used as they are: neighbours that differ by
        more than pi are not brought closer, so that the shape depends smoothly on them.
    outside
        Beyond the first and last knot: ``"zero"``, with a jump there, or ``"hold"``, the value of
        the nearest knot. The knots themselves lie inside.

    Returns
    -------
    Expr
        Real if the values are real and there are no phases. At a knot it is that knot's value.

    Raises
    ------
    ExpressionError
        Fewer than two knots, knots that are not finite or do not rise, another number of values or
        phases, a complex x, an unknown `outside`.
    """
    fixed = _knots("piecewise_linear", knots)
    point = _point("piecewise_linear", x, outside)
    weights = _hats(_fractions(point, fixed), _cut(point, fixed, outside))
    return _combined("piecewise_linear", len(fixed), values, phases, lambda v: _linear(weights, v))


def cubic_spline(
    x: Expr | float,
    *,
    knots: Iterable[float],
    values: Values,
    phases: Values | None = None,
    slopes: tuple[Expr | complex, Expr | complex] | None = None,
    phase_slopes: tuple[Expr | complex, Expr | complex] | None = None,
    outside: Outside = "zero",
) -> Expr:
    """A cubic spline through ``(knots[i], values[i])``, twice continuously differentiable.

    Parameters
    ----------
    x, knots, values, phases, outside
        As `piecewise_linear`.
    slopes
        First derivatives at the first and last knot, numbers or expressions (a clamped spline);
        None makes the second derivatives zero there (a natural spline).
    phase_slopes
        The same for the spline of the phases.

    Raises
    ------
    ExpressionError
        As `piecewise_linear`; also `phase_slopes` without phases.
    """
    fixed = _knots("cubic_spline", knots)
    point = _point("cubic_spline", x, outside)
    if phase_slopes is not None and phases is None:
        raise invalid("cubic_spline", "phase_slopes need phases")
    cut = _cut(point, fixed, outside)
    fractions = _fractions(point, fixed)
    weights = _hats(fractions, cut)
    bends = _bends(fractions, np.diff(fixed), cut)

    def spline(v: Sequence[Expr], ends: tuple[Expr | complex, Expr | complex] | None) -> Expr:
        sources = [*v] if ends is None else [*v, *map(as_expr, ends)]
        curvatures = [
            sum_expr(float(factor) * source for factor, source in zip(row, sources, strict=True))
            for row in _curvature_map(fixed, clamped=ends is not None)
        ]
        return _linear([*weights, *bends], [*v, *curvatures])

    if phases is None:
        return spline(_count("cubic_spline", "values", values, len(fixed)), slopes)
    return polar_complex(
        spline(_count("cubic_spline", "values", values, len(fixed)), slopes),
        spline(_count("cubic_spline", "phases", phases, len(fixed)), phase_slopes).real(),
    )


def _combined(
    operation: str,
    count: int,
    values: Values,
    phases: Values | None,
    shape: Callable[[Sequence[Expr]], Expr],
) -> Expr:
    first = shape(_count(operation, "values", values, count))
    if phases is None:
        return first
    return polar_complex(first, shape(_count(operation, "phases", phases, count)).real())


def _linear(weights: Sequence[Expr], values: Sequence[Expr]) -> Expr:
    return sum_expr(value * weight for value, weight in zip(values, weights, strict=True))


def _fractions(x: Expr, knots: Sequence[float]) -> list[Expr]:
    """Place of x in each interval, clipped; exactly 0 and 1 at its ends, NaN for NaN."""
    return [
        maximum(minimum((x - low) / (high - low), 1.0), 0.0)
        for low, high in itertools.pairwise(knots)
    ]


def _hats(fractions: Sequence[Expr], cut: Callable[[Expr], Expr]) -> list[Expr]:
    inner = [a - b for a, b in itertools.pairwise(fractions)]
    return [cut(weight) for weight in (1 - fractions[0], *inner, fractions[-1])]


def _bends(
    fractions: Sequence[Expr], lengths: Iterable[float], cut: Callable[[Expr], Expr]
) -> list[Expr]:
    """Weight of each knot's second derivative: of the interval after it and of the one before."""
    after, before = [], []
    for fraction, length in zip(fractions, lengths, strict=True):
        scale = float(length) ** 2 / 6
        left = 1 - fraction
        after.append(scale * (left**3 - left))
        before.append(scale * (fraction**3 - fraction))
    inner = [a + b for a, b in zip(before, after[1:], strict=False)]
    return [cut(weight) for weight in (after[0], *inner, before[-1])]


def _curvature_map(knots: Sequence[float], *, clamped: bool) -> list[list[float]]:
    """Second derivative at each knot (rows) by each value, and by both end slopes if clamped."""
    h = np.diff(knots)
    n = len(knots)
    system, source = np.zeros((n, n)), np.zeros((n, n + 2 * clamped))
    for i in range(1, n - 1):
        system[i, i - 1 : i + 2] = h[i - 1], 2 * (h[i - 1] + h[i]), h[i]
        source[i, i - 1 : i + 2] = 6 / h[i - 1], -6 / h[i - 1] - 6 / h[i], 6 / h[i]
    if clamped:
        system[0, :2] = 2 * h[0], h[0]
        source[0, :2], source[0, n] = (-6 / h[0], 6 / h[0]), -6
        system[-1, -2:] = h[-1], 2 * h[-1]
        source[-1, n - 2 : n], source[-1, n + 1] = (6 / h[-1], -6 / h[-1]), 6
    else:
        system[0, 0] = system[-1, -1] = 1
    return [[float(entry) for entry in row] for row in np.linalg.solve(system, source)]


def _cut(x: Expr, knots: Sequence[float], outside: Outside) -> Callable[[Expr], Expr]:
    if outside == "hold":
        return lambda weight: weight
    beyond = (x < knots[0]) | (x > knots[-1])
    return lambda weight: where(beyond, 0.0, weight)


def _knots(operation: str, knots: Iterable[float]) -> list[float]:
    given = list(knots)
    numbers = [literal(knot) for knot in given]
    fixed = [number for number in numbers if number is not None and math.isfinite(number)]
    if len(fixed) < len(given) or len(fixed) < 2:
        raise invalid(operation, f"needs two or more fixed, finite knots, got {given!r}")
    for low, high in itertools.pairwise(fixed):
        if not low < high:
            raise invalid(operation, f"knots must rise, got {high} after {low}")
    return fixed


def _point(operation: str, x: Expr | float, outside: str) -> Expr:
    if outside not in {"zero", "hold"}:
        raise invalid(operation, f"outside must be 'zero' or 'hold', got {outside!r}")
    point = as_expr(x)
    if not point.is_real:
        raise invalid(operation, "x must be real; take real() of a complex expression")
    return point


def _count(operation: str, what: str, values: Values, count: int) -> list[Expr]:
    given = [as_expr(value) for value in values]
    if len(given) != count:
        raise invalid(operation, f"needs {count} {what}, got {len(given)}")
    return given
