"""From the expression graph to normal form: trees of sums and products become n-ary at once."""

from __future__ import annotations

import math
from collections.abc import Callable

from laddu_dask.compiler.algebra import Algebra
from laddu_dask.compiler.assumptions import Assumptions
from laddu_dask.compiler.elements import each, elementwise, matrix_product
from laddu_dask.compiler.linear_forms import solution
from laddu_dask.compiler.terms import Term
from laddu_dask.expr.node import Node, walk
from laddu_dask.expr.parameters import ParameterSpec

Elements = list[Term]

_SUMS = frozenset({"add", "sub", "neg"})
_PRODUCTS = frozenset({"mul", "div"})


def normalize(root: Node, assumptions: Assumptions) -> tuple[Algebra, Term]:
    """Normal form of a scalar expression under assumptions."""
    a = Algebra(assumptions)
    order = list(walk(root))
    inner = _absorbed(order)
    values: dict[int, Elements] = {}
    for node in order:
        if id(node) in inner:
            continue  # read by its only user, as part of one long sum or product
        if not node.shape and node.op in _SUMS:
            values[id(node)] = [_sum(a, node, inner, values)]
        elif not node.shape and node.op in _PRODUCTS:
            values[id(node)] = [_product(a, node, inner, values)]
        else:
            operands = [values[id(arg)] for arg in node.args]
            values[id(node)] = _RULES[node.op](a, node, operands)
    return a, values[id(root)][0]


def _absorbed(order: list[Node]) -> set[int]:
    """Scalar sums (products) with one user, itself a sum (product)."""
    users: dict[int, list[Node]] = {}
    for node in order:
        for arg in node.args:
            users.setdefault(id(arg), []).append(node)
    found: set[int] = set()
    for node in order:
        using = users.get(id(node), [])
        if node.shape or len(using) != 1 or using[0].shape:
            continue
        for family in (_SUMS, _PRODUCTS):
            if node.op in family and using[0].op in family:
                found.add(id(node))
    return found


def _sum(a: Algebra, top: Node, inner: set[int], values: dict[int, Elements]) -> Term:
    minus = a.lit(-1.0)
    terms: list[Term] = []
    stack: list[tuple[Node, bool, bool]] = [(top, False, True)]
    while stack:
        node, negative, is_top = stack.pop()
        if is_top or id(node) in inner:
            signs = {"add": (False, False), "sub": (False, True), "neg": (True,)}[node.op]
            children = [
                (arg, negative != flip, False) for arg, flip in zip(node.args, signs, strict=True)
            ]
            stack.extend(reversed(children))
        else:
            value = values[id(node)][0]
            terms.append(a.mul([minus, value]) if negative else value)
    return a.add(terms)


def _product(a: Algebra, top: Node, inner: set[int], values: dict[int, Elements]) -> Term:
    terms: list[Term] = []
    stack: list[tuple[Node, bool, bool]] = [(top, False, True)]
    while stack:
        node, below, is_top = stack.pop()
        if is_top or id(node) in inner:
            left, right = node.args
            stack.append((right, below != (node.op == "div"), False))
            stack.append((left, below, False))
        else:
            value = values[id(node)][0]
            terms.append(a.pow(value, -1) if below else value)
    return a.mul(terms)


def _leaf(a: Algebra, node: Node, _: list[Elements]) -> Elements:
    if node.op == "const":
        assert isinstance(node.data, (float, complex))
        return [a.lit(node.data)]
    if node.op == "column":
        return [a.make("column", data=node.data)]
    assert isinstance(node.data, ParameterSpec)
    if node.data.fixed:
        return [a.lit(node.data.initial)]
    return [a.make("parameter", data=node.data.name)]


def _dot(a: Algebra, factors: list[tuple[Term, Term]]) -> Term:
    return a.add(a.mul([x, y]) for x, y in factors)


