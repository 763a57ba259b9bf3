"""Programs without events, run in plain Python floats with IEEE semantics.

``1/0`` is inf and ``log(-1)`` NaN, as everywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from laddu_dask.compiler.ir import Instruction, Region


def _divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _sinh(x: float) -> float:
    try:
        return math.sinh(x)
    except OverflowError:
        return math.copysign(math.inf, x)


def _cosh(x: float) -> float:
    try:
        return math.cosh(x)
    except OverflowError:
        return math.inf


def _power(x: float, y: float) -> float:
    """``|x|**y``."""
    size = abs(x)
    if size == 0 and y < 0:
        return math.inf
    try:
        return math.pow(size, y)
    except OverflowError:
        return math.inf


def _log(x: float) -> float:
    if x > 0:
        return math.log(x)
    return -math.inf if x == 0 else math.nan


def _circular(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: function(x) if math.isfinite(x) else math.nan


#: What operations do; conditions are Python's truth values.
FUNCTIONS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _divide,
    "neg": lambda a: -a,
    "sqrt": _sqrt,
    "exp": _exp,
    "log": _log,
    "sin": _circular(math.sin),
    "cos": _circular(math.cos),
    "tan": _circular(math.tan),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": math.tanh,
    "abs": abs,
    "hypot": math.hypot,
    "pow": _power,
    "atan2": math.atan2,
    "copysign": math.copysign,
    "select": lambda c, a, b: a if c else b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a: not a,
}


def run_scalar(
    instructions: Sequence[Instruction], parameters: Sequence[float], outputs: Sequence[int]
) -> list[float]:
    """Evaluate a program without event inputs."""
    values: list[Any] = []  # of a region: its results, or None where they are not needed
    for op, args, payload in instructions:
        if op == "const":
            assert isinstance(payload, float)
            values.append(payload)
        elif op in {"parameter", "input"}:
            values.append(parameters[int(str(payload))])
        elif isinstance(payload, Region):
            operands = [values[arg] for arg in args[1:]]
            wanted = values[args[0]]
            values.append(
                run_scalar(payload.instructions, operands, payload.outputs) if wanted else None
            )
        elif op == "merge":
            slow, value = (values[arg] for arg in args)
            values.append(value if slow is None else slow[int(str(payload))])
        else:
            values.append(FUNCTIONS[op](*(values[arg] for arg in args)))
    return [values[output] for output in outputs]
