r"""Cubic splines through fixed knots whose values are free.

With the fractions f_j of the intervals, of length h_j, and the weights w_i of straight lines
(`laddu_dask.physics.piecewise`),

    S = sum_i v_i w_i + sum_j (h_j**2 / 6) [b(1 - f_j) M_j + b(f_j) M_j+1],   b(t) = t**3 - t,

where the second derivatives M at the knots are a fixed linear map of the values: continuity of the
first derivative and two conditions at the ends determine them.

Source: C. de Boor, A Practical Guide to Splines (1978), chapter IV; for partial waves of unknown
shape, E. M. Aitala et al., Phys. Rev. D 73, 032004 (2006).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from laddu_dask.expr import Expr, as_expr, polar_complex
from laddu_dask.expr import sum as sum_expr
from laddu_dask.physics.checks import invalid
from laddu_dask.physics.knots import (
    Outside,
    Values,
    as_many,
    cut_outside,
    fixed_knots,
    fractions_of,
    hats,
    real_point,
    weighted_sum,
)


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
    fixed = fixed_knots("cubic_spline", knots)
    point = real_point("cubic_spline", x, outside)
    if phase_slopes is not None and phases is None:
        raise invalid("cubic_spline", "phase_slopes need phases")
    cut = cut_outside(point, fixed, outside)
    fractions = fractions_of(point, fixed)
    weights = hats(fractions, cut)
    bends = _bends(fractions, np.diff(fixed), cut)

    def spline(v: Sequence[Expr], ends: tuple[Expr | complex, Expr | complex] | None) -> Expr:
        sources = [*v] if ends is None else [*v, *map(as_expr, ends)]
        curvatures = [
            sum_expr(float(factor) * source for factor, source in zip(row, sources, strict=True))
            for row in _curvature_map(fixed, clamped=ends is not None)
        ]
        return weighted_sum([*weights, *bends], [*v, *curvatures])

    if phases is None:
        return spline(as_many("cubic_spline", "values", values, len(fixed)), slopes)
    return polar_complex(
        spline(as_many("cubic_spline", "values", values, len(fixed)), slopes),
        spline(as_many("cubic_spline", "phases", phases, len(fixed)), phase_slopes).real(),
    )


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
