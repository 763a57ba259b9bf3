"""Kernel IR: real scalar operations in static single assignment form.

Complex values have become pairs of real ones, vectors and matrices lists of them. Each value has a
dependency class; the class decides in which of the three programs it is computed. The graph is
hash-consed, so writing a common sub-expression twice costs nothing.

Only identities that hold for every input bit pattern are applied while building: ``1 x``, ``-1 x``,
``x / 1``, ``x - 0``, ``-(-x)``, signs moved through sums, products and quotients, and arithmetic on
literals. ``0 x`` and ``x / x`` stay, since they are NaN for some x, and so does ``x + 0``, which
changes the sign of a zero.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

EVENT, PARAMETER = 1, 2
MIXED = EVENT | PARAMETER

# A weight is mixed, not event-only: nothing that contains it may become a cached column. Nor may
# what is worked out in double precision: a column of a kernel in single precision is rounded.
_LEAF_KIND = {
    "column": EVENT,
    "parameter": PARAMETER,
    "logarithmic": PARAMETER,
    "weight": MIXED,
    "widen": MIXED,
}

#: Parts of analytic functions of x + iy; they become real operations when programs are cut.
COMPLEX = frozenset(
    f"{name}_{part}" for name in ("csqrt", "casin", "catanh", "ctanh") for part in ("re", "im")
)
#: Operations and their number of operands. `logarithmic` is a number that tells one program which
#: of two transforms it computes. Conditions (`lt` ... `not`) are lane predicates. `pow` is
#: ``|x|**y``; `widen` does nothing to a double (see `Program.precision`). Systems of equations
#: (`laddu_dask.compiler.systems`) take as many operands as they have coefficients. In programs
#: `cold` computes a region from a condition and the operands of the region, for events where the
#: condition holds; `merge` replaces a value computed before it by a result of the region there.
ARITY = {
    "const": 0,
    "column": 0,
    "parameter": 0,
    "logarithmic": 0,
    "weight": 0,
    "add": 2,
    "sub": 2,
    "mul": 2,
    "div": 2,
    "neg": 1,
    "sqrt": 1,
    "exp": 1,
    "log": 1,
    "sin": 1,
    "cos": 1,
    "tan": 1,
    "sinh": 1,
    "cosh": 1,
    "tanh": 1,
    "abs": 1,
    "atan2": 2,
    "hypot": 2,
    "pow": 2,
    **dict.fromkeys(COMPLEX, 2),
    "copysign": 2,
    "widen": 1,
    "select": 3,
    "lt": 2,
    "le": 2,
    "eq": 2,
    "and": 2,
    "or": 2,
    "not": 1,
    "merge": 2,
}
CONDITIONS = frozenset({"lt", "le", "eq", "and", "or", "not"})


@dataclass(frozen=True)
class Region:
    """Straight-line code inside a program that runs only for events that need it.

    Attributes
    ----------
    instructions
        Like those of a program; ``input`` k is operand k of the region.
    outputs
        Index of the instruction that each result takes its value from.
    """

    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]


Payload = float | str | Region | None
Instruction = tuple[str, tuple[int, ...], Payload]

#: The bits of a number: literals are equal if these are.
_bits = struct.Struct("<d").pack


class Graph:
    """Growing list of instructions; a value is the index of its instruction."""

    def __init__(self) -> None:
        self.ops: list[Instruction] = []
        self.kinds: list[int] = []
        #: Forms of pairs of values, see `laddu_dask.compiler.presence`.
        self.forms: dict[tuple[int | None, int | None], int] = {}
        self._known: dict[object, int] = {}

    def branch(self) -> Graph:
        """A graph with the same values, to be continued on its own."""
        new = Graph()
        new.ops, new.kinds, new._known = self.ops.copy(), self.kinds.copy(), self._known.copy()
        new.forms = self.forms.copy()
        return new

    def emit(self, op: str, *args: int, payload: Payload = None) -> int:
        """Append an instruction, or return the equal one that exists."""
        key: object
        if payload is None:
            key = (op, args)
        elif isinstance(payload, float):
            key = _bits(payload)
        else:
            key = (op, args, payload)
        known = self._known.get(key)
        if known is not None:
            return known
        kinds = self.kinds
        kind = _LEAF_KIND.get(op, 0)
        for arg in args:
            kind |= kinds[arg]
        index = self._known[key] = len(self.ops)
        self.ops.append((op, args, payload))
        kinds.append(kind)
        return index

    def copy(self, other: Graph, values: Iterable[int]) -> dict[int, int]:
        """Append the part of another graph below `values`; returns its values -> values here."""
        done: dict[int, int] = {}
        for index in live(other, values):
            op, args, payload = other.ops[index]
            done[index] = self.emit(op, *(done[arg] for arg in args), payload=payload)
        return done

    # leaves --------------------------------------------------------------------------------

    def const(self, value: float) -> int:
        """A literal."""
        known = self._known.get(_bits(value))
        return self.emit("const", payload=float(value)) if known is None else known

    def literal(self, index: int) -> float | None:
        """The number if the value is a literal."""
        op, _, payload = self.ops[index]
        return payload if op == "const" and isinstance(payload, float) else None

    def _number(self, index: int) -> float:
        number = self.ops[index][2]
        assert isinstance(number, float), "only literals have numbers"
        return number

    # arithmetic ----------------------------------------------------------------------------

    def add(self, a: int, b: int) -> int:
        """``a + b``."""
        left, right = self.ops[a][0], self.ops[b][0]
        if left == "const" == right:
            return self.const(self._number(a) + self._number(b))
        if right == "neg":
            return self.sub(a, self.ops[b][1][0])
        if left == "neg":
            return self.sub(b, self.ops[a][1][0])
        return self.emit("add", a, b) if a <= b else self.emit("add", b, a)

    def sub(self, a: int, b: int) -> int:
        """``a - b``."""
        right = self.ops[b][0]
        if right == "const":
            y = self._number(b)
            if self.ops[a][0] == "const":
                return self.const(self._number(a) - y)
            if y == 0 and math.copysign(1.0, y) > 0:
                return a
        elif right == "neg":
            return self.add(a, self.ops[b][1][0])
        return self.emit("sub", a, b)

    def neg(self, a: int) -> int:
        """``-a``."""
        op, args, _ = self.ops[a]
        if op == "const":
            return self.const(-self._number(a))
        return args[0] if op == "neg" else self.emit("neg", a)

    def mul(self, a: int, b: int) -> int:
        """``a b``."""
        left, right = self.ops[a][0], self.ops[b][0]
        if left == "const":
            x = self._number(a)
            if right == "const":
                return self.const(x * self._number(b))
            if x == 1:
                return b
            if x == -1:
                return self.neg(b)
        elif right == "const":
            y = self._number(b)
            if y == 1:
                return a
            if y == -1:
                return self.neg(a)
        if left == "neg":
            return self.neg(self.mul(self.ops[a][1][0], b))
        if right == "neg":
            return self.neg(self.mul(a, self.ops[b][1][0]))
        return self.emit("mul", a, b) if a <= b else self.emit("mul", b, a)

    def div(self, a: int, b: int) -> int:
        """``a / b``."""
        left = self.ops[a][0]
        if self.ops[b][0] == "const":
            y = self._number(b)
            if y == 1:
                return a
            if left == "const" and y != 0:
                return self.const(self._number(a) / y)
        if left == "neg":
            return self.neg(self.div(self.ops[a][1][0], b))
        return self.emit("div", a, b)

    def power(self, a: int, exponent: int) -> int:
        """Integer power by repeated squaring, the reciprocal last."""
        result, base, left = None, a, abs(exponent)
        while left:
            if left & 1:
                result = base if result is None else self.mul(result, base)
            left >>= 1
            if left:
                base = self.mul(base, base)
        if result is None:
            return self.const(1.0)
        return self.div(self.const(1.0), result) if exponent < 0 else result

    def select(self, condition: int, a: int, b: int) -> int:
        """`a` where the condition holds, else `b`."""
        return a if a == b else self.emit("select", condition, a, b)

    def call(self, function: str, *args: int) -> int:
        """A function of `ARITY` by name; nothing is folded."""
        return self.emit(function, *args)


def live(graph: Graph, outputs: Iterable[int], available: Container[int] = ()) -> list[int]:
    """Indices of everything the outputs need, ascending; not what is available, nor below it."""
    ops = graph.ops
    needed = bytearray(len(ops))
    top = -1
    for output in outputs:
        if output not in available:
            needed[output] = 1
            top = max(top, output)
    found: list[int] = []
    for index in range(top, -1, -1):  # operands come before what reads them
        if needed[index]:
            found.append(index)
            for arg in ops[index][1]:
                if not needed[arg] and arg not in available:
                    needed[arg] = 1
    found.reverse()
    return found


def compact(
    graph: Graph, outputs: Sequence[int]
) -> tuple[tuple[Instruction, ...], tuple[int, ...]]:
    """The instructions that the outputs need, renumbered, and the outputs among them."""
    kept = live(graph, outputs)
    new = {old: position for position, old in enumerate(kept)}
    instructions = [graph.ops[old] for old in kept]
    return (
        tuple([(op, tuple([new[x] for x in args]), payload) for op, args, payload in instructions]),
        tuple([new[output] for output in outputs]),
    )
