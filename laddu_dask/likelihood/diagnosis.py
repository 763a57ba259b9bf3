"""What is wrong with an event whose value cannot be summed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from laddu_dask.compiler import Precision
from laddu_dask.compiler.diagnose import evaluate_event
from laddu_dask.errors import DataError, EvaluationError
from laddu_dask.expr.node import walk
from laddu_dask.kernels import Accumulator
from laddu_dask.likelihood.terms import UnbinnedTerm
from laddu_dask.runtime import ModelPass


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
        node = term.model.expr.node
        columns = _event_columns(term, role, event)
        # Columns on which no result depends were not read and need not exist; any number will do.
        unread = {str(leaf.data): 0.0 for leaf in walk(node) if leaf.op == "column"}
        value, culprit = evaluate_event(node, unread | columns, parameters)
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
        point = _listed(self.parameters) or "no parameters"
        return EvaluationError(
            f"term {self.term.name!r}, {self.role}, {dataset.row_label(self.event)}: {problem} "
            f"(at {point}; event: {_listed(self.columns)})",
            term=self.term.name,
            role=self.role,
            event=self.event,
            value=self.value.real,
            expression=self.culprit,
        )


def _event_columns(term: UnbinnedTerm, role: str, event: int) -> dict[str, float]:
    """The numbers of one event that the model reads."""
    dataset = term.data if role == "data" else term.accepted_mc
    names = term.model.columns
    for fragment in dataset.fragments:
        row = event - fragment.offset
        if 0 <= row < fragment.rows:
            (batch,) = fragment.cut(row, row + 1).read(names, 1)
            return dict(zip(names, batch.values[:, 0].tolist(), strict=True))
    raise DataError(f"term {term.name!r}, {role}: there is no event {event}")


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in values.items())


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
