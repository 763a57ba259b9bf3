"""A program: straight-line real code from input rows and parameters to output rows.

Every backend implements exactly this. `prepare` programs have event columns as inputs and cached
columns as outputs; `events` programs read cached columns and frontier values.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from laddu_dask.compiler import branches
from laddu_dask.compiler.complex_functions import expand
from laddu_dask.compiler.ir import (
    ARITY,
    COMPLEX,
    CONDITIONS,
    Graph,
    Instruction,
    Region,
    compact,
)
from laddu_dask.compiler.systems import SYSTEMS, last_unknowns, order
from laddu_dask.compiler.unrolling import Unrolling
from laddu_dask.errors import LadduError

Precision = Literal["f64", "f32"]


@dataclass(frozen=True)
class Program:
    """Straight-line code over one event.

    Attributes
    ----------
    instructions
        Real IR in order of evaluation. Leaves are ``input`` (payload: row as text), ``parameter``
        (payload: index as text) and ``const``.
    n_inputs, n_parameters
        Number of input rows and of scalar parameters.
    outputs
        Index of the instruction that each output row takes its value from.
    weighted
        Whether the last input row is the event weight.
    precision
        What the operations round to. With ``"f32"`` inputs, parameters and literals are rounded to
        single precision first; the weight, what ``widen`` gives and what comes of these two are
        doubles, and so are the outputs. Regions work with doubles, and what they give is rounded
        to the precision of the value that it replaces.
    """

    instructions: tuple[Instruction, ...]
    n_inputs: int
    n_parameters: int
    outputs: tuple[int, ...]
    weighted: bool = False
    precision: Precision = "f64"

    @cached_property
    def digest(self) -> str:
        """Hexadecimal content digest; names the compiled code in caches."""
        state = hashlib.blake2b(digest_size=16)
        head = (self.n_inputs, self.n_parameters, self.outputs, self.weighted, self.precision)
        state.update(repr(head).encode())
        for instruction in _with_bodies(self.instructions):
            state.update(repr(instruction).encode())
        return state.hexdigest()

    @property
    def size(self) -> int:
        """Number of instructions, those of regions included."""
        return sum(1 for _ in _with_bodies(self.instructions))

    @property
    def n_outputs(self) -> int:
        """Number of output rows."""
        return len(self.outputs)

    def verify(self) -> None:
        """Check the rules of the IR; a violation is a defect of the compiler.

        Raises
        ------
        LadduError
            Naming the instruction and the rule.
        """
        _verify(self.instructions, self.outputs, self.n_inputs, self.n_parameters, "program")


def _with_bodies(instructions: Sequence[Instruction]) -> Iterator[tuple[object, ...]]:
    """Instructions with literals as bits, and regions as what they consist of."""
    for op, args, payload in instructions:
        if isinstance(payload, Region):
            yield op, args, payload.outputs, len(payload.instructions)
            yield from _with_bodies(payload.instructions)
        else:
            yield op, args, struct.pack("<d", payload) if isinstance(payload, float) else payload


def _verify(
    instructions: Sequence[Instruction],
    outputs: Sequence[int],
    n_inputs: int,
    n_parameters: int,
    where: str,
) -> None:
    unmerged: set[tuple[int, int]] = set()
    for index, (op, args, payload) in enumerate(instructions):
        at = f"{where} instruction {index}"
        arity = len(args) if op == "cold" else 0 if op == "input" else ARITY.get(op)
        if arity is None or op in COMPLEX | {"column", "weight"}:
            raise LadduError(f"{at}: {op!r} is not a kernel operation")
        if len(args) != arity or any(not 0 <= arg < index for arg in args):
            raise LadduError(f"{at}: {op} has operands {args}")
        if op == "const" and not isinstance(payload, float):
            raise LadduError(f"{at}: literal {payload!r} is no float")
        if op in {"input", "parameter"}:
            limit = n_inputs if op == "input" else n_parameters
            if not 0 <= int(str(payload)) < limit:
                raise LadduError(f"{at}: {op} {payload} of {limit}")
        for place, arg in enumerate(args):
            wants = op in {"and", "or", "not"} or (op in {"select", "cold"} and place == 0)
            if (instructions[arg][0] in CONDITIONS) != wants:
                raise LadduError(f"{at}: {op} mixes up a condition")
            if (instructions[arg][0] == "cold") != (op == "merge" and place == 0):
                raise LadduError(f"{at}: {op} mixes up a region")
        if isinstance(payload, Region) != (op == "cold") or (op == "cold" and not args):
            raise LadduError(f"{at}: cold, and nothing else, has code and a condition")
        if isinstance(payload, Region):
            _verify(payload.instructions, payload.outputs, len(args) - 1, 0, f"{at}, region")
            unmerged |= {(index, result) for result in range(len(payload.outputs))}
        if op == "merge":
            result = args[0], int(str(payload))
            if args[1] > args[0] or result not in unmerged:
                raise LadduError(f"{at}: merge of {args} and result {payload} of a region")
            unmerged.remove(result)
    if unmerged:
        raise LadduError(
            f"{where}: (instruction, result) {min(unmerged)} of a region is not merged"
        )
    for output in outputs:
        if not 0 <= output < len(instructions):
            raise LadduError(f"{where} output {output} of {len(instructions)}")
        if instructions[output][0] in CONDITIONS:
            raise LadduError(f"{where} output {output} is a condition")
        if instructions[output][0] == "cold":
            raise LadduError(f"{where} output {output} is a region")


def cut(
    graph: Graph,
    outputs: Sequence[int],
    inputs: Mapping[int, int],
    parameters: Mapping[int, int],
    *,
    weight_row: int | None = None,
) -> Program:
    """Cut a program out of a graph.

    Parameters
    ----------
    graph
        The whole graph.
    outputs
        Values to compute, one per output row.
    inputs
        Value -> input row; these are loaded instead of computed.
    parameters
        Value -> parameter index; likewise.
    weight_row
        Input row of the event weight.
    """
    g = Graph()
    systems = Unrolling(g)
    done: dict[int, int] = {}
    for value, row in inputs.items():
        done[value] = g.emit("input", payload=str(row))
    for value, index in parameters.items():
        done[value] = g.emit("parameter", payload=str(index))
    needed = to_compute(graph, outputs, done)
    last = last_unknowns(graph, needed)
    for index in needed:
        op, args, payload = graph.ops[index]
        operands = tuple(done[arg] for arg in args)
        if op == "weight":
            done[index] = g.emit("input", payload=str(weight_row))
        elif op in COMPLEX:
            done[index] = expand(g, op, *operands)
        elif op == branches.REACHED:
            done[index] = branches.expand(g, operands)
        elif op in SYSTEMS:
            done[index] = systems.value(op, operands, payload, last[args[: 2 * order(args) ** 2]])
        else:
            done[index] = g.emit(op, *operands, payload=payload)
    instructions, rows = compact(g, [done[output] for output in outputs])
    n_inputs = max([*inputs.values(), -1 if weight_row is None else weight_row, -1]) + 1
    program = Program(
        systems.with_regions(instructions),
        n_inputs,
        max(parameters.values(), default=-1) + 1,  # not every index need have a reader
        rows,
        weighted=weight_row is not None,
    )
    program.verify()
    return program


def to_compute(graph: Graph, outputs: Sequence[int], available: Mapping[int, int]) -> list[int]:
    """What must be computed for the outputs when some values are available, ascending."""
    found: set[int] = set()
    stack = [output for output in outputs if output not in available]
    while stack:
        index = stack.pop()
        if index in found:
            continue
        found.add(index)
        stack.extend(arg for arg in graph.ops[index][1] if arg not in available)
    return sorted(found)
