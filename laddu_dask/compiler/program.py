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
    live,
)
from laddu_dask.compiler.order import by_need
from laddu_dask.compiler.precision import Precision
from laddu_dask.compiler.systems import SYSTEMS, last_unknowns, order
from laddu_dask.compiler.unrolling import Unrolling
from laddu_dask.errors import LadduError


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
        head = (self.n_inputs, self.n_parameters, self.outputs, self.weighted, self.precision)
        state = hashlib.blake2b(repr((head, self.instructions)).encode(), digest_size=16)
        # The text names every number but NaN by its bits.
        numbers = [x for _, _, x in _with_bodies(self.instructions) if isinstance(x, float)]
        state.update(struct.pack(f"<{len(numbers)}d", *numbers))
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


def _with_bodies(instructions: Sequence[Instruction]) -> Iterator[Instruction]:
    """Instructions, and behind each region those that it consists of."""
    for instruction in instructions:
        yield instruction
        if isinstance(instruction[2], Region):
            yield from _with_bodies(instruction[2].instructions)


def _verify(
    instructions: Sequence[Instruction],
    outputs: Sequence[int],
    n_inputs: int,
    n_parameters: int,
    where: str,
) -> None:
    unmerged: set[tuple[int, int]] = set()
    kinds = bytearray(len(instructions))
    limits = {"input": n_inputs, "parameter": n_parameters}
    for index, (op, args, payload) in enumerate(instructions):
        arity = _KERNEL_ARITY.get(op)
        if arity is None and op != "cold":
            raise LadduError(f"{where} instruction {index}: {op!r} is not a kernel operation")
        wanted = _OPERANDS.get(op) or [_NUMBER] * len(args)
        if op == "cold":
            wanted = [_CONDITION, *wanted[1:]]
        elif len(args) != arity:
            raise LadduError(f"{where} instruction {index}: {op} has operands {args}")
        if args and not 0 <= min(args) <= max(args) < index:
            raise LadduError(f"{where} instruction {index}: {op} has operands {args}")
        if op == "const" and not isinstance(payload, float):
            raise LadduError(f"{where} instruction {index}: literal {payload!r} is no float")
        if op in limits and not 0 <= int(str(payload)) < limits[op]:
            raise LadduError(f"{where} instruction {index}: {op} {payload} of {limits[op]}")
        found = [kinds[arg] for arg in args]
        if found != wanted:
            is_region = [kind == _REGION for kind in found] != [kind == _REGION for kind in wanted]
            mixed_up = "a region" if is_region else "a condition"
            raise LadduError(f"{where} instruction {index}: {op} mixes up {mixed_up}")
        if op in CONDITIONS:
            kinds[index] = _CONDITION
        if isinstance(payload, Region) != (op == "cold") or (op == "cold" and not args):
            raise LadduError(
                f"{where} instruction {index}: cold, and nothing else, has code and a condition"
            )
        if isinstance(payload, Region):
            kinds[index] = _REGION
            inside = f"{where} instruction {index}, region"
            _verify(payload.instructions, payload.outputs, len(args) - 1, 0, inside)
            unmerged |= {(index, result) for result in range(len(payload.outputs))}
        elif op == "merge":
            merged = args[0], int(str(payload))
            if args[1] > args[0] or merged not in unmerged:
                raise LadduError(
                    f"{where} instruction {index}: merge of {args} and result {payload} of a region"
                )
            unmerged.remove(merged)
    if unmerged:
        raise LadduError(
            f"{where}: (instruction, result) {min(unmerged)} of a region is not merged"
        )
    for output in outputs:
        if not 0 <= output < len(instructions):
            raise LadduError(f"{where} output {output} of {len(instructions)}")
        if kinds[output] != _NUMBER:
            kind = "a condition" if kinds[output] == _CONDITION else "a region"
            raise LadduError(f"{where} output {output} is {kind}")


#: What a value of a program is.
_NUMBER, _CONDITION, _REGION = 0, 1, 2
#: What the operands of an operation are, where not all are numbers.
_OPERANDS = {
    "and": [_CONDITION, _CONDITION],
    "or": [_CONDITION, _CONDITION],
    "not": [_CONDITION],
    "select": [_CONDITION, _NUMBER, _NUMBER],
    "merge": [_REGION, _NUMBER],
}
#: Number of operands of what programs may hold; that of regions varies.
_KERNEL_ARITY = {
    op: arity for op, arity in ARITY.items() if op not in COMPLEX | {"column", "weight"}
} | {"input": 0}
#: What is made of simpler operations when a program is cut.
_COMPOUND = COMPLEX | SYSTEMS | {branches.REACHED}


def cut(
    graph: Graph,
    outputs: Sequence[int],
    inputs: Mapping[int, int],
    parameters: Mapping[int, int],
    *,
    weighted: bool = False,
    precision: Precision = "f64",
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
    weighted
        Whether the event weight follows as one more input row.
    precision
        What the operations round to; see `Program`.
    """
    n_inputs = max(inputs.values(), default=-1) + 1
    n_parameters = max(parameters.values(), default=-1) + 1  # not every index need have a reader
    leaves: dict[int, Instruction] = {}
    for value, row in inputs.items():
        leaves[value] = ("input", (), str(row))
    for value, index in parameters.items():
        leaves[value] = ("parameter", (), str(index))
    needed = live(graph, outputs, leaves)
    for value in needed:
        if graph.ops[value][0] == "weight":
            leaves[value] = ("input", (), str(n_inputs))
    computed = [value for value in needed if value not in leaves]
    compound = any(graph.ops[value][0] in _COMPOUND for value in computed)
    code = (_unrolled if compound else _copied)(graph, computed, outputs, leaves)
    body, rows = by_need(*code)
    program = Program(body, n_inputs + weighted, n_parameters, rows, weighted, precision)
    program.verify()
    return program


_Code = tuple[tuple[Instruction, ...], tuple[int, ...]]


def _copied(
    graph: Graph, computed: Sequence[int], outputs: Sequence[int], leaves: Mapping[int, Instruction]
) -> _Code:
    """Instructions as they stand, renumbered, behind the leaves that they read."""
    ops = graph.ops
    read = set(outputs).union(*(ops[index][1] for index in computed))
    kept = [value for value in leaves if value in read]
    new = {value: position for position, value in enumerate([*kept, *computed])}
    body = [leaves[value] for value in kept]
    for index in computed:
        op, args, payload = ops[index]
        body.append((op, tuple([new[arg] for arg in args]), payload))
    return tuple(body), tuple([new[output] for output in outputs])


def _unrolled(
    graph: Graph, computed: Sequence[int], outputs: Sequence[int], leaves: Mapping[int, Instruction]
) -> _Code:
    """The same where compound operations have become simple ones, equal ones once."""
    g = Graph()
    systems = Unrolling(g)
    done = {value: g.emit(op, payload=payload) for value, (op, _, payload) in leaves.items()}
    last = last_unknowns(graph, computed)
    for index in computed:
        op, args, payload = graph.ops[index]
        operands = tuple([done[arg] for arg in args])
        if op in COMPLEX:
            done[index] = expand(g, op, *operands)
        elif op == branches.REACHED:
            done[index] = branches.expand(g, operands)
        elif op in SYSTEMS:
            done[index] = systems.value(op, operands, payload, last[args[: 2 * order(args) ** 2]])
        else:
            done[index] = g.emit(op, *operands, payload=payload)
    instructions, rows = compact(g, [done[output] for output in outputs])
    return systems.with_regions(instructions), rows
