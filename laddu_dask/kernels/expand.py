"""From a program of real functions to machine operations."""

from __future__ import annotations

from collections.abc import Callable

from laddu_dask.compiler.program import Program
from laddu_dask.kernels import elementary
from laddu_dask.kernels.oplist import OpList, Value

_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "div": "div"}
_LOGICAL = {"and": "band", "or": "bor"}


def expand(program: Program) -> tuple[OpList, list[Value]]:
    """Operation list of a program and the value of each output row."""
    g = OpList()
    values: list[Value] = []
    circles: dict[int, tuple[Value, Value]] = {}
    for op, args, payload in program.instructions:
        a = [values[arg] for arg in args]
        if op == "input":
            value = g.input(int(str(payload)))
        elif op == "parameter":
            value = g.parameter(int(str(payload)))
        elif op == "const":
            assert isinstance(payload, float)
            value = g.const(payload)
        elif op in _ARITHMETIC:
            value = g.emit(_ARITHMETIC[op], "d", *a)
        elif op in {"lt", "le", "eq"}:
            value = g.emit(op, "b", *a)
        elif op in _LOGICAL:
            value = g.emit(_LOGICAL[op], "b", *a)
        elif op == "not":
            value = g.emit("bnot", "b", *a)
        elif op in {"sin", "cos"}:
            if args[0] not in circles:
                circles[args[0]] = elementary.sincos(g, a[0])
            value = circles[args[0]][op == "cos"]
        else:
            value = _FUNCTIONS[op](g, *a)
        values.append(value)
    return g, [values[output] for output in program.outputs]


def _copysign(g: OpList, size: Value, sign: Value) -> Value:
    return (g.absolute(size).as_integer() | g.sign_bit(sign)).as_double()


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "neg": lambda g, x: -x,
    "sqrt": lambda g, x: g.sqrt(x),
    "exp": elementary.exp,
    "log": elementary.log,
    "atan2": elementary.atan2,
    "copysign": _copysign,
    "select": lambda g, condition, a, b: g.select(condition, a, b),
}
