"""From a program of real functions to machine operations."""

from __future__ import annotations

from collections.abc import Callable

from laddu_dask.compiler.program import Program
from laddu_dask.kernels import elementary, powers
from laddu_dask.kernels.hyperbolic import Hyperbola
from laddu_dask.kernels.oplist import OpList, Value

_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "div": "div"}
#: Functions whose costly part serves several of them at one argument.
_SHARED: dict[str, type[elementary.Circle | Hyperbola]] = {
    "sin": elementary.Circle,
    "cos": elementary.Circle,
    "tan": elementary.Circle,
    "sinh": Hyperbola,
    "cosh": Hyperbola,
    "tanh": Hyperbola,
}
_LOGICAL = {"and": "band", "or": "bor"}


def expand(program: Program) -> tuple[OpList, list[Value]]:
    """Operation list of a program and the value of each output row."""
    g = OpList()
    values: list[Value] = []
    shared: dict[tuple[type, int], elementary.Circle | Hyperbola] = {}
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
        elif op in _SHARED:
            family = _SHARED[op]
            key = family, args[0]
            if key not in shared:
                shared[key] = family(g, a[0])
            value = getattr(shared[key], op)()
        else:
            value = _FUNCTIONS[op](g, *a)
        values.append(value)
    return g, [values[output] for output in program.outputs]


def _copysign(g: OpList, size: Value, sign: Value) -> Value:
    return (g.absolute(size).as_integer() | g.sign_bit(sign)).as_double()


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "neg": lambda g, x: -x,
    "abs": lambda g, x: g.absolute(x),
    "hypot": powers.hypot,
    "pow": powers.power,
    "sqrt": lambda g, x: g.sqrt(x),
    "exp": elementary.exp,
    "log": elementary.log,
    "atan2": elementary.atan2,
    "copysign": _copysign,
    "select": lambda g, condition, a, b: g.select(condition, a, b),
}
