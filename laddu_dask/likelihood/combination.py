"""The objective and its derivatives from the sums over events of all terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from laddu_dask.errors import EvaluationError
from laddu_dask.kernels.exact import NOTHING
from laddu_dask.likelihood.terms import UnbinnedTerm
from laddu_dask.runtime.forms import PassSum

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Combination:
    """How the terms of a likelihood are added up.

    Attributes
    ----------
    terms
        The terms; each has two sums, of its data and of its accepted Monte Carlo events.
    places
        Where the parameters of each term are in the vector of the likelihood.
    names
        Names of the parameters of the likelihood.
    """

    terms: tuple[UnbinnedTerm, ...]
    places: tuple[npt.NDArray[np.intp], ...]
    names: tuple[str, ...]

    def value_and_gradient(
        self, sums: Sequence[PassSum], yields: Sequence[float]
    ) -> tuple[float, Vector | None]:
        """The objective, and its gradient if the sums have one.

        Raises
        ------
        EvaluationError
            An integral that is not positive, or sums that combine to no number.
        """
        total = 0.0
        gradients = []
        for index, (term, yield_) in enumerate(zip(self.terms, yields, strict=True)):
            data, mc = sums[2 * index : 2 * index + 2]
            term.check_integral(mc.value)
            total += term.combine(data.value, mc.value, yield_)
            if mc.gradient is not None and data.gradient is not None:
                slope = term.integral_slope(mc.value, yield_)
                with np.errstate(all="ignore"):  # what is not finite is an error below
                    gradients.append(slope * mc.gradient - 2.0 * data.gradient)
        if not math.isfinite(total):
            # Events may all be finite and the combination of their sums still overflow.
            raise EvaluationError(
                f"the sums over events combine to an objective of {total}; scale the intensity "
                "or the weights",
                value=total,
            )
        if len(gradients) < len(self.terms):
            return total, None
        gradient = np.zeros(len(self.names))
        for places, own in zip(self.places, gradients, strict=True):
            gradient[places] += own
        self.check_derivatives(gradient, "derivative")
        return total, gradient

    def difference(
        self, sums: Sequence[PassSum], others: Sequence[PassSum], yields: Sequence[float]
    ) -> float:
        """The objective of some sums less that of others, from sums before their rounding.

        Raises
        ------
        EvaluationError
            An integral that is not positive.
        """
        total = NOTHING
        for index, (term, yield_) in enumerate(zip(self.terms, yields, strict=True)):
            data, mc = zip(
                sums[2 * index : 2 * index + 2],
                others[2 * index : 2 * index + 2],
                strict=True,
            )
            log_sums = data[0].exact(), data[1].exact()
            integrals = mc[0].exact(), mc[1].exact()
            for each, integral in zip(mc, integrals, strict=True):
                term.check_integral(min(each.value, integral.round()))
            total = total.plus(term.difference(log_sums, integrals, yield_))
        return total.round()

    def second(
        self, sums: Sequence[PassSum], yields: Sequence[float], directions: Sequence[Vector]
    ) -> list[Vector]:
        """Second derivatives of each term by its own parameters, along directions of them.

        Shape (directions, parameters) each.
        """
        result = []
        for index, (term, yield_) in enumerate(zip(self.terms, yields, strict=True)):
            data, mc = sums[2 * index : 2 * index + 2]
            assert data.curved is not None
            assert mc.curved is not None
            assert mc.gradient is not None
            term.check_integral(mc.value)
            slope = term.integral_slope(mc.value, yield_)
            bend = term.integral_curvature(mc.value, yield_)
            with np.errstate(all="ignore"):  # what is not finite is an error in the end
                rise = np.outer(directions[index] @ mc.gradient, mc.gradient)
                result.append(bend * rise + slope * mc.curved - 2.0 * data.curved)
        return result

    def check_derivatives(self, rows: Vector, what: str) -> None:
        """Refuse derivatives that are not finite; the first axis counts parameters."""
        if all(map(math.isfinite, rows.ravel().tolist())):
            return
        bad = ~np.isfinite(rows)
        where = np.flatnonzero(bad.reshape(len(rows), -1).any(axis=1))
        names = [self.names[k] for k in where]
        raise EvaluationError(
            f"the {what} of the objective is not finite for {', '.join(names)}; scale "
            "the intensity, or bound these parameters away from this point",
            value=float(rows[bad][0]),
            names=names,
        )
