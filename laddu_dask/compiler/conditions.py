"""A condition on event columns as a program: it holds, it does not, or NaN hides which.

A comparison with NaN is false, so that ``~(x < 1)`` would hold for an event without x. Here every
condition becomes two, "it holds" and "it does not hold", by the rules of S. C. Kleene for three
truth values: a comparison with NaN is neither, ``a | b`` holds if one of the two does whatever the
other is, and ``a & b`` fails if one of the two does.
"""

from __future__ import annotations

from dataclasses import dataclass

from laddu_dask.compiler.boundary import columns_below, leaf_rows
from laddu_dask.compiler.layout import ParameterLayout
from laddu_dask.compiler.lower import lower_all
from laddu_dask.compiler.pairs import re
from laddu_dask.compiler.program import Program, cut
from laddu_dask.errors import ExpressionError
from laddu_dask.expr import build
from laddu_dask.expr.expression import Predicate, as_node
from laddu_dask.expr.node import PREDICATES, Node, walk


@dataclass(frozen=True)
class ConditionProgram:
    """A compiled condition.

    Attributes
    ----------
    columns
        Event columns that the program reads, in order.
    program
        Event columns -> two rows of zeros and ones: it holds, and it does not. Both are zero where
        neither can be said.
    """

    columns: tuple[str, ...]
    program: Program


def compile_condition(condition: Predicate) -> ConditionProgram:
    """Compile a condition, its operations as written.

    Raises
    ------
    ExpressionError
        It reads no event column, or has a free parameter.
    """
    free = ParameterLayout.of(condition.node).names
    if free:
        raise ExpressionError(
            f"which events belong to a selection cannot depend on the free parameters "
            f"{', '.join(map(repr, free))}; fix them or write numbers",
            operation="select",
            shapes=[],
        )
    one, zero = as_node(1.0), as_node(0.0)
    chosen = [build.where(side, one, zero) for side in _sides(condition.node)]
    graph, values = lower_all(build.vector(tuple(chosen)))
    outputs = [re(graph, values[id(node)][0]) for node in chosen]
    columns = columns_below(graph, outputs)
    if not columns:
        raise ExpressionError(
            f"the condition {condition!r} reads no event column", operation="select", shapes=[]
        )
    return ConditionProgram(columns, cut(graph, outputs, leaf_rows(graph, columns), {}))


def _sides(root: Node) -> tuple[Node, Node]:
    """Conditions that hold where `root` is known to hold, and where it is known not to."""
    sides: dict[int, tuple[Node, Node]] = {}
    for node in walk(root):
        if node.op in PREDICATES:
            sides[id(node)] = _both(node, sides)
    return sides[id(root)]


def _both(node: Node, sides: dict[int, tuple[Node, Node]]) -> tuple[Node, Node]:
    a, b = node.args[0], node.args[-1]
    match node.op:
        case "lt":
            return node, build.compare("le", b, a)
        case "le":
            return node, build.compare("lt", b, a)
        case "eq":
            return node, build.compare("ne", a, b)
        case "ne":
            return node, build.compare("eq", a, b)
        case "not":
            holds, fails = sides[id(a)]
            return fails, holds
    (a_holds, a_fails), (b_holds, b_fails) = sides[id(a)], sides[id(b)]
    other = "or" if node.op == "and" else "and"
    return build.logical(node.op, a_holds, b_holds), build.logical(other, a_fails, b_fails)
