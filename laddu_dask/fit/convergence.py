"""Our own verdict on the end of a fit.

Minimisers call many things converged: a valley without end, a wall, a saddle. The verdict here
looks only at the exact gradient and our own Hessian at the last point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from laddu_dask.fit.bounds import Box, Mask
from laddu_dask.fit.minimize import EDM_GOAL
from laddu_dask.fit.newton import Polished
from laddu_dask.fit.objective import F64
from laddu_dask.fit.spectrum import Spectrum, combination_text

# The Hessian tells errors no farther from the minimum than a tenth of a standard deviation.
_NEAR = 1e-2


class Verdict(NamedTuple):
    """Whether a point is a minimum, why, and what is known of the errors there.

    Attributes
    ----------
    converged
        The point is a minimum within the bounds and every parameter is determined.
    message
        Why, or why not, in words.
    edm
        Estimated vertical distance to the minimum, of the parameters free to move.
    covariance
        2 H^-1 of the free parameters, shape (n, n). A parameter held at a limit has only its own
        variance 2 / H_ii, and the others' elements are those with it held there. NaN where
        undetermined.
    limits
        Per parameter "", "lower" or "upper": the limit on which it sits.
    warnings
        What a reader of the numbers should know.
    """

    converged: bool
    message: str
    edm: float
    covariance: F64
    limits: tuple[str, ...]
    warnings: tuple[str, ...]


def judge(found: Polished, box: Box, names: tuple[str, ...], away: Mask) -> Verdict:
    """Judge the end point of a minimisation.

    Parameters
    ----------
    found
        The point with gradient and Hessian.
    box
        Limits of the parameters.
    names
        Names of the parameters.
    away
        Those known to have run away, which are left out here; see `without_runaways`.
    """
    held = box.blocked(found.point, found.gradient)
    free = ~held & ~away
    free_names = tuple(name for name, is_free in zip(names, free, strict=True) if is_free)
    spectrum = found.free_spectrum(free)
    edm = spectrum.distance(found.gradient[free])
    known = not spectrum.negative.any() and edm <= _NEAR
    flat = [combination_text(d, free_names) for d in spectrum.directions(spectrum.flat)]
    down = [combination_text(d, free_names) for d in spectrum.directions(spectrum.negative)]

    reasons = []
    if flat:
        reasons.append(
            f"flat direction{'s' if len(flat) > 1 else ''}: {', '.join(flat)}; the data do not "
            "determine the parameters in it, so they have no errors (fix one of them or write the "
            "model with fewer)"
        )
    if down:
        reasons.append(
            f"not a minimum: the objective falls both ways along {', '.join(down)} (another "
            "start may help)"
        )
    if not edm <= EDM_GOAL:
        reasons.append(
            f"estimated vertical distance {edm:.3g} above {EDM_GOAL:g}; the gradient does not "
            "vanish here"
        )
    message = (
        "not converged: " + "; ".join(reasons)
        if reasons
        else "converged: a minimum, and the data determine every parameter"
    )
    limits = box.limits(found.point)
    return Verdict(
        converged=not reasons,
        message=message,
        edm=edm,
        covariance=_covariance(found, spectrum, free, known=known),
        limits=limits,
        warnings=_limit_warnings(found, names, limits, held),
    )


def without_runaways(verdict: Verdict, away: Mask, names: tuple[str, ...]) -> Verdict:
    """Return `verdict` after some parameters were found to have run away: no error, no minimum."""
    if not away.any():
        return verdict
    covariance = verdict.covariance.copy()
    covariance[away, :] = np.nan
    covariance[:, away] = np.nan
    lost = [name for name, is_away in zip(names, away, strict=True) if is_away]
    before = "not converged: " if verdict.converged else f"{verdict.message}; "
    which = "it" if len(lost) == 1 else "them"
    reason = (
        f"runs away: the likelihood hardly changes within the error of {', '.join(lost)}; the "
        f"data do not determine {which} (fix {which} or write the model otherwise)"
    )
    return verdict._replace(converged=False, message=before + reason, covariance=covariance)


def _limit_warnings(
    found: Polished, names: tuple[str, ...], limits: tuple[str, ...], held: Mask
) -> tuple[str, ...]:
    warnings = []
    for i, (name, side) in enumerate(zip(names, limits, strict=True)):
        if not side:
            continue
        text = f"parameter {name} is at its {side} limit"
        if held[i] and found.curvature.matrix[i, i] > 0:
            text += "; its error is from its own curvature, the others' are with it held there"
        elif held[i]:
            text += "; it has no error, the objective does not curve upwards along it"
        warnings.append(text)
    return tuple(warnings)


def _covariance(found: Polished, spectrum: Spectrum, free: Mask, *, known: bool) -> F64:
    n = len(found.point)
    covariance = np.zeros((n, n))
    covariance[np.ix_(free, free)] = spectrum.covariance() if known else np.nan
    own = np.diag(found.curvature.matrix)
    for i in np.flatnonzero(~free):
        covariance[i, i] = 2 / own[i] if own[i] > 0 else np.nan
    return covariance
