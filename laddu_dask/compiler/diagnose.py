"""What went wrong at one event: the value there, and the first sub-expression that went bad."""

from __future__ import annotations

import math
from collections.abc import Mapping

from laddu_dask.compiler import pairs
from laddu_dask.compiler.invariants import run_scalar
from laddu_dask.compiler.lower import lower_all
from laddu_dask.compiler.program import cut
from laddu_dask.expr.node import PREDICATES, Node, walk
from laddu_dask.expr.text import equation


def evaluate_event(
    root: Node, columns: Mapping[str, float], parameters: Mapping[str, float]
) -> tuple[complex, str | None]:
    """Evaluate an expression at one event, in the written order.

    Parameters
    ----------
    root
        Scalar expression.
    columns, parameters
        Numbers by name.

    Returns
    -------
    value, culprit
        The value, and the text of the first sub-expression (operands first) that is not finite
        although its operands are; None if everything is finite.
    """
    graph, values = lower_all(root)
    leaves, numbers = {}, []
    for index, (op, _, payload) in enumerate(graph.ops):
        if op in {"column", "parameter"}:
            leaves[index] = len(numbers)
            numbers.append((columns if op == "column" else parameters)[str(payload)])
    order = [node for node in walk(root) if node.op not in PREDICATES]
    outputs, spans = [], []
    for node in order:
        spans.append(len(outputs))
        for pair in values[id(node)]:
            outputs += [pairs.re(graph, pair), pairs.im(graph, pair)]
    program = cut(graph, outputs, {}, leaves)
    results = run_scalar(program.instructions, numbers, program.outputs)
    value = complex(results[-2], results[-1])
    finite: dict[int, bool] = {}
    culprit: str | None = None
    for node, start in zip(order, spans, strict=True):
        stop = start + 2 * len(values[id(node)])
        finite[id(node)] = all(math.isfinite(x) for x in results[start:stop])
        operands = all(finite.get(id(arg), True) for arg in node.args)
        if culprit is None and not finite[id(node)] and operands:
            culprit = equation(node)
    return value, culprit
