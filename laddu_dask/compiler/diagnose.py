"""What went wrong at one event: the value there, and the first sub-expression that went bad."""

from __future__ import annotations

import math
from collections.abc import Mapping

from laddu_dask.compiler import pairs
from laddu_dask.compiler.lower import lower_all
from laddu_dask.compiler.program import cut
from laddu_dask.compiler.scalar import run_scalar
from laddu_dask.expr import build
from laddu_dask.expr.node import PREDICATES, Node, walk
from laddu_dask.expr.text import equation

_EXTREMES = frozenset({"minimum", "maximum"})


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
        The value, and the text of the sub-expression in which its NaN or infinity began: not finite
        although its operands are; None if the value is finite.
    """
    # Which branch each `where` took is one more number to compute.
    choices = {
        id(node): build.where(node.args[0], build.constant(1.0), build.constant(0.0))
        for node in walk(root)
        if node.op == "where"
    }
    graph, values = lower_all(build.vector((root, *choices.values())))
    leaves: dict[int, int] = {}
    numbers: list[float] = []
    for index, (op, _, payload) in enumerate(graph.ops):
        if op in {"column", "parameter"}:
            leaves[index] = len(numbers)
            numbers.append((columns if op == "column" else parameters)[str(payload)])
    order = [node for node in walk(root) if node.op not in PREDICATES]
    outputs: list[int] = []
    spans: list[int] = []
    for node in order:
        spans.append(len(outputs))
        for pair in values[id(node)]:
            outputs += [pairs.re(graph, pair), pairs.im(graph, pair)]
    picks = [pairs.re(graph, values[id(choice)][0]) for choice in choices.values()]
    program = cut(graph, outputs + picks, {}, leaves)
    results = run_scalar(program.instructions, numbers, program.outputs)
    value = complex(*results[len(outputs) - 2 : len(outputs)])
    taken = dict(zip(choices, map(bool, results[len(outputs) :]), strict=True))
    found = {
        id(node): results[start : start + 2 * len(values[id(node)])]
        for node, start in zip(order, spans, strict=True)
    }
    bad = {key for key, parts in found.items() if not all(map(math.isfinite, parts))}
    undefined = {key for key in bad if any(map(math.isnan, found[key]))}
    return value, _origin(root, bad, undefined, taken)


def _origin(
    root: Node, bad: set[int], undefined: set[int], taken: Mapping[int, bool]
) -> str | None:
    """Text of the bad node below the root that no bad operand explains, on the way of the NaN.

    Only the way down through bad nodes counts: a branch that `where` did not take, an infinity
    under a reciprocal, or one beside the NaN that an extreme hands on has done no harm.
    """
    if id(root) not in bad:
        return None
    node = root
    while True:
        operands = node.args
        if node.op == "where":
            operands = (node.args[1] if taken[id(node)] else node.args[2],)
        through = undefined if node.op in _EXTREMES and id(node) in undefined else bad
        worse = [arg for arg in operands if id(arg) in through]
        if not worse:
            return equation(node)
        node = worse[0]
