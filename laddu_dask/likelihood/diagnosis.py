"""What is wrong with an event whose value cannot be summed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from laddu_dask.compiler import Precision
from laddu_dask.errors import DataError, EvaluationError
from laddu_dask.kernels import Accumulator
from laddu_dask.likelihood.terms import UnbinnedTerm
from laddu_dask.runtime import ModelPass
from laddu_dask.runtime.one_event import OneEvent, listed


@dataclass(frozen=True)
class BadEvent:
    """An event of a term, evaluated by itself in the written order of operations.

    Attributes
    ----------
    term, role, event
        Where it is; `role` is ``"data"`` or ``"accepted_mc"``.
    value
        The model there.
    culprit
        Text of the sub-expression in which a NaN or infinity began, or None.
    columns, parameters
        What the model was evaluated with.
    precision
        That of the sums; the value here is a double.
    """

    term: UnbinnedTerm
    role: str
    event: int
    value: complex
    culprit: str | None
    columns: Mapping[str, float]
    parameters: Mapping[str, float]
    precision: Precision

    @classmethod
    def of(
        cls,
        term: UnbinnedTerm,
        role: str,
        event: int,
        parameters: Mapping[str, float],
        precision: Precision,
    ) -> BadEvent:
        """Read the event and evaluate the model on it."""
        dataset = term.data if role == "data" else term.accepted_mc
        model = term.model
        found = OneEvent.of(model.expr.node, model.columns, dataset, event, parameters)
        value, culprit, columns = found.value, found.culprit, found.columns
        return cls(term, role, event, value, culprit, columns, parameters, precision)

    @property
    def is_usable(self) -> bool:
        """Whether the likelihood can use the value: then only the order of operations was bad."""
        usable = math.isfinite(self.value.real) and self.culprit is None
        return usable and (self.role != "data" or self.value.real > 0)

    def error(self) -> EvaluationError:
        """The error that names term, event, value, sub-expression, parameters and columns."""
        what = f"the intensity is {self.value.real!r}"
        if self.value.imag != 0:
            what += f", the real part of {self.value!r}"
        if self.culprit is not None:
            problem = f"{what}; the first part that is not finite is {self.culprit}"
        elif self.role == "data" and not self.value.real > 0:
            problem = f"{what}; the intensity of a data event must be positive"
        elif self.precision == "f32":
            problem = (
                f"{what} in double precision, but in single precision it is not positive, or it or "
                "a derivative of it overflows; use precision='f64', or bring columns and "
                "parameters to scales near 1"
            )
        else:
            problem = f"{what}, but a derivative of it, or its product with the weight, overflows"
        dataset = self.term.data if self.role == "data" else self.term.accepted_mc
        point = listed(self.parameters) or "no parameters"
        return EvaluationError(
            f"term {self.term.name!r}, {self.role}, {dataset.row_label(self.event)}: {problem} "
            f"(at {point}; event: {listed(self.columns)})",
            term=self.term.name,
            role=self.role,
            event=self.event,
            value=self.value.real,
            expression=self.culprit,
        )


def check_weights(item: ModelPass, sums: Accumulator) -> None:
    """Refuse a weight that cannot be summed.

    Raises
    ------
    DataError
        Names the first such event.
    """
    event = sums.first_bad
    if event is not None:
        raise DataError(
            f"{item.label}: the weight of {item.dataset.row_label(event)} is too large to be "
            "summed; scale the weights down",
            event=event,
        )
