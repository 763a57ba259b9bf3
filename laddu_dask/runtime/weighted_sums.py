"""Weighted sums of a model over events, read once and not kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from laddu_dask.data import Dataset
from laddu_dask.errors import EvaluationError, ParameterError
from laddu_dask.runtime.adaptive import AdaptiveReducer
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.forms import ModelPass, PassSum
from laddu_dask.runtime.one_event import OneEvent, listed
from laddu_dask.runtime.visiting import Reduction, check_reduction

if TYPE_CHECKING:
    from laddu_dask.runtime.model import Model

Array = npt.NDArray[np.float64]


class ReductionEvaluation(NamedTuple):
    """A sum over events and its derivatives.

    Attributes
    ----------
    value
        The sum; of several parameter points shape (points,).
    gradient
        By each free parameter, shape (parameters,) or (points, parameters).
    """

    value: float | Array
    gradient: Array


def weighted_sums(
    model: Model,
    dataset: Dataset,
    points: Sequence[Array],
    execution: Execution,
    reduction: Reduction,
    mode: Literal["value", "gradient"],
) -> list[PassSum]:
    """Sums at several points, in one pass; see `laddu_dask.runtime.model.Model.reduce`.

    Raises
    ------
    EvaluationError
        The first event, at the first point, that cannot be summed.
    """
    check_reduction(reduction)
    dataset.require(model.columns, wanted_by="the model")
    for point in points:
        if np.isnan(point).any():
            names = [n for n, x in zip(model.parameter_names, point, strict=True) if math.isnan(x)]
            raise ParameterError(f"parameters are NaN: {', '.join(names)}", names=names)
    if not points:
        return []
    passes = [ModelPass("reduction", dataset, model, "log" if reduction == "log" else "linear")]
    if reduction == "positive":
        # The sum of the logarithms knows which values are not positive.
        passes.append(ModelPass("positivity", dataset, model, "log"))
    once = replace(execution, storage="streaming", normalization="general")
    sums = _Sums(model, dataset, reduction, once)
    with closing(AdaptiveReducer(passes, once, once=True)) as reducer:
        every = [[point] * len(passes) for point in points]
        found = []
        for k, parts in enumerate(reducer.reduce_many(mode, every)):
            bad = sums.first_bad(parts, points[k])
            if bad is not None and bad.is_usable(reduction):
                (parts,) = reducer.reduce_written(mode, [every[k]])
                bad = sums.first_bad(parts, points[k])
            if bad is not None:
                where = f"parameter point {k}: " if len(points) > 1 else ""
                raise bad.error(sums, where, points[k])
            found.append(parts[0])
    return found


@dataclass(frozen=True)
class _Sums:
    """What is summed."""

    model: Model
    dataset: Dataset
    reduction: Reduction
    execution: Execution

    def named(self, point: Array) -> dict[str, float]:
        return dict(zip(self.model.parameter_names, point.tolist(), strict=True))

    def first_bad(self, parts: Sequence[PassSum], point: Array) -> _Bad | None:
        """The first event that one of the sums cannot take."""
        event = min((p.first_bad for p in parts if p.first_bad is not None), default=None)
        if event is None:
            return None
        model = self.model
        names = model.columns
        return _Bad(
            event, OneEvent.of(model.expr.node, names, self.dataset, event, self.named(point))
        )


@dataclass(frozen=True)
class _Bad:
    """An event that cannot be summed."""

    event: int
    there: OneEvent

    def is_usable(self, reduction: Reduction) -> bool:
        """Whether only the order of operations was bad."""
        value = self.there.value.real
        finite = math.isfinite(value) and self.there.culprit is None
        return finite and (reduction == "linear" or value > 0)

    def error(self, sums: _Sums, where: str, point: Array) -> EvaluationError:
        value, culprit = self.there.value.real, self.there.culprit
        if culprit is not None:
            problem = f"the first part that is not finite is {culprit}"
        elif sums.reduction != "linear" and not value > 0:
            problem = "it must be positive"
        elif sums.execution.precision == "f32":
            problem = "it or a derivative of it leaves the range of single precision"
        else:
            problem = "a derivative of it, or its product with the weight, overflows"
        return EvaluationError(
            f"{where}reduction {sums.reduction!r} failed: the value at "
            f"{sums.dataset.row_label(self.event)} is {value!r}; {problem} "
            f"(at {listed(sums.named(point)) or 'no parameters'}; "
            f"event: {listed(self.there.columns)})",
            event=self.event,
            value=value,
            reduction=sums.reduction,
            expression=culprit,
        )