def _complex(a: Algebra, node: Node, operands: list[Elements]) -> Elements:
    re, im = operands[0][0], operands[1][0]
    x, y = re.literal, im.literal
    if isinstance(x, float) and isinstance(y, float):
        return [a.lit(complex(x, y))]
    if y == 0 and math.copysign(1.0, y.real) > 0:  # -0 is the other side of a cut
        return [re]
    if x == 0 and math.copysign(1.0, x.real) > 0 and im.real:
        return [a.mul([a.lit(1j), im])]  # no zero to add, and factors that group
    return [a.make("complex", (re, im))]


def _call(a: Algebra, node: Node, operands: list[Elements]) -> Elements:
    return [a.make(node.op, [operand[0] for operand in operands])]


def _not_equal(a: Algebra, node: Node, operands: list[Elements]) -> Elements:
    x, y = operands[0][0], operands[1][0]
    return [a.make("or", (a.make("lt", (x, y)), a.make("lt", (y, x))))]


def _element(a: Algebra, node: Node, operands: list[Elements]) -> Elements:
    assert isinstance(node.data, int)
    return [operands[0][node.data]]


def _power(a: Algebra, node: Node, operands: list[Elements]) -> Elements:
    assert isinstance(node.data, int)
    return [a.pow(operands[0][0], node.data)]


def _general_power(a: Algebra, node: Node, operands: list[Elements]) -> Elements:
    base = node.args[0]
    nonnegative = base.is_real and base.is_nonnegative
    return [a.power(operands[0][0], operands[1][0], nonnegative=nonnegative)]


def _root(a: Algebra, node: Node, operands: list[Elements]) -> Elements:
    return [a.sqrt(operands[0][0], nonnegative=node.is_real)]


def _logarithm(a: Algebra, node: Node, operands: list[Elements]) -> Elements:
    return [a.log(operands[0][0], nonnegative=node.is_real)]


def _negated(a: Algebra, x: Term) -> Term:
    return a.mul([a.lit(-1.0), x])


Rule = Callable[[Algebra, Node, list[Elements]], Elements]

_RULES: dict[str, Rule] = {
    "const": _leaf,
    "parameter": _leaf,
    "column": _leaf,
    "add": elementwise(lambda a, x, y: a.add([x, y])),
    "sub": elementwise(lambda a, x, y: a.add([x, _negated(a, y)])),
    "mul": elementwise(lambda a, x, y: a.mul([x, y])),
    "div": elementwise(lambda a, x, y: a.mul([x, a.pow(y, -1)])),
    "neg": each(_negated),
    "conj": each(lambda a, x: a.conj(x)),
    "real": each(lambda a, x: a.part("re", x)),
    "imag": each(lambda a, x: a.part("im", x)),
    "norm_sqr": each(lambda a, x: a.norm_sqr(x)),
    "exp": _call,
    "sin": _call,
    "cos": _call,
    "tan": _call,
    "asin": _call,
    "atan": _call,
    "sinh": _call,
    "cosh": _call,
    "tanh": _call,
    "abs": each(lambda a, x: a.absolute(x)),
    "minimum": _call,
    "maximum": _call,
    "power": _general_power,
    "sqrt": _root,
    "log": _logarithm,
    "pow": _power,
    "atan2": _call,
    "complex": _complex,
    "where": _call,
    "lt": _call,
    "le": _call,
    "eq": _call,
    "ne": _not_equal,
    "and": _call,
    "or": _call,
    "not": _call,
    "vector": lambda a, node, operands: [operand[0] for operand in operands],
    "matrix": lambda a, node, operands: [operand[0] for operand in operands],
    "element": _element,
    "matmul": matrix_product(_dot),
    "matvec": matrix_product(_dot),
    "dot": matrix_product(_dot),
    "solve": lambda a, node, operands: solution(a, operands[0], operands[1]),
    "named": lambda a, node, operands: operands[0],
    "tagged": lambda a, node, operands: operands[0],
}
