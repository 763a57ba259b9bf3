"""The machine operation list: the one definition that compiled kernels print.

Nodes are doubles, floats (single precision), 64-bit integers or lane conditions. Each is one
correctly rounded or exact operation; a fused multiply-add exists only where it is written. The same
list therefore gives the same bits in whatever instructions it is printed, and a lane never depends
on its neighbours.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["d", "f", "i", "b"]


def bits(x: float) -> int:
    """The 64 bits of a double as a signed integer."""
    (word,) = struct.unpack("<q", struct.pack("<d", x))
    return int(word)


@dataclass(frozen=True)
class Cold:
    """A region that runs only when its condition holds in some lane; results merge by select."""

    condition: int
    body: tuple[Op, ...]
    fast: tuple[int, ...]
    slow: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A call of a function of the list; the operation's arguments are the function's."""

    function: str
    results: tuple[int, ...]


@dataclass(frozen=True)
class Function:
    """Operations on doubles that are written once; `argument` k in them is that of the call."""

    arguments: int
    body: tuple[Op, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Op:
    """One operation; `index` names its result."""

    index: int
    name: str
    kind: Kind
    args: tuple[int, ...] = ()
    data: int | str | Cold | Call | None = None

    @property
    def defined(self) -> tuple[int, ...]:
        """Everything that has a value after the operation."""
        return self.data.results if isinstance(self.data, Cold | Call) else (self.index,)


class Value:
    """Handle of a result, with operators that never fuse."""

    __slots__ = ("index", "kind", "ops")

    def __init__(self, ops: OpList, index: int, kind: Kind) -> None:
        self.ops, self.index, self.kind = ops, index, kind

    def _other(self, other: Value | float) -> Value:
        if isinstance(other, Value):
            return other
        return self.ops.const(other) if self.kind == "d" else self.ops.integer(int(other))

    def _binary(self, name: str, other: Value | float) -> Value:
        return self.ops.emit(name, self.kind, self, self._other(other))

    def _compare(self, name: str, other: Value | float) -> Value:
        prefix = "" if self.kind == "d" else "i"
        return self.ops.emit(prefix + name, "b", self, self._other(other))

    def __add__(self, other: Value | float) -> Value:
        return self._binary("add" if self.kind == "d" else "iadd", other)

    def __radd__(self, other: float) -> Value:
        return self._other(other) + self

    def __sub__(self, other: Value | float) -> Value:
        return self._binary("sub" if self.kind == "d" else "isub", other)

    def __rsub__(self, other: float) -> Value:
        return self._other(other) - self

    def __mul__(self, other: Value | float) -> Value:
        return self._binary("mul", other)

    def __rmul__(self, other: float) -> Value:
        return self._other(other) * self

    def __truediv__(self, other: Value | float) -> Value:
        return self._binary("div", other)

    def __rtruediv__(self, other: float) -> Value:
        return self._other(other) / self

    def __neg__(self) -> Value:
        return self.ops.emit("neg", "d", self)

    def __and__(self, other: Value | int) -> Value:
        return self._binary("band" if self.kind == "b" else "and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary("bor" if self.kind == "b" else "or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._binary("bxor" if self.kind == "b" else "xor", other)

    def __lt__(self, other: Value | float) -> Value:
        return self._compare("lt", other)

    def __le__(self, other: Value | float) -> Value:
        return self._compare("le", other)

    def __gt__(self, other: Value | float) -> Value:
        return self._other(other) < self

    def equals(self, other: Value | float) -> Value:
        """Ordered equality."""
        return self._compare("eq", other)

    def shift_left(self, count: int) -> Value:
        """Integer shift."""
        return self.ops.emit("shl", "i", self, self.ops.integer(count))

    def shift_right(self, count: int) -> Value:
        """Arithmetic integer shift."""
        return self.ops.emit("ashr", "i", self, self.ops.integer(count))

    def as_integer(self) -> Value:
        """The bits of a double as an integer."""
        return self.ops.emit("d2i", "i", self)

    def as_double(self) -> Value:
        """Integer bits as a double."""
        return self.ops.emit("i2d", "d", self)


class OpList:
    """A list under construction.

    Attributes
    ----------
    body
        Operations in order.
    tables
        Constant tables that `gather` reads, by name.
    functions
        What `call` refers to, by name.
    """

    def __init__(self) -> None:
        self.body: list[Op] = []
        self.tables: dict[str, tuple[float, ...]] = {}
        self.functions: dict[str, Function] = {}
        self._count = 0

    def emit(self, name: str, kind: Kind, *args: Value, data: int | str | None = None) -> Value:
        """Append one operation."""
        index = self._count
        self._count += 1
        self.body.append(Op(index, name, kind, tuple(arg.index for arg in args), data))
        return Value(self, index, kind)

    def const(self, x: float) -> Value:
        """A double literal, by its bits."""
        return self.emit("const", "d", data=bits(float(x)))

    def widen(self, x: Value) -> Value:
        """A float as a double, exactly; doubles stay what they are."""
        return self.emit("widen", "d", x) if x.kind == "f" else x

    def narrow(self, x: Value) -> Value:
        """The nearest float."""
        return self.emit("narrow", "f", x)

    def integer(self, x: int) -> Value:
        """An integer literal."""
        return self.emit("iconst", "i", data=int(x))

    def fma(self, a: Value | float, b: Value | float, c: Value | float) -> Value:
        """``a b + c``, rounded once."""
        parts = [x if isinstance(x, Value) else self.const(x) for x in (a, b, c)]
        return self.emit("fma", "d", *parts)

    def sqrt(self, x: Value) -> Value:
        """Correctly rounded square root."""
        return self.emit("sqrt", "d", x)

    def rint(self, x: Value) -> Value:
        """Nearest integer, ties to even."""
        return self.emit("rint", "d", x)

    def select(self, condition: Value, a: Value | float, b: Value | float) -> Value:
        """`a` where the condition holds, else `b`."""
        reference = a if isinstance(a, Value) else b
        kind: Kind = reference.kind if isinstance(reference, Value) else "d"
        make = self.const if kind == "d" else lambda x: self.integer(int(x))
        first = a if isinstance(a, Value) else make(a)
        second = b if isinstance(b, Value) else make(b)
        return self.emit("select", kind, condition, first, second)

    def absolute(self, x: Value) -> Value:
        """Clear the sign bit."""
        return (x.as_integer() & 0x7FFFFFFFFFFFFFFF).as_double()

    def sign_bit(self, x: Value) -> Value:
        """The sign bit, as an integer with only that bit."""
        return x.as_integer() & (-1 << 63)

    def is_nan(self, x: Value) -> Value:
        """Unordered with itself."""
        return self.emit("unordered", "b", x, x)

    def canonical_nan(self, condition: Value, x: Value) -> Value:
        """One NaN bit pattern where the condition holds; processors propagate different ones."""
        nan = self.emit("const", "d", data=0x7FF8 << 48)
        return self.select(condition, nan, x)

    def gather(self, name: str, table: Sequence[float], index: Value) -> Value:
        """Entry of a constant table."""
        self.tables[name] = tuple(table)
        return self.emit("gather", "d", index, data=name)

    def cold(
        self, condition: Value, fast: Sequence[Value], slow: Callable[[], Sequence[Value]]
    ) -> list[Value]:
        """`fast` results, replaced by those of `slow` in lanes where the condition holds.

        Both have the same kinds.
        """
        outer, self.body = self.body, []
        results = slow()
        inner, self.body = tuple(self.body), outer
        first = self._count
        self._count += len(fast)
        indices = tuple(range(first, self._count))
        region = Cold(
            condition.index,
            inner,
            tuple(v.index for v in fast),
            tuple(v.index for v in results),
            indices,
        )
        self.body.append(Op(-1, "cold", "d", (), region))
        return [Value(self, index, value.kind) for index, value in zip(indices, fast, strict=True)]

    def call(
        self, name: str, args: Sequence[Value], build: Callable[..., Sequence[Value]]
    ) -> list[Value]:
        """Results of a function of doubles, which `build` makes of arguments when it is new."""
        if name not in self.functions:
            outer, self.body = self.body, []
            results = build(*(self.emit("argument", "d", data=k) for k in range(len(args))))
            made = tuple(v.index for v in results)
            self.functions[name] = Function(len(args), tuple(self.body), made)
            self.body = outer
        first = self._count
        self._count += len(self.functions[name].results)
        indices = tuple(range(first, self._count))
        operands = tuple(arg.index for arg in args)
        self.body.append(Op(-1, "call", "d", operands, Call(name, indices)))
        return [Value(self, index, "d") for index in indices]

    def two_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Sum and its rounding error, for any order of magnitudes (Knuth)."""
        total = a + b
        part = total - a
        return total, (a - (total - part)) + (b - part)

    def fast_two_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Sum and its rounding error for ``|a| >= |b|`` (Dekker)."""
        total = a + b
        return total, b - (total - a)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """``c0 + c1 x + ...`` by two Horner chains in x**2; the order is part of the definition."""
        square = x * x

        def horner(chain: Sequence[float]) -> Value:
            value = self.const(chain[-1])
            for c in chain[-2::-1]:
                value = self.fma(value, square, c)
            return value

        return self.fma(horner(coefficients[1::2]), x, horner(coefficients[0::2]))
