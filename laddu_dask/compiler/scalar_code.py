"""Programs without events as Python code, for programs that run often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from laddu_dask.compiler.ir import Instruction, Region
from laddu_dask.compiler.scalar import FUNCTIONS, run_scalar

#: Instructions in one piece of code; Python's compiler takes time and memory for long functions.
_PIECE = 1000

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


def pieces(instructions: Sequence[Instruction], outputs: Sequence[int]) -> list[Piece]:
    """Straight-line Python functions that run one after the other.

    A value lives in a variable of its piece; those that later pieces read are also entries of the
    table that all share.
    """
    last = max(len(instructions) - 1, 0) // _PIECE
    shared = {output for output in outputs if output // _PIECE != last}
    for index, (_, args, _) in enumerate(instructions):
        shared.update(arg for arg in args if arg // _PIECE != index // _PIECE)
    first = [_piece(instructions, k * _PIECE, (k + 1) * _PIECE, shared) for k in range(last)]
    return [*first, _piece(instructions, last * _PIECE, len(instructions), shared, outputs)]


def _piece(
    instructions: Sequence[Instruction],
    start: int,
    stop: int,
    shared: set[int],
    outputs: Sequence[int] | None = None,
) -> Piece:
    lines = ["def piece(v, p):"]
    names: dict[str, object] = dict(FUNCTIONS)
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
