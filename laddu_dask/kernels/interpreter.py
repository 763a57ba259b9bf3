"""NumPy block interpreter of programs: no compilation, and the oracle of the compiled kernels.

Blocks have a fixed length, the last one filled up by repetition, so that NumPy's vector loops see
the same layout whatever the partitioning, and a result never depends on the position of an event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from laddu_dask.compiler.evaluator import Evaluator
from laddu_dask.compiler.ir import Instruction, Region
from laddu_dask.compiler.program import Program
from laddu_dask.compiler.questions import Question
from laddu_dask.kernels.accumulator import TILE, Accumulator
from laddu_dask.kernels.arguments import check_target, check_window
from laddu_dask.kernels.backend import Array, Pieces, Purpose, Rows, Weights, whole_vectors
from laddu_dask.kernels.column_layout import as_rows, capacity, put

BLOCK = TILE

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "abs": np.abs,
    "hypot": np.hypot,
    "pow": lambda x, y: np.power(np.abs(x), y),
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "widen": lambda x: x.astype(np.float64),
    "select": np.where,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
}

#: What has a float as result only because it is rounded to one.
_ROUNDED = frozenset(
    {"exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "hypot", "pow", "atan2"}
)


def run_block(
    program: Program,
    inputs: Rows,
    parameters: Array,
    weights: Weights = None,
    finished: Sequence[Sequence[int]] | None = None,
) -> list[Any]:
    """Every value of a program over a block of events, in instruction order.

    In the place of a region are the events that need it and its results, none if no event does.
    With `finished` (see `last_uses`) values are given up once nothing reads them any more.
    """
    kind: type = np.float32 if program.precision == "f32" else np.float64
    length = inputs.shape[1]

    def leaf(op: str, number: int) -> Any:
        if op == "parameter":
            return np.full(length, parameters[number], dtype=kind)
        if program.weighted and number == program.n_inputs - 1:
            found = inputs[number] if weights is None else weights
            return np.full(length, found, dtype=np.float64)
        return inputs[number]

    with np.errstate(all="ignore"):
        uses = [()] * len(program.instructions) if finished is None else finished
        return _run(program.instructions, uses, leaf, length, kind)


def last_uses(instructions: Sequence[Instruction], outputs: Sequence[int]) -> list[list[int]]:
    """For each instruction the values that nothing reads after it."""
    uses: list[list[int]] = [[] for _ in instructions]
    seen = set(outputs)
    for index in range(len(uses) - 1, -1, -1):
        for arg in instructions[index][1]:
            if arg not in seen:
                seen.add(arg)
                uses[index].append(arg)
    return uses


def _run(
    instructions: Sequence[Instruction],
    finished: Sequence[Sequence[int]],
    leaf: Callable[[str, int], Any],
    length: int,
    kind: type,
) -> list[Any]:
    values: list[Any] = []
    literals: dict[int, Array] = {}
    for (op, args, payload), done in zip(instructions, finished, strict=True):
        operands = [values[arg] for arg in args]
        if op in {"input", "parameter"}:
            values.append(leaf(op, int(str(payload))))
        elif op == "const":
            literals[len(values)] = np.full(length, payload)
            values.append(literals[len(values)].astype(kind))
        elif isinstance(payload, Region):
            values.append((operands[0], _results(payload, operands[0], operands[1:])))
        elif op == "merge":
            (wanted, results), value = operands
            slow = results[int(str(payload))].astype(value.dtype) if results else value
            values.append(np.where(wanted, slow, value))
        else:
            if any(operand.dtype == np.float64 for operand in operands):
                # A literal that meets a double is that of the program, not its nearest float.
                operands = [literals.get(arg, values[arg]) for arg in args]
            values.append(_apply(op, operands))
        for arg in done:
            values[arg] = None
            literals.pop(arg, None)
    return values


def _results(region: Region, wanted: Array, operands: Sequence[Array]) -> list[Any]:
    """Results of a region for the whole block, none if no event needs them."""
    if not wanted.any():
        return []
    doubles = [operand.astype(np.float64) for operand in operands]
    uses = last_uses(region.instructions, region.outputs)
    code = region.instructions
    values = _run(code, uses, lambda _, number: doubles[number], len(wanted), np.float64)
    return [values[output] for output in region.outputs]


def _apply(op: str, operands: list[Any]) -> Any:
    """One operation; functions of floats are rounded once, from doubles."""
    function = _FUNCTIONS[op]
    if op in _ROUNDED and all(operand.dtype == np.float32 for operand in operands):
        return function(*(operand.astype(np.float64) for operand in operands)).astype(np.float32)
    return function(*operands)


class InterpreterKernel:
    """A program and the block loop that runs it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._last_uses = last_uses(program.instructions, program.outputs)

    def rows(
        self, inputs: Rows, start: int, events: int, parameters: Array, weights: Weights
    ) -> Array:
        """Output rows of the block that begins with an event, at most up to `events`."""
        stop = min(start + BLOCK, events)
        rows = as_rows(inputs, start, stop)
        block = np.empty((rows.shape[0], BLOCK), dtype=inputs.dtype)
        block[:, : stop - start] = rows
        block[:, stop - start :] = rows[:, -1:]
        own = weights
        if isinstance(weights, np.ndarray):
            own = np.zeros(BLOCK)
            own[: stop - start] = weights[start:stop]
        values = run_block(self.program, block, parameters, own, self._last_uses)
        out = np.empty((self.program.n_outputs, stop - start))
        for row, output in enumerate(self.program.outputs):
            out[row] = values[output][: stop - start]
        return out

    def map(
        self,
        inputs: Rows,
        parameters: Array,
        out: Array,
        weights: Weights = None,
        first: int = 0,
    ) -> None:
        """See `laddu_dask.kernels.backend.Kernel.map`."""
        check_window(self.program, inputs, out, first)
        events = capacity(inputs)
        for start in range(0, events, BLOCK):
            stop = min(start + BLOCK, events)
            block = self.rows(inputs, start, events, parameters, weights)
            out[:, first + start : first + stop] = block

    def bind(
        self, inputs: Rows, events: int, first_event: int, weights: Weights = None
    ) -> InterpreterReduction:
        """See `laddu_dask.kernels.backend.Kernel.bind`."""
        return InterpreterReduction(self, inputs, events, first_event, weights)


