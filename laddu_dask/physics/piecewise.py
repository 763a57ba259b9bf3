r"""Steps and straight lines between fixed knots whose values are free.

In each interval ``[k_j, k_j+1]`` the fraction ``f_j = (x - k_j) / (k_j+1 - k_j)``, clipped to
[0, 1], gives the weight of a knot's value in a shape of straight lines,

    w_i = f_(i-1) - f_i,   f_(-1) = 1,   f_(n-1) = 0.

Source: C. de Boor, A Practical Guide to Splines (1978), chapter III; for partial waves of unknown
shape, E. M. Aitala et al., Phys. Rev. D 73, 032004 (2006).
"""

from __future__ import annotations

from collections.abc import Iterable

from laddu_dask.expr import Expr, where
from laddu_dask.physics.knots import (
    Outside,
    Values,
    cut_outside,
    fixed_knots,
    fractions_of,
    hats,
    real_point,
    weighted_sum,
    with_phases,
)


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
    ends = fixed_knots("piecewise_constant", edges)
    point = real_point("piecewise_constant", x, outside)
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
    return with_phases(
        "piecewise_constant", len(weights), values, phases, lambda v: weighted_sum(weights, v)
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
    fixed = fixed_knots("piecewise_linear", knots)
    point = real_point("piecewise_linear", x, outside)
    weights = hats(fractions_of(point, fixed), cut_outside(point, fixed, outside))
    return with_phases(
        "piecewise_linear", len(fixed), values, phases, lambda v: weighted_sum(weights, v)
    )
