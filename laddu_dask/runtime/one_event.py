"""A model at one event, by itself and in the written order of operations: what went wrong there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from laddu_dask.compiler.diagnose import evaluate_event
from laddu_dask.data import Dataset
from laddu_dask.errors import DataError
from laddu_dask.expr.node import Node, walk


@dataclass(frozen=True)
class OneEvent:
    """An event and the model there.

    Attributes
    ----------
    value
        The model, in double precision.
    culprit
        Text of the sub-expression in which a NaN or infinity began, or None.
    columns
        The numbers of the event that the model reads.
    """

    value: complex
    culprit: str | None
    columns: Mapping[str, float]

    @classmethod
    def of(
        cls,
        node: Node,
        names: tuple[str, ...],
        dataset: Dataset,
        event: int,
        parameters: Mapping[str, float],
    ) -> OneEvent:
        """Read an event and evaluate an expression on it.

        Parameters
        ----------
        node
            The expression.
        names
            Columns on which its results depend. Others were not read and need not exist.
        dataset, event
            Where it is.
        parameters
            Of the expression.
        """
        columns = _columns(dataset, names, event)
        # Any number will do for what no result depends on.
        unread = {str(leaf.data): 0.0 for leaf in walk(node) if leaf.op == "column"}
        value, culprit = evaluate_event(node, unread | columns, parameters)
        return cls(value, culprit, columns)


def _columns(dataset: Dataset, names: tuple[str, ...], event: int) -> dict[str, float]:
    for fragment in dataset.fragments:
        row = event - fragment.offset
        if 0 <= row < fragment.rows:
            (batch,) = fragment.cut(row, row + 1).read(names, 1)
            return dict(zip(names, batch.values[:, 0].tolist(), strict=True))
    raise DataError(f"there is no event {event} in {dataset.source}")


def listed(values: Mapping[str, float]) -> str:
    """Names and numbers, for messages."""
    return ", ".join(f"{name} = {value!r}" for name, value in values.items())
