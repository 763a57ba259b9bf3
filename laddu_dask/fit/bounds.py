"""The box of allowed parameter values, and what a gradient means on its faces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from laddu_dask.fit.objective import F64, Parameter

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Box:
    """Inclusive limits of the free parameters and the periods of the cyclic ones.

    Attributes
    ----------
    lower, upper
        Limits, shape (n,); -inf and +inf where open. A periodic parameter has no limits here: the
        minimiser may walk through the seam, only evaluation wraps.
    origin, period
        Start and length of the interval of a periodic parameter, shape (n,); period is 0 for the
        others.
    """

    lower: F64
    upper: F64
    origin: F64
    period: F64

    @classmethod
    def of(cls, parameters: Sequence[Parameter]) -> Box:
        """Read the limits of `parameters`."""
        lower = np.full(len(parameters), -np.inf)
        upper = np.full(len(parameters), np.inf)
        origin = np.zeros(len(parameters))
        period = np.zeros(len(parameters))
        for i, parameter in enumerate(parameters):
            low, high = parameter.bounds or (None, None)
            if parameter.periodic and low is not None and high is not None:
                origin[i], period[i] = low, high - low
                continue
            if low is not None:
                lower[i] = low
            if high is not None:
                upper[i] = high
        return cls(lower, upper, origin, period)

    def wrap(self, point: F64) -> F64:
        """Return `point` with periodic parameters moved into [origin, origin + period)."""
        cyclic = self.period > 0
        inside = (point >= self.origin) & (point < self.origin + self.period)
        # A value inside keeps its bits: the remainder would round it.
        move = cyclic & ~inside
        if not move.any():
            return point
        wrapped = point.copy()
        wrapped[move] = self.origin[move] + np.mod(
            point[move] - self.origin[move], self.period[move]
        )
        return wrapped

    def clip(self, point: F64) -> F64:
        """Return the point of the box nearest to `point`."""
        return np.clip(point, self.lower, self.upper)

    def faces(self, point: F64) -> tuple[Mask, Mask]:
        """Return which parameters sit on their lower and on their upper limit."""
        return point <= self.lower, point >= self.upper

    def limits(self, point: F64) -> tuple[str, ...]:
        """Return for each parameter "", "lower" or "upper": the limit on which it sits."""
        low, high = self.faces(point)
        return tuple("lower" if a else "upper" if b else "" for a, b in zip(low, high, strict=True))

    def blocked(self, point: F64, gradient: F64) -> Mask:
        """Return which parameters would leave the box if they followed the downhill direction."""
        low, high = self.faces(point)
        return (low & (gradient > 0)) | (high & (gradient < 0))
