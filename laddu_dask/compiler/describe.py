"""Programs in words and numbers, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laddu_dask.compiler.event_programs import EventPrograms
from laddu_dask.compiler.ir import ARITY, CONDITIONS, EVENT, MIXED, PARAMETER
from laddu_dask.compiler.program import Program

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "and": "and",
    "or": "or",
}
_DEEPEST = 6
_LONGEST = 64


@dataclass(frozen=True)
class EventCost:
    """What an event costs.

    Attributes
    ----------
    prepare
        Operations once, while preparing.
    forward, backward
        Operations of the value in every evaluation, and what a gradient takes beyond them.
    cached
        What each cached column is.
    recomputed
        Values that mixed operations read and that are computed again from the columns.
    recomputing
        Operations that takes, among the forward and backward ones.
    """

    prepare: int
    forward: int
    backward: int
    cached: tuple[str, ...]
    recomputed: tuple[str, ...]
    recomputing: int


def event_cost(programs: EventPrograms) -> EventCost:
    """Numbers and texts of event programs."""
    prepare, gradient = programs.prepare, programs.gradient
    cached = tuple(
        expression_text(prepare, output, programs.columns)
        for output in prepare.outputs[: programs.n_cached]
    )
    names = [text if text in programs.columns else f"c{row}" for row, text in enumerate(cached)]
    kinds = _kinds(gradient)
    computed = [
        index
        for index, (op, _, _) in enumerate(gradient.instructions)
        if ARITY.get(op, 0) and kinds[index] == EVENT
    ]
    read = {
        arg
        for i, (_, args, _) in enumerate(gradient.instructions)
        if kinds[i] == MIXED
        for arg in args
    }
    forward = operations(programs.value)
    return EventCost(
        operations(prepare),
        forward,
        operations(gradient) - forward,
        cached,
        tuple(
            expression_text(gradient, index, names)
            for index in computed
            if index in read and gradient.instructions[index][0] not in CONDITIONS
        ),
        len(computed),
    )


def operations(program: Program) -> int:
    """Instructions that compute something for every event."""
    return sum(ARITY.get(op, 0) > 0 and op != "merge" for op, _, _ in program.instructions)


def _kinds(program: Program) -> list[int]:
    """Class of every value of an event program."""
    kinds: list[int] = []
    for op, args, payload in program.instructions:
        kind = 0
        if op == "parameter":
            kind = PARAMETER
        elif op == "input":
            is_weight = program.weighted and int(str(payload)) == program.n_inputs - 1
            kind = MIXED if is_weight else EVENT
        for arg in args:
            kind |= kinds[arg]
        kinds.append(kind)
    return kinds


def expression_text(program: Program, index: int, names: Sequence[str]) -> str:
    """A value as a formula of the input rows, cut short where it is long."""
    text = _text(program, index, names, _DEEPEST)[0]
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."


#: How tightly an operation binds its operands.
_LOOSE, _SUM, _PRODUCT, _POWER, _ATOM = range(5)
_BINDS = {"add": _SUM, "sub": _SUM, "mul": _PRODUCT, "div": _PRODUCT}


def _text(program: Program, index: int, names: Sequence[str], depth: int) -> tuple[str, int]:
    """Formula, and how tightly its outermost operation binds."""
    op, args, payload = program.instructions[index]
    if op == "input":
        return names[int(str(payload))], _ATOM
    if op == "const":
        assert isinstance(payload, float)
        return f"{payload:.6g}", _ATOM if payload >= 0 else _SUM
    if op == "merge":  # what most events have
        return _text(program, args[1], names, depth)
    if not depth:
        return "...", _ATOM
    parts = [_text(program, arg, names, depth - 1) for arg in args]
    if op == "mul" and args[0] == args[1]:
        return f"{_bracketed(parts[0], _ATOM)}**2", _POWER
    if op == "neg":
        return f"-{_bracketed(parts[0], _PRODUCT)}", _SUM
    if op == "not":
        return f"not {_bracketed(parts[0], _ATOM)}", _LOOSE
    if op not in _INFIX:
        return f"{op}({', '.join(text for text, _ in parts)})", _ATOM
    binds = _BINDS.get(op, _LOOSE)
    # The right operand of a difference or quotient needs brackets even if it binds as tightly.
    right = _bracketed(parts[1], binds + (op in {"sub", "div"}))
    if op == "add" and right.startswith("-"):
        return f"{_bracketed(parts[0], binds)} - {right[1:]}", binds
    return f"{_bracketed(parts[0], binds)} {_INFIX[op]} {right}", binds


def _bracketed(part: tuple[str, int], least: int) -> str:
    text, binds = part
    return text if binds >= least else f"({text})"
