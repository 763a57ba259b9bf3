"""Several quantities of events in one pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import CompiledModel, compile_elements
from laddu_dask.data import Dataset
from laddu_dask.errors import ExpressionError
from laddu_dask.expr import Expr, as_expr
from laddu_dask.runtime.eventwise import evaluate_rows, plan_work
from laddu_dask.runtime.execution import Execution, execution_or_default
from laddu_dask.runtime.values import complex_rows

Array = npt.NDArray[np.float64]
Parameters = Sequence[float] | Array | Mapping[str, float] | None
Quantities = Expr | Sequence[Expr] | Mapping[str, Expr]


@dataclass(frozen=True)
class Quantity:
    """An expression in the rows of a program.

    Attributes
    ----------
    shape
        Of the expression.
    real
        Whether its elements are real numbers whatever the event.
    """

    shape: tuple[int, ...]
    real: bool

    @property
    def elements(self) -> int:
        """Numbers per event; each has two rows, its real and its imaginary part."""
        return math.prod(self.shape)

    def of(self, rows: Array) -> npt.NDArray[Any]:
        """The values, shape (*shape, events), of (2 elements, events) rows."""
        values = rows[0::2].copy() if self.real else complex_rows(rows[0::2], rows[1::2])
        return values.reshape(*self.shape, rows.shape[-1])


@dataclass(frozen=True)
class Split:
    """Values of each expression of the rows of some events; picklable."""

    quantities: tuple[Quantity, ...]

    def __call__(self, rows: Array, first_event: int) -> tuple[npt.NDArray[Any], ...]:
        """Rows have shape (1, rows, events)."""
        found, start = [], 0
        for quantity in self.quantities:
            stop = start + 2 * quantity.elements
            found.append(quantity.of(rows[0, start:stop]))
            start = stop
        return tuple(found)


def compile_together(
    exprs: Sequence[Expr], execution: Execution
) -> tuple[CompiledModel, tuple[Quantity, ...]]:
    """One program of several expressions; what they share is computed once."""
    model = compile_elements(exprs, execution.kernel_options)
    return model, tuple(Quantity(expr.node.shape, expr.node.is_real) for expr in exprs)


def evaluate(
    quantities: Quantities,
    dataset: Dataset,
    parameters: Parameters = None,
    execution: Execution | None = None,
    lazy: bool = False,
) -> Any:
    """Values of several expressions at every event, in one pass.

    What they share is computed once, and the events are read once.

    Parameters
    ----------
    quantities
        Expressions: a list, or by name; or a single one. Scalars, vectors and matrices.
    dataset
        The events.
    parameters
        Vector in the order of first appearance, or a mapping; start values otherwise.
    execution
        Where and how.
    lazy
        Return Dask arrays with a chunk per partition; see `laddu_dask.Model.evaluate`. They share
        one pass when they are computed together, ``dask.compute(*values)``.

    Returns
    -------
    list, dict or array
        As the quantities came. Each has the shape of its expression with the events as last axis;
        float64 if the expression is real by its operations, else complex128. Values have the bits
        that each expression has by itself.

    Raises
    ------
    DataError
        A column is missing.
    ExpressionError
        No expression.
    ParameterError
        Unknown name or wrong length, or one name with two definitions.
    """
    single = not isinstance(quantities, Mapping | Sequence)
    if isinstance(quantities, Mapping):
        exprs = [as_expr(expr) for expr in quantities.values()]
    elif single:
        exprs = [as_expr(quantities)]
    else:
        exprs = [as_expr(expr) for expr in quantities]
    found = _evaluate(exprs, dataset, parameters, execution_or_default(execution), lazy=lazy)
    if isinstance(quantities, Mapping):
        return dict(zip(quantities, found, strict=True))
    return found[0] if single else list(found)


def _evaluate(
    exprs: Sequence[Expr],
    dataset: Dataset,
    parameters: Parameters,
    execution: Execution,
    *,
    lazy: bool,
) -> tuple[Any, ...]:
    if not exprs:
        raise ExpressionError("evaluate: there is no expression", operation="evaluate", shapes=[])
    model, quantities = compile_together(exprs, execution)
    vector, split = model.layout.vector(parameters), Split(quantities)
    if not lazy:
        rows = evaluate_rows(model, dataset, [vector], execution, gradient=False)
        return split(rows, 0)
    from laddu_dask.runtime.lazy import Output, lazy_arrays  # dask.array takes its time

    work, partitions = plan_work(model, dataset, [vector], execution, gradient=False)
    outputs = [
        Output(each.shape, (), np.float64 if each.real else np.complex128) for each in quantities
    ]
    return lazy_arrays(work, dataset, partitions, split, outputs)


def evaluate_elements(
    expr: Expr,
    dataset: Dataset,
    parameters: Parameters = None,
    execution: Execution | None = None,
) -> npt.NDArray[np.complex128]:
    """Values of all elements of a vector or matrix at every event, in one pass.

    What the elements share is computed once; see `evaluate` for several expressions.

    Parameters
    ----------
    expr
        A vector or matrix; a scalar counts as one element.
    dataset
        The events.
    parameters
        Vector in the order of first appearance, or a mapping; start values otherwise.
    execution
        Where and how.

    Returns
    -------
    ndarray
        complex128, shape (elements, n_events), a matrix in row-major order.

    Raises
    ------
    DataError
        A column is missing.
    ParameterError
        Unknown name or wrong length.
    """
    execution = execution_or_default(execution)
    model = compile_elements([as_expr(expr)], execution.kernel_options)
    vector = model.layout.vector(parameters)
    (rows,) = evaluate_rows(model, dataset, [vector], execution, gradient=False)
    return complex_rows(rows[0::2], rows[1::2])
