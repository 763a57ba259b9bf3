"""Unbinned likelihood terms.

With data weights w_i, accepted Monte Carlo weights v_j, N = sum w_i and S = sum v_j I_j,

    NLL          2 (N ln S - sum w_i ln I_i)
    ExtendedNLL  2 (S - sum w_i ln I_i)

No constant terms; neither divides S by the number or weight of the Monte Carlo events, so these set
only a constant in NLL and the absolute rate in ExtendedNLL. The real part of the model enters.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from laddu_dask.data import Dataset
from laddu_dask.errors import DataError, EvaluationError, ExpressionError
from laddu_dask.expr import Expr
from laddu_dask.kernels.exact import Exact, log_ratio
from laddu_dask.runtime import Model

#: A sum at two parameter points.
Pair = tuple[Exact, Exact]

_TWO = Exact(2, 0)


@dataclass(frozen=True)
class UnbinnedTerm(ABC):
    """What NLL and ExtendedNLL share.

    Attributes
    ----------
    model
        The intensity; an expression is taken as a model.
    data
        Measured events.
    accepted_mc
        Simulated events after acceptance and selection.
    name
        Unique within a likelihood.
    """

    model: Model
    data: Dataset = field(kw_only=True)
    accepted_mc: Dataset = field(kw_only=True)
    name: str = field(kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.model, Expr):
            object.__setattr__(self, "model", Model(self.model))
        if not isinstance(self.model, Model):
            raise ExpressionError(
                f"term {self.name!r}: model must be an ld.Model or an expression, "
                f"got {type(self.model).__name__}",
                term=self.name,
            )
        for role in ("data", "accepted_mc"):
            dataset = getattr(self, role)
            if not isinstance(dataset, Dataset):
                raise DataError(
                    f"term {self.name!r}: {role} must be a data set from ld.read_parquet or "
                    f"ld.Dataset.from_arrays, got {type(dataset).__name__}",
                    term=self.name,
                    role=role,
                )
        if not isinstance(self.name, str) or not self.name:
            raise DataError(f"a term needs a non-empty name, got {self.name!r}", term=self.name)

    def check(self) -> None:
        """Check data sets against the model, without reading an event.

        Raises
        ------
        DataError
            Missing column, or no accepted Monte Carlo events.
        """
        for role, dataset in (("data", self.data), ("accepted_mc", self.accepted_mc)):
            try:
                dataset.require(self.model.columns, wanted_by=f"term {self.name!r}, {role}")
            except DataError as error:
                raise DataError(
                    str(error), **{**error.context, "term": self.name, "role": role}
                ) from None
        if self.accepted_mc.is_counted:
            self._refuse_empty()

    def _refuse_empty(self) -> None:
        if self.accepted_mc.n_events == 0:
            raise DataError(
                f"term {self.name!r}: the accepted Monte Carlo sample has no events, so the "
                "intensity cannot be normalised",
                term=self.name,
                role="accepted_mc",
            )

    @abstractmethod
    def combine(self, log_sum: float, integral: float, yield_: float) -> float:
        """Objective from sum w ln I, S and N."""

    @abstractmethod
    def difference(self, log_sums: Pair, integrals: Pair, yield_: float) -> Exact:
        """Objective at one point less that at another, each given as for `combine`."""

    @abstractmethod
    def integral_slope(self, integral: float, yield_: float) -> float:
        """Derivative of the objective with respect to S."""

    @abstractmethod
    def integral_curvature(self, integral: float, yield_: float) -> float:
        """Second derivative of the objective with respect to S."""

    def check_integral(self, integral: float) -> None:
        """Refuse a normalisation integral that is not positive."""
        self._refuse_empty()  # a selection whose events had not been counted before
        if not integral > 0 or math.isinf(integral):
            raise EvaluationError(
                f"term {self.name!r}: the sum of weighted intensities over the accepted Monte "
                f"Carlo sample is {integral}; it must be finite and positive. Check the start "
                "values and the signs of the weights",
                term=self.name,
                role="accepted_mc",
                value=integral,
            )


@dataclass(frozen=True)
class NLL(UnbinnedTerm):
    """``2 (N ln S - sum w ln I)``: the shape alone."""

    name: str = field(default="nll", kw_only=True)

    def combine(self, log_sum: float, integral: float, yield_: float) -> float:
        """Objective from sum w ln I, S and N."""
        return 2.0 * (yield_ * math.log(integral) - log_sum)

    def difference(self, log_sums: Pair, integrals: Pair, yield_: float) -> Exact:
        """``2 (N ln(S / S') - (sum w ln I - sum w ln I'))``; only the logarithm is rounded."""
        shape = Exact.of(yield_).times(Exact.of(log_ratio(*integrals)))
        return _TWO.times(shape.minus(log_sums[0].minus(log_sums[1])))

    def integral_slope(self, integral: float, yield_: float) -> float:
        """``2 N / S``."""
        return 2.0 * yield_ / integral

    def integral_curvature(self, integral: float, yield_: float) -> float:
        """``-2 N / S**2``."""
        return -2.0 * yield_ / integral / integral


@dataclass(frozen=True)
class ExtendedNLL(UnbinnedTerm):
    """``2 (S - sum w ln I)``: shape and rate."""

    name: str = field(default="extended_nll", kw_only=True)

    def combine(self, log_sum: float, integral: float, yield_: float) -> float:
        """Objective from sum w ln I, S and N."""
        return 2.0 * (integral - log_sum)

    def difference(self, log_sums: Pair, integrals: Pair, yield_: float) -> Exact:
        """``2 (S - S' - (sum w ln I - sum w ln I'))``; nothing is rounded."""
        rate = integrals[0].minus(integrals[1])
        return _TWO.times(rate.minus(log_sums[0].minus(log_sums[1])))

    def integral_slope(self, integral: float, yield_: float) -> float:
        """2, whatever S is."""
        return 2.0

    def integral_curvature(self, integral: float, yield_: float) -> float:
        """0: the objective is linear in S."""
        return 0.0
