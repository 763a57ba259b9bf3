"""A finite wall for points without an objective.

The objective of such a point is +inf, but MIGRAD must not see it: its line search fits parabolas
and cubics through the values, and one infinity turns the next trial points into NaN (about ten
wasted calls; with a NaN value several hundred). A finite wall keeps the fits meaningful, and a wall
of the right height brings the line search back in one or two steps, where a huge one makes it
crawl back by factors of twenty.
"""

from __future__ import annotations

import math

import numpy as np

from laddu_dask.fit.objective import F64

# For a trial point that is itself not finite.
_FAR = 1e12


class Barrier:
    """Value and gradient shown to the minimiser where the objective has none.

    Parameters
    ----------
    point, value, gradient
        A point with an objective, in the minimiser's internal units.

    Notes
    -----
    With the distance d = u - u0 to the last point whose gradient was asked for, the wall is
    f0 + 1 + |g0 . d| + d . d: above f0 everywhere, rising, and as high above f0 as the line search
    hoped to get below it. A parabola through it has its minimum at a quarter of the step.
    """

    def __init__(self, point: F64, value: float, gradient: F64) -> None:
        self.move(point, value, gradient)

    def move(self, point: F64, value: float, gradient: F64) -> None:
        """Put the foot of the wall at a new point."""
        self._point = point.copy()
        self._value = value
        self._gradient = gradient.copy()

    def value(self, point: F64) -> float:
        """Return the height of the wall at `point`."""
        d = point - self._point
        height = 1 + abs(float(self._gradient @ d)) + float(d @ d)
        if not math.isfinite(height):
            height = _FAR * (1 + abs(self._value))
        return self._value + height

    def gradient(self, point: F64) -> F64:
        """Return the slope of the wall at `point`, shape (n,)."""
        d = point - self._point
        if not np.isfinite(d).all():
            return np.zeros_like(d)
        return np.asarray(np.sign(self._gradient @ d) * self._gradient + 2 * d)
