"""Sizes of parameter changes, so that the minimiser sees numbers of order one.

A fit whose parameters differ in size by many orders of magnitude starts with a useless metric and
may stop far from the minimum. Units of the users come first; the rest is estimated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from laddu_dask.fit.objective import F64, Parameter

# An estimated standard deviation is not believed below this fraction of the parameter's size.
_SMALLEST = 1e-9
# A start nearer to zero than this tells nothing of the size: earlier fits end at 1e-12 for zero.
_NEAR_ZERO = 1e-3
# A standard deviation of this many times the parameter's size is not told from infinity at once.
_WIDEST = 30.0


def sizes(parameters: Sequence[Parameter], start: F64) -> F64:
    """Return the size over which each parameter may reasonably vary, shape (n,).

    The magnitude of the start value; near zero, half the width of the bounds, or one. Never more
    than half the width of the bounds or half a period.
    """
    half = np.array([_half_width(parameter) for parameter in parameters])
    size = np.abs(start)
    size = np.where(size >= _NEAR_ZERO, size, np.where(np.isfinite(half), half, 1.0))
    return np.asarray(np.minimum(size, half))


def units(parameters: Sequence[Parameter], start: F64, gradient: F64) -> F64:
    """Return the internal unit of each parameter, shape (n,), positive.

    Parameters
    ----------
    parameters
        Definitions; a `scale` given there is used as it is.
    start
        Start of the minimisation, shape (n,).
    gradient
        Gradient of -2 ln L there, shape (n,).

    Notes
    -----
    Without a scale the unit is an estimate of the standard deviation: if the minimum of a parabola
    lies about one size away, x - x0 ~ size, its slope there is 2 size / sigma^2, hence
    sigma = sqrt(2 size / |slope|), taken between 1e-9 and 1 times the size.
    """
    size = sizes(parameters, start)
    slope = np.abs(gradient)
    with np.errstate(divide="ignore", invalid="ignore"):
        sigma = np.where(slope > 0, np.sqrt(2.0 * size / slope), size)
    estimate = np.clip(sigma, _SMALLEST * size, size)
    given = [parameter.scale for parameter in parameters]
    return np.array([e if s is None else s for s, e in zip(given, estimate.tolist(), strict=True)])


def widest(parameters: Sequence[Parameter], unit: F64, *points: F64) -> F64:
    """Return the largest standard deviation that is still looked for, shape (n,).

    A parameter on which the objective depends less than this is taken for one without influence.
    `points` are those the fit has been at: a parameter that ends near zero has not become small.
    """
    half = np.array([_half_width(parameter) for parameter in parameters])
    size = np.max([unit, *(sizes(parameters, point) for point in points)], axis=0)
    return np.asarray(np.minimum(_WIDEST * size, half))


def _half_width(parameter: Parameter) -> float:
    low, high = parameter.bounds or (None, None)
    if low is None or high is None or high <= low:
        return np.inf
    return (high - low) / 2
