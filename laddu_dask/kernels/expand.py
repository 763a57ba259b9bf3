"""From a program of real functions to machine operations."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from laddu_dask.compiler.ir import Instruction, Region
from laddu_dask.compiler.program import Program
from laddu_dask.kernels import elementary, powers
from laddu_dask.kernels.hyperbolic import Hyperbola
from laddu_dask.kernels.oplist import Kind, OpList, Value, bits

_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "neg", "sqrt", "select"})
#: Functions whose costly part serves several of them at one argument.
_SHARED: dict[str, type[elementary.Circle | Hyperbola]] = {
    "sin": elementary.Circle,
    "cos": elementary.Circle,
    "tan": elementary.Circle,
    "sinh": Hyperbola,
    "cosh": Hyperbola,
    "tanh": Hyperbola,
}
#: Functions of a program up to which each is written where it is used; of more, a kind is written
#: once and called, which runs as fast and is compiled in a tenth of the time.
_FEW = 8
_CONDITIONS = {"lt": "lt", "le": "le", "eq": "eq", "and": "band", "or": "bor", "not": "bnot"}


def expand(program: Program) -> tuple[OpList, list[Value]]:
    """Operation list of a program and the value of each output row, a double.

    In single precision arithmetic is done with floats, whatever has a double among its operands
    with doubles. A function takes and gives floats and works with doubles in between, which makes
    it as good as correctly rounded.
    """
    ops = OpList()
    native: Kind = "f" if program.precision == "f32" else "d"

    def leaf(op: str, number: int) -> Value:
        if op == "input" and program.weighted and number == program.n_inputs - 1:
            return ops.emit("weight", "d")
        return ops.emit(op, native, data=number)

    called = _functions(program.instructions) > _FEW
    expansion = _Expansion(ops, program.instructions, native, leaf, called=called)
    return ops, expansion.doubles(program.outputs)


def _functions(instructions: Sequence[Instruction]) -> int:
    """Number of functions that take many operations."""
    count = 0
    for op, _, payload in instructions:
        if isinstance(payload, Region):
            count += _functions(payload.instructions)
        count += op in _SHARED or op in _LONG
    return count


class _Expansion:
    def __init__(
        self,
        ops: OpList,
        instructions: Sequence[Instruction],
        native: Kind,
        leaf: Callable[[str, int], Value],
        *,
        called: bool,
    ) -> None:
        self.ops, self._native, self._leaf, self._called = ops, native, leaf, called
        self._values: list[Value] = []
        self._doubles: dict[int, Value] = {}
        #: Which functions of a family there are of one argument, and their values once known.
        self._wanted: dict[tuple[type, int], dict[str, Value | None]] = {}
        for op, args, _ in instructions:
            if op in _SHARED:
                self._wanted.setdefault((_SHARED[op], args[0]), {})[op] = None
        self._merged: dict[tuple[int, int], Value] = {}
        # What each result of a region replaces; all of it is there before the region.
        self._replaced = {
            (args[0], int(str(payload))): args[1]
            for op, args, payload in instructions
            if op == "merge"
        }
        for index, (op, args, payload) in enumerate(instructions):
            self._values.append(self._value(index, op, args, payload))

    def doubles(self, outputs: Sequence[int]) -> list[Value]:
        """Values as doubles."""
        return [self._double(output) for output in outputs]

    def _double(self, index: int) -> Value:
        """A value as a double; a literal is that of the program, not its nearest float."""
        if self._values[index].kind != "f":
            return self._values[index]
        if index not in self._doubles:
            self._doubles[index] = self.ops.widen(self._values[index])
        return self._doubles[index]

    def _value(self, index: int, op: str, args: tuple[int, ...], payload: object) -> Value:
        g = self.ops
        if op in {"input", "parameter"}:
            return self._leaf(op, int(str(payload)))
        if op == "const":
            assert isinstance(payload, float)
            return self._literal(index, payload)
        if isinstance(payload, Region):
            self._cold(index, payload, [self._values[arg] for arg in args])
            return self._values[args[0]]  # nobody reads the region itself
        if op == "merge":
            return self._merged[args[0], int(str(payload))]
        if op == "widen":
            return self._double(args[0])
        kinds = {self._values[arg].kind for arg in args} - {"b"}
        kind: Kind = "f" if kinds == {"f"} else "d"
        a = [self._double(arg) if kind == "d" else self._values[arg] for arg in args]
        if op in _CONDITIONS:
            return g.emit(_CONDITIONS[op], "b", *a)
        if op in _ARITHMETIC:
            return g.emit(op, kind, *a)
        if op in _SHARED:
            value = self._family(_SHARED[op], args[0], op)
        else:
            value = self._function(op, [self._double(arg) for arg in args])
        return g.narrow(value) if kind == "f" else value

    def _cold(self, index: int, region: Region, operands: Sequence[Value]) -> None:
        g = self.ops
        places = [(index, result) for result in range(len(region.outputs))]
        fast = [self._values[self._replaced[place]] for place in places]

        def slow() -> list[Value]:
            doubles = [g.widen(operand) for operand in operands[1:]]
            inner = _Expansion(
                g,
                region.instructions,
                "d",
                lambda _, number: doubles[number],
                called=self._called,
            )
            results = inner.doubles(region.outputs)
            return [
                g.narrow(result) if value.kind == "f" else result
                for result, value in zip(results, fast, strict=True)
            ]

        self._merged |= zip(places, g.cold(operands[0], fast, slow), strict=True)

    def _literal(self, index: int, x: float) -> Value:
        if self._native == "d":
            return self.ops.const(x)
        self._doubles[index] = self.ops.const(x)
        return self.ops.emit("const", "f", data=bits(_nearest_float(x)))

    def _function(self, op: str, args: Sequence[Value]) -> Value:
        g = self.ops
        if not self._called or op not in _LONG:
            return _FUNCTIONS[op](g, *args)
        return g.call(op, args, lambda *inner: [_FUNCTIONS[op](g, *inner)])[0]

    def _family(self, family: type[elementary.Circle | Hyperbola], argument: int, op: str) -> Value:
        found = self._wanted[family, argument]
        value = found[op]
        if value is None:
            names, x = sorted(found), self._double(argument)

            def build(inner: Value) -> list[Value]:
                shared = family(self.ops, inner)
                return [getattr(shared, name)() for name in names]

            values = self.ops.call("_".join(names), [x], build) if self._called else build(x)
            found.update(zip(names, values, strict=True))
            value = found[op]
            assert value is not None
        return value


def _nearest_float(x: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", x))[0])
    except OverflowError:
        return float("inf") if x > 0 else float("-inf")


def _copysign(g: OpList, size: Value, sign: Value) -> Value:
    return (g.absolute(size).as_integer() | g.sign_bit(sign)).as_double()


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "abs": lambda g, x: g.absolute(x),
    "hypot": powers.hypot,
    "pow": powers.power,
    "exp": elementary.exp,
    "log": elementary.log,
    "atan2": elementary.atan2,
    "copysign": _copysign,
}
_LONG = frozenset({"hypot", "pow", "exp", "log", "atan2"})
