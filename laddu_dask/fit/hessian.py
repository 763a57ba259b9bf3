"""Second derivatives at a point: those the objective knows, or differences of its gradient.

A likelihood knows its Hessian. For other objectives the gradient is exact to rounding, so one order
of differentiation is left to do numerically. Steps follow the curvature itself: a coarse pass finds
the standard deviation of each parameter, a fine pass uses fourth-order differences with steps of a
fixed fraction of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from laddu_dask.errors import EvaluationError
from laddu_dask.fit.bounds import Box, Mask
from laddu_dask.fit.evaluation import Evaluator
from laddu_dask.fit.objective import F64, Objective, free_parameters
from laddu_dask.fit.scaling import units, widest

Gradient = Callable[[F64], F64]

# The error of the formula grows as step^4, that of rounding as 1/step. At this part of a standard
# deviation both stay below 1e-10 of the curvature for 1e3 to 1e5 events. Where the curvature is the
# small rest of large terms, far from the minimum, 1e-8 is left; ten times the step leaves 1e-5.
FINE_STEP = 0.002
# Coarse steps are this fraction of the guessed standard deviation.
COARSE_STEP = 0.02
# A guessed standard deviation this many times off is measured again.
_GUESS_TOLERANCE = 30.0
_COARSE_ROUNDS = 4

# (offsets in steps, weights) of first derivatives.
_TWO_POINT = ((-1.0, 1.0), (-0.5, 0.5))
_FIVE_POINT = ((-2.0, -1.0, 1.0, 2.0), (1 / 12, -8 / 12, 8 / 12, -1 / 12))
_ONE_SIDED = ((0.0, 1.0, 2.0, 3.0, 4.0), (-25 / 12, 4.0, -3.0, 4 / 3, -1 / 4))
_Stencil = tuple[tuple[float, ...], tuple[float, ...]]


class Curvature(NamedTuple):
    """Second derivatives at a point.

    Attributes
    ----------
    matrix
        Symmetrised Hessian, shape (n, n).
    asymmetry
        Largest |H_ij - H_ji| / sqrt(|H_ii H_jj|) before symmetrising: the noise of the elements.
    """

    matrix: F64
    asymmetry: float

    def block(self, keep: Mask) -> Curvature:
        """Return the part of the parameters selected by `keep`."""
        return Curvature(self.matrix[np.ix_(keep, keep)], self.asymmetry)


def hessian(objective: Objective, point: F64) -> F64:
    """Return the Hessian of -2 ln L by the free parameters at `point`, shape (n, n), symmetric.

    By differences, whatever the objective knows: an independent check. Takes six to about fourteen
    gradients per parameter. Central differences inside the bounds, one-sided ones beside a bound or
    beside a region where the intensity is not positive.

    Raises
    ------
    EvaluationError
        When the objective has no value at `point`, or nowhere around it.
    """
    parameters = free_parameters(objective)
    at = np.array(point, dtype=np.float64)

    def gradient(p: F64) -> F64:
        return np.array(objective.value_and_gradient(p)[1], dtype=np.float64)

    guess = units(parameters, at, gradient(at))
    box = Box.of(parameters)
    sigma = coarse(gradient, at, box, guess, widest(parameters, guess, at))[1]
    return fine(gradient, at, box, sigma).matrix


def near(
    evaluator: Evaluator, point: F64, box: Box, guess: F64, largest: F64
) -> tuple[Curvature, F64]:
    """Return a Hessian good enough to walk by, and each parameter's standard deviation.

    Exact when the objective knows it, which needs no room inside the bounds, else `coarse`.
    """
    matrix = evaluator.hessian(point)
    if matrix is None:
        return coarse(evaluator.gradient, point, box, guess, largest)
    bend = np.abs(np.diag(matrix))
    with np.errstate(divide="ignore"):
        sigma = np.minimum(np.sqrt(2.0 / bend), largest)
    return Curvature(matrix, 0.0), sigma


def best(evaluator: Evaluator, point: F64, box: Box, sigma: F64) -> Curvature:
    """Return the best Hessian there is: exact, else `fine`."""
    matrix = evaluator.hessian(point)
    if matrix is None:
        return fine(evaluator.gradient, point, box, sigma)
    return Curvature(matrix, 0.0)


def coarse(
    gradient: Gradient, point: F64, box: Box, guess: F64, largest: F64
) -> tuple[Curvature, F64]:
    """Estimate the Hessian by two-point differences, and each parameter's standard deviation.

    Parameters
    ----------
    gradient
        Exact gradient; may raise `EvaluationError` or return NaN where there is none.
    point
        Where, shape (n,).
    box
        Limits that no evaluation crosses.
    guess
        Guessed standard deviations, shape (n,). A bad guess costs two more gradients a round.
    largest
        Ends of belief: a flat parameter is given this standard deviation, shape (n,).

    Returns
    -------
    curvature
        The estimate.
    sigma
        sqrt(2 / |H_ii|), the distance over which the objective changes by one if nothing else
        moves; shape (n,).
    """
    n = len(point)
    matrix = np.zeros((n, n))
    sigma = np.minimum(guess, largest)
    for i in range(n):
        for _ in range(_COARSE_ROUNDS):
            tried = sigma[i]
            matrix[i] = _column(gradient, point, box, i, COARSE_STEP * tried, _TWO_POINT)
            bend = abs(matrix[i, i])
            sigma[i] = min(np.sqrt(2.0 / bend), largest[i]) if bend > 0 else largest[i]
            sigma[i] = max(sigma[i], tried * 1e-6)
            if tried / _GUESS_TOLERANCE <= sigma[i] <= tried * _GUESS_TOLERANCE:
                break
    return _symmetrised(matrix), sigma


def fine(gradient: Gradient, point: F64, box: Box, sigma: F64) -> Curvature:
    """Return the Hessian by fourth-order differences with steps of `FINE_STEP` * `sigma`."""
    n = len(point)
    matrix = np.zeros((n, n))
    for i in range(n):
        matrix[i] = _column(gradient, point, box, i, FINE_STEP * sigma[i], _FIVE_POINT)
    return _symmetrised(matrix)


def _column(
    gradient: Gradient, point: F64, box: Box, i: int, step: float, central: _Stencil
) -> F64:
    """Return d gradient / d x_i with the first difference formula whose points all exist."""
    refusal: EvaluationError | None = None
    for (offsets, weights), signed in _candidates(
        point[i], box.lower[i], box.upper[i], step, central
    ):
        try:
            return _difference(gradient, point, i, signed, offsets, weights)
        except EvaluationError as error:
            refusal = error
    raise EvaluationError(
        f"no second derivative by parameter {i}: the objective has no value on either side of "
        f"{point[i]:.9g} at distances down to {step / 64:.3g}"
        + (f" ({refusal})" if refusal is not None else "; its bounds leave no room"),
        parameter=i,
    )


def _candidates(
    x: float, lower: float, upper: float, step: float, central: _Stencil
) -> Iterator[tuple[_Stencil, float]]:
    reach = max(central[0])
    below, above = x - lower, upper - x
    # Beside a bound a slightly shorter central step is better than a one-sided formula.
    shorter = min(step, below / reach, above / reach)
    for shrink in (1.0, 1 / 8, 1 / 64):
        if shorter >= 0.2 * step:
            yield central, shrink * shorter
        for side, room in sorted(((1.0, above), (-1.0, below)), key=lambda s: -s[1]):
            if room > 0:
                yield _ONE_SIDED, side * shrink * min(step, room / 4)


def _difference(
    gradient: Gradient,
    point: F64,
    i: int,
    step: float,
    offsets: tuple[float, ...],
    weights: tuple[float, ...],
) -> F64:
    # A power of two not below the spacing of x: x + step is exact as long as x keeps its exponent,
    # so the distance divided by is the distance gone.
    size = max(abs(step), 8 * float(np.spacing(abs(point[i]))))
    exact = float(np.copysign(2.0 ** np.floor(np.log2(size)), step))
    total = np.zeros_like(point)
    for offset, weight in zip(offsets, weights, strict=True):
        moved = point.copy()
        moved[i] += offset * exact
        slope = gradient(moved)
        if not np.isfinite(slope).all():
            raise EvaluationError(f"no gradient at parameter {i} = {moved[i]:.9g}", parameter=i)
        total += weight * slope
    with np.errstate(over="ignore"):
        column = total / exact
    if not np.isfinite(column).all():
        raise EvaluationError(
            f"second derivatives by parameter {i} overflow at {point[i]:.9g}", parameter=i
        )
    return column


def _symmetrised(matrix: F64) -> Curvature:
    own = np.sqrt(np.abs(np.diag(matrix)))
    size = np.outer(own, own)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(size > 0, np.abs(matrix - matrix.T) / size, 0.0)
    return Curvature((matrix + matrix.T) / 2, float(relative.max(initial=0.0)))
