"""Reverse-mode derivative, accumulated on the parameter-only frontier.

The sweep walks mixed values from the root down and stops at parameter-only ones: their adjoints
are what a kernel sums over events. The chain from there to the parameters is one scalar sweep per
evaluation (`laddu_dask.compiler.invariants`).
"""

from __future__ import annotations

from collections.abc import Callable

from laddu_dask.compiler import branches, systems
from laddu_dask.compiler.complex_functions import jacobian
from laddu_dask.compiler.ir import COMPLEX, PARAMETER, Graph


def adjoints(g: Graph, root: int, seed: int, guarded: set[int]) -> dict[int, int]:
    """Adjoint of every parameter-only value that mixed values below `root` read.

    Parameters
    ----------
    g
        Graph; adjoint instructions are appended to it.
    root
        The value to differentiate.
    seed
        Derivative of the reduced quantity with respect to `root`, per event.
    guarded
        Adjoints that are exactly zero where a `select` did not take their branch, and then make
        zero with every slope, infinite ones included. Receives those found on the way.

    Returns
    -------
    dict
        Frontier value -> IR value of its adjoint per event.
    """
    pending: dict[int, int] = {}

    def accumulate(target: int, value: int) -> None:
        if not g.kinds[target] & PARAMETER:
            return
        if target in pending:
            terms = (pending[target], value)
            value = g.add(*terms)
            if guarded.issuperset(terms):
                guarded.add(value)
        pending[target] = value

    accumulate(root, seed)
    frontier: dict[int, int] = {}
    for index in range(root, -1, -1):
        if index not in pending:
            continue
        adjoint = pending.pop(index)
        if g.kinds[index] == PARAMETER:
            frontier[index] = adjoint
            continue
        if g.ops[index][0] == "solve":
            seeds = {index: adjoint}
            seeds |= {i: pending.pop(i) for i in systems.siblings(g, index) if i in pending}
            lenient = guarded.issuperset(seeds.values())
            for operand, value in systems.pull_back(g, seeds, lenient=lenient):
                if lenient:
                    guarded.add(value)
                accumulate(operand, value)
            continue
        for operand, factor in partials(g, index):
            if not g.kinds[operand] & PARAMETER:
                continue
            value = _scale(g, adjoint, factor, guarded)
            if isinstance(factor, _Chosen) or adjoint in guarded:
                guarded.add(value)
            accumulate(operand, value)
    return frontier


class _Chosen:
    """Derivative of a select: the adjoint where the condition holds (or fails), else zero."""

    def __init__(self, condition: int, taken: bool) -> None:
        self.condition, self.taken = condition, taken


Factor = int | _Chosen


def _scale(g: Graph, adjoint: int, factor: Factor, guarded: set[int]) -> int:
    if isinstance(factor, _Chosen):
        zero = g.const(0.0)
        pair = (adjoint, zero) if factor.taken else (zero, adjoint)
        return g.select(factor.condition, *pair)
    product = g.mul(adjoint, factor)
    if adjoint in guarded and product != adjoint and g.literal(factor) is None:
        # The branch not taken has adjoint zero and perhaps an infinite slope: 0 * inf must be 0.
        return branches.reached(g, product, [adjoint])
    return product


def partials(g: Graph, index: int) -> list[tuple[int, Factor]]:
    """Operands of a value with the derivative with respect to each, as IR values."""
    op, args, _ = g.ops[index]
    if op == "add":
        return [(args[0], g.const(1.0)), (args[1], g.const(1.0))]
    if op == "sub":
        return [(args[0], g.const(1.0)), (args[1], g.const(-1.0))]
    if op == "neg":
        return [(args[0], g.const(-1.0))]
    if op == "widen":
        return [(args[0], g.const(1.0))]
    if op == "mul":
        a, b = args
        if a == b:
            return [(a, g.mul(g.const(2.0), a))]
        return [(a, b), (b, a)]
    if op == "div":
        inverse = g.div(g.const(1.0), args[1])
        return [(args[0], inverse), (args[1], g.neg(g.mul(index, inverse)))]
    if op in _SLOPES:
        return [(args[0], _SLOPES[op](g, args[0], index))]
    if op == "atan2":
        y, x = args
        inverse = g.div(g.const(1.0), g.add(g.mul(x, x), g.mul(y, y)))
        return [(y, g.mul(x, inverse)), (x, g.neg(g.mul(y, inverse)))]
    if op in COMPLEX:
        return list(zip(args, jacobian(g, op, *args), strict=True))
    if op == "hypot":
        return _hypot(g, args[0], args[1], index)
    if op == "pow":
        return _power(g, args[0], args[1], index)
    if op == "select":
        return [(args[1], _Chosen(args[0], True)), (args[2], _Chosen(args[0], False))]
    return []


def _root(g: Graph, x: int, value: int) -> int:
    # Zero at the root of zero: the closed side of a threshold contributes nothing, not 0 * inf.
    zero = g.const(0.0)
    return g.select(g.emit("eq", value, zero), zero, g.div(g.const(0.5), value))


def _tanh(g: Graph, x: int, value: int) -> int:
    # Not 1 - tanh**2, which cancels.
    inverse = g.div(g.const(1.0), g.call("cosh", x))
    return g.mul(inverse, inverse)


def _absolute(g: Graph, x: int, value: int) -> int:
    zero = g.const(0.0)
    return g.select(g.emit("eq", x, zero), zero, g.call("copysign", g.const(1.0), x))


def _hypot(g: Graph, x: int, y: int, value: int) -> list[tuple[int, Factor]]:
    """Direction of (x, y); zero at the origin, like the slope of an absolute value."""
    zero = g.const(0.0)
    origin = g.emit("eq", value, zero)
    return [(part, g.select(origin, zero, g.div(part, value))) for part in (x, y)]


def _power(g: Graph, x: int, y: int, value: int) -> list[tuple[int, Factor]]:
    """Of ``|x|**y``. At x = 0 both are zero where they do not exist: as at the root of zero."""
    zero, one = g.const(0.0), g.const(1.0)
    origin = g.emit("eq", x, zero)
    flat = g.emit("and", origin, g.emit("lt", y, one))
    slope = g.mul(y, g.call("pow", x, g.sub(y, one)))
    slope = g.mul(slope, g.call("copysign", one, x))
    growth = g.mul(value, g.call("log", g.select(origin, one, g.call("abs", x))))
    return [(x, g.select(flat, zero, slope)), (y, growth)]


#: Derivative from the argument and the value.
_SLOPES: dict[str, Callable[[Graph, int, int], int]] = {
    "sqrt": _root,
    "exp": lambda g, x, value: value,
    "log": lambda g, x, value: g.div(g.const(1.0), x),
    "sin": lambda g, x, value: g.call("cos", x),
    "cos": lambda g, x, value: g.neg(g.call("sin", x)),
    "tan": lambda g, x, value: g.add(g.const(1.0), g.mul(value, value)),
    "sinh": lambda g, x, value: g.call("cosh", x),
    "cosh": lambda g, x, value: g.call("sinh", x),
    "tanh": _tanh,
    "abs": _absolute,
}