class InterpreterReduction:
    """See `laddu_dask.kernels.backend.Reduction`."""

    def __init__(
        self,
        kernel: InterpreterKernel,
        inputs: Rows,
        events: int,
        first_event: int,
        weights: Weights,
    ) -> None:
        self.events, self._first_event = events, first_event
        self._kernel, self._inputs, self._weights = kernel, inputs, weights

    def __call__(
        self, parameters: Array, sums: Accumulator, start: int = 0, stop: int | None = None
    ) -> None:
        """Block by block."""
        end = self.events if stop is None else stop
        for position in range(start, end, BLOCK):
            rows = self._kernel.rows(self._inputs, position, end, parameters, self._weights)
            sums.add_tiles(rows, self._first_event + position)


class InterpreterPreparer:
    """See `laddu_dask.kernels.backend.Preparer`."""

    def __init__(self, kernel: InterpreterKernel, kept: int, questions: Sequence[Question]) -> None:
        self._kernel, self._kept, self._questions = kernel, kept, questions

    def sources(self, pieces: Pieces) -> InterpreterSources:
        """See `laddu_dask.kernels.backend.Preparer`."""
        return InterpreterSources(pieces, self._kernel.program.n_inputs)

    def prepare(
        self,
        sources: InterpreterSources,
        start: int,
        stop: int,
        target: Rows,
        first: int,
        room: Callable[[Sequence[int]], Any],
    ) -> list[int]:
        """All events at once."""
        events, program = stop - start, self._kernel.program
        check_target(target, self._kept, first, events)
        inputs = np.empty((program.n_inputs, whole_vectors(events)))
        inputs[:, :events] = sources.columns[:, start:stop]
        inputs[:, events:] = inputs[:, events - 1 : events]
        rows = np.empty((program.n_outputs, inputs.shape[1]))
        self._kernel.map(inputs, np.zeros(0), rows)
        with np.errstate(over="ignore", under="ignore"):
            put(target, first, rows[: self._kept], events)
        return [question.answer(rows) for question in self._questions]


class InterpreterSources:
    """See `laddu_dask.kernels.backend.Sources`."""

    def __init__(self, pieces: Pieces, columns: int) -> None:
        self.events = sum(size for size, _ in pieces)
        self.columns = np.empty((columns, self.events))
        taken = 0
        for size, given in pieces:
            for row, column in zip(self.columns, given, strict=True):
                row[taken : taken + size] = column
            taken += size


class InterpreterBackend:
    """Kernels without compilation."""

    name = "interpreter"
    evaluator: type[Evaluator] = Evaluator

    def by_vectors(self, columns: int) -> bool:
        """Never: NumPy works on rows."""
        return False

    def add_numbers(self, numbers: Array, first_event: int, sums: Accumulator) -> None:
        """As the accumulator does."""
        sums.add_rows(numbers[np.newaxis, :], first_event)

    def preparer(
        self, program: Program, kept: int, questions: Sequence[Question]
    ) -> InterpreterPreparer:
        """See `laddu_dask.kernels.backend.Backend`."""
        return InterpreterPreparer(InterpreterKernel(program), kept, questions)

    def compile(self, program: Program, purpose: Purpose = "map") -> InterpreterKernel:
        """Wrap the program; it is ready for everything."""
        return InterpreterKernel(program)

    def compile_soon(self, program: Program, purpose: Purpose) -> None:
        """Nothing needs to be done."""
