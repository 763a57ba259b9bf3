"""Programs without events, run in plain Python floats with IEEE semantics.

``1/0`` is inf and ``log(-1)`` NaN, as everywhere else. The numbers of one program come out with the
same bits whether it is interpreted or has been turned into Python code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from laddu_dask.compiler.ir import Instruction, Region

#: Runs after which a program is turned into code: that takes as long as some thirty runs.
_OFTEN = 16
#: Instructions in one piece of code; Python's compiler takes time and memory for long functions.
_PIECE = 1000


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


_FUNCTIONS: dict[str, Callable[..., float]] = {
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
            values.append(_FUNCTIONS[op](*(values[arg] for arg in args)))
    return [values[output] for output in outputs]


#: Operations that Python has itself, with the same results on floats.
_TEMPLATES = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "neg": "-{}",
    "div": "{0} / {1} if {1} else div({0}, {1})",  # Python refuses to divide by zero
    "lt": "{} < {}",
    "le": "{} <= {}",
    "eq": "{} == {}",
    "and": "{} and {}",
    "or": "{} or {}",
    "not": "not {}",
    "select": "{1} if {0} else {2}",
}

#: Takes values that pieces share and parameters; the last one returns the outputs.
Piece = Callable[[dict[int, Any], Sequence[float]], list[float] | None]


class Evaluator:
    """A program that is run many times.

    Parameters
    ----------
    instructions
        The program, without event inputs.
    outputs
        Indices of the instructions whose values are wanted.
    """

    def __init__(self, instructions: Sequence[Instruction], outputs: Sequence[int]) -> None:
        self._instructions, self._outputs = instructions, outputs
        self._runs = 0
        self._pieces: list[Piece] | None = None

    def __reduce__(self) -> tuple[type[Evaluator], tuple[object, ...]]:
        return Evaluator, (self._instructions, self._outputs)

    def __call__(self, parameters: Sequence[float]) -> list[float]:
        """Values of the outputs."""
        if self._pieces is None:
            self._runs += 1
            if self._runs < _OFTEN:
                return run_scalar(self._instructions, parameters, self._outputs)
            self._pieces = _pieces(self._instructions, self._outputs)
        shared: dict[int, Any] = {}
        *others, last = self._pieces
        for piece in others:
            piece(shared, parameters)
        outputs = last(shared, parameters)
        assert outputs is not None
        return outputs


def _pieces(instructions: Sequence[Instruction], outputs: Sequence[int]) -> list[Piece]:
    """Straight-line Python functions that run one after the other.

    A value lives in a variable of its piece; those that later pieces read are also entries of the
    table that all share.
    """
    last = max(len(instructions) - 1, 0) // _PIECE
    shared = {output for output in outputs if output // _PIECE != last}
    for index, (_, args, _) in enumerate(instructions):
        shared.update(arg for arg in args if arg // _PIECE != index // _PIECE)
    pieces = [_piece(instructions, k * _PIECE, (k + 1) * _PIECE, shared) for k in range(last)]
    return [*pieces, _piece(instructions, last * _PIECE, len(instructions), shared, outputs)]


def _piece(
    instructions: Sequence[Instruction],
    start: int,
    stop: int,
    shared: set[int],
    outputs: Sequence[int] | None = None,
) -> Piece:
    lines = ["def piece(v, p):"]
    names: dict[str, object] = dict(_FUNCTIONS)
    for index in range(start, stop):
        op, args, payload = instructions[index]
        operands = [f"x{arg}" if arg >= start else f"v[{arg}]" for arg in args]
        if op == "const":
            text = f"c{index}"
            names[text] = payload  # by its bits, which no spelling of a NaN has
        elif op == "parameter":
            text = f"p[{payload}]"
        elif isinstance(payload, Region):
            condition, *inputs = operands
            names[f"r{index}"] = partial(_results, payload)
            text = f"r{index}([{', '.join(inputs)}]) if {condition} else None"
        elif op == "merge":
            slow, value = operands
            text = f"{value} if {slow} is None else {slow}[{payload}]"
        else:
            template = _TEMPLATES.get(op)
            text = template.format(*operands) if template else f"{op}({', '.join(operands)})"
        target = f"v[{index}] = x{index}" if index in shared else f"x{index}"
        lines.append(f"    {target} = {text}")
    if outputs is not None:
        found = [f"x{output}" if output >= start else f"v[{output}]" for output in outputs]
        lines.append(f"    return [{', '.join(found)}]")
    scope: dict[str, Piece] = {}
    exec(compile("\n".join(lines), "<parameter program>", "exec"), names, scope)
    return scope["piece"]


def _results(region: Region, operands: Sequence[float]) -> list[float]:
    return run_scalar(region.instructions, operands, region.outputs)
