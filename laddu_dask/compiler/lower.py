"""From the expression graph to real IR, exactly as written.

Vectors and matrices are unrolled in row-major order. No rewrite is made here: the order of
operations is the user's.
"""

from __future__ import annotations

from collections.abc import Callable

from laddu_dask.compiler import pairs, powers, systems
from laddu_dask.compiler.elements import each, elementwise, matrix_product
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.pairs import Pair
from laddu_dask.expr.node import PREDICATES, Node, walk
from laddu_dask.expr.parameters import ParameterSpec

Elements = list[Pair]


def lower(root: Node) -> tuple[Graph, Elements]:
    """Lower a graph; returns the IR and the elements of the root (one for a scalar)."""
    graph, values = lower_all(root)
    return graph, values[id(root)]


def lower_all(*roots: Node) -> tuple[Graph, dict[int, Elements]]:
    """Lower a graph; returns the IR and the elements of every node, by identity of the node.

    What several roots share is there once.
    """
    g = Graph()
    values: dict[int, Elements] = {}
    conditions: dict[int, int] = {}
    for node in walk(*roots):
        if node.op in PREDICATES:
            conditions[id(node)] = _condition(g, node, values, conditions)
        else:
            operands = [values[id(arg)] for arg in node.args if arg.op not in PREDICATES]
            if node.op == "where":
                chosen = conditions[id(node.args[0])]
                values[id(node)] = [pairs.select(g, chosen, operands[0][0], operands[1][0])]
            else:
                values[id(node)] = _RULES[node.op](g, node, operands)
    return g, values


def _condition(
    g: Graph, node: Node, values: dict[int, Elements], conditions: dict[int, int]
) -> int:
    if node.op in {"and", "or", "not"}:
        return g.emit(node.op, *(conditions[id(arg)] for arg in node.args))
    a, b = (pairs.re(g, values[id(arg)][0]) for arg in node.args)
    if node.op == "ne":  # ordered: false when either is NaN, like every other comparison
        return g.emit("or", g.emit("lt", a, b), g.emit("lt", b, a))
    return g.emit(node.op, a, b)


def _leaf(g: Graph, node: Node, _: list[Elements]) -> Elements:
    if node.op == "const":
        assert isinstance(node.data, (float, complex))
        return [pairs.literal(g, node.data)]
    if node.op == "column":
        return [Pair(g.emit("column", payload=str(node.data)), None)]
    assert isinstance(node.data, ParameterSpec)
    if node.data.fixed:
        return [pairs.literal(g, node.data.initial)]
    return [Pair(g.emit("parameter", payload=node.data.name), None)]


def _dot(g: Graph, factors: list[tuple[Pair, Pair]]) -> Pair:
    """Products are added in index order."""
    products = [pairs.mul(g, x, y) for x, y in factors]
    total = products[0]
    for product in products[1:]:
        total = pairs.add(g, total, product)
    return total


def _root(function: Callable[..., Pair]) -> Rule:
    def rule(g: Graph, node: Node, operands: list[Elements]) -> Elements:
        return [function(g, operands[0][0], nonnegative=node.is_real)]

    return rule


def _imag(g: Graph, a: Pair) -> Pair:
    return Pair(pairs.im(g, pairs.above(g, a)), None)


def _real(g: Graph, a: Pair) -> Pair:
    return Pair(pairs.re(g, a), None)


def _power(g: Graph, node: Node, operands: list[Elements]) -> Elements:
    assert isinstance(node.data, int)
    return [pairs.power(g, operands[0][0], node.data)]


def _general_power(g: Graph, node: Node, operands: list[Elements]) -> Elements:
    base = node.args[0]
    nonnegative = base.is_real and base.is_nonnegative
    return [powers.power(g, operands[0][0], operands[1][0], nonnegative=nonnegative)]


def _extreme(g: Graph, node: Node, operands: list[Elements]) -> Elements:
    a, b = (pairs.re(g, operand[0]) for operand in operands)
    return [Pair(pairs.extreme(g, node.op, a, b), None)]


def _element(g: Graph, node: Node, operands: list[Elements]) -> Elements:
    assert isinstance(node.data, int)
    return [operands[0][node.data]]


def _gather(g: Graph, node: Node, operands: list[Elements]) -> Elements:
    return [operand[0] for operand in operands]


def _same(g: Graph, node: Node, operands: list[Elements]) -> Elements:
    return operands[0]


Rule = Callable[[Graph, Node, list[Elements]], Elements]

_RULES: dict[str, Rule] = {
    "const": _leaf,
    "parameter": _leaf,
    "column": _leaf,
    "add": elementwise(pairs.add),
    "sub": elementwise(pairs.sub),
    "mul": elementwise(pairs.mul),
    "div": elementwise(pairs.div),
    "neg": each(pairs.neg),
    "conj": each(pairs.conj),
    "real": each(_real),
    "imag": each(_imag),
    "norm_sqr": each(lambda g, a: Pair(pairs.norm_sqr(g, a), None)),
    "exp": each(pairs.exp),
    "sin": each(pairs.sin),
    "cos": each(pairs.cos),
    "tan": each(pairs.tan),
    "asin": each(pairs.asin),
    "atan": each(pairs.atan),
    "sinh": each(pairs.sinh),
    "cosh": each(pairs.cosh),
    "tanh": each(pairs.tanh),
    "abs": each(lambda g, a: Pair(pairs.modulus(g, a), None)),
    "minimum": _extreme,
    "maximum": _extreme,
    "power": _general_power,
    "sqrt": _root(pairs.sqrt),
    "log": _root(pairs.log),
    "pow": _power,
    "atan2": lambda g, node, o: [
        Pair(g.call("atan2", pairs.re(g, o[0][0]), pairs.re(g, o[1][0])), None)
    ],
    "complex": lambda g, node, o: [Pair(o[0][0].re, o[1][0].re)],
    "vector": _gather,
    "matrix": _gather,
    "element": _element,
    "matmul": matrix_product(_dot),
    "matvec": matrix_product(_dot),
    "dot": matrix_product(_dot),
    "solve": lambda g, node, o: systems.emit(g, o[0], o[1]),
    "named": _same,
    "tagged": _same,
}
