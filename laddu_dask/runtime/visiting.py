"""Going through a data set once, looking at values under several parameter points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import CompiledModel
from laddu_dask.data import Dataset
from laddu_dask.errors import EvaluationError, ExpressionError, LadduError
from laddu_dask.kernels import Accumulator
from laddu_dask.runtime.eventwise import Block, blocks
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.values import Values, complex_rows

Array = npt.NDArray[np.float64]
#: Receives the index of the first event of a block, the number of the point, and its values.
Consume = Callable[[int, int, Values], object]
#: What is summed of the real part v and the weight w. ``linear``: w v. ``positive``: w v, where
#: every v must be positive. ``log``: w ln v, likewise.
Reduction = Literal["linear", "positive", "log"]


def visit(
    model: CompiledModel,
    dataset: Dataset,
    points: Mapping[str, Array],
    consume: Consume,
    execution: Execution,
    reduction: Reduction | None,
) -> list[float]:
    """Call `consume` for every block in order, and within a block for every point in order.

    All calls are made from the caller's thread, and nothing of a block is kept. See
    `laddu_dask.runtime.model.Model.visit`.
    """
    if reduction is not None:
        check_reduction(reduction)
    sums = [Accumulator(1) for _ in points]
    if not points:
        return []
    vectors = list(points.values())
    # Closed at once when something is raised: a cluster may be working ahead.
    with closing(blocks(model, dataset, vectors, execution, gradient=False)) as ordered:
        for block in ordered:
            for k, name in enumerate(points):
                values = complex_rows(block.rows[k, 0], block.rows[k, 1])
                if reduction is not None:
                    # First, so that nobody sees a block that cannot be summed.
                    _add(sums[k], values.real, block, reduction, name)
                consume(block.offset, k, values)
    return [] if reduction is None else [total.round()[0] for total in sums]


def check_reduction(reduction: str) -> None:
    """Refuse any other word.

    Raises
    ------
    ExpressionError
        Names those that there are.
    """
    if reduction not in get_args(Reduction):
        raise ExpressionError(
            f"reduction={reduction!r} is not one of {', '.join(map(repr, get_args(Reduction)))}",
            operation="reduce",
        )


def _add(total: Accumulator, values: Array, block: Block, reduction: Reduction, name: str) -> None:
    good = np.isfinite(values) if reduction == "linear" else (values > 0) & np.isfinite(values)
    if not good.all():
        first = int(np.argmin(good))
        event, value = block.offset + first, float(values[first])
        wanted = "finite" if reduction == "linear" else "positive and finite"
        raise EvaluationError(
            f"{name}: reduction failed: the value of event {event} is {value!r}, it must be "
            f"{wanted}",
            event=event,
            value=value,
            point=name,
        )
    rows = block.weights * (np.log(values) if reduction == "log" else values)
    total.add_rows(rows[np.newaxis], block.offset)
    if total.first_bad is not None:
        raise LadduError(f"{name}: the weight of event {total.first_bad} is too large to be summed")
