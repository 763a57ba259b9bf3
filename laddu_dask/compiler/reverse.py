"""Reverse-mode derivative, accumulated on the parameter-only frontier.

The sweep walks mixed values from the root down and stops at parameter-only ones: their adjoints
are what a kernel sums over events. The chain from there to the parameters is one scalar sweep per
evaluation (`laddu_dask.compiler.invariants`).
"""

from __future__ import annotations

from laddu_dask.compiler import systems
from laddu_dask.compiler.ir import PARAMETER, Graph


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
    zero = g.const(0.0)
    if isinstance(factor, _Chosen):
        pair = (adjoint, zero) if factor.taken else (zero, adjoint)
        return g.select(factor.condition, *pair)
    product = g.mul(adjoint, factor)
    if adjoint in guarded and product != adjoint and g.literal(factor) is None:
        # The branch not taken has adjoint zero and perhaps an infinite slope: 0 * inf must be 0.
        return g.select(g.emit("eq", adjoint, zero), zero, product)
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
    if op == "mul":
        a, b = args
        if a == b:
            return [(a, g.mul(g.const(2.0), a))]
        return [(a, b), (b, a)]
    if op == "div":
        inverse = g.div(g.const(1.0), args[1])
        return [(args[0], inverse), (args[1], g.neg(g.mul(index, inverse)))]
    if op in {"sqrt", "exp", "log", "sin", "cos"}:
        return [(args[0], _slope(g, op, args[0], index))]
    if op == "atan2":
        y, x = args
        inverse = g.div(g.const(1.0), g.add(g.mul(x, x), g.mul(y, y)))
        return [(y, g.mul(x, inverse)), (x, g.neg(g.mul(y, inverse)))]
    if op in {"csqrt_re", "csqrt_im"}:
        return _complex_root(g, op, args)
    if op == "select":
        return [(args[1], _Chosen(args[0], True)), (args[2], _Chosen(args[0], False))]
    return []


def _slope(g: Graph, op: str, x: int, value: int) -> int:
    if op == "sqrt":
        # Zero at the root of zero: the closed side of a threshold contributes nothing, not 0 * inf.
        zero = g.const(0.0)
        return g.select(g.emit("eq", value, zero), zero, g.div(g.const(0.5), value))
    if op == "exp":
        return value
    if op == "log":
        return g.div(g.const(1.0), x)
    if op == "sin":
        return g.call("cos", x)
    return g.neg(g.call("sin", x))


def _complex_root(g: Graph, op: str, args: tuple[int, ...]) -> list[tuple[int, Factor]]:
    """d sqrt(z) = dz / (2 sqrt(z)), as a real 2x2 Jacobian."""
    u, v = g.call("csqrt_re", *args), g.call("csqrt_im", *args)
    scale = g.div(g.const(0.5), g.add(g.mul(u, u), g.mul(v, v)))
    along, across = g.mul(u, scale), g.mul(v, scale)
    if op == "csqrt_re":
        return [(args[0], along), (args[1], across)]
    return [(args[0], g.neg(across)), (args[1], along)]
