"""NumPy block interpreter of programs: no compilation, and the oracle of the compiled kernels.

Blocks have a fixed length, the last one filled up by repetition, so that NumPy's vector loops see
the same layout whatever the partitioning, and a result never depends on the position of an event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from laddu_dask.compiler.program import Program
from laddu_dask.kernels.accumulator import TILE, Accumulator
from laddu_dask.kernels.backend import Array, Purpose, Rows, Weights

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
    program: Program, inputs: Rows, parameters: Array, weights: Weights = None
) -> list[Any]:
    """Every value of a program over a block of events, in instruction order."""
    kind: type = np.float32 if program.precision == "f32" else np.float64
    length = inputs.shape[1]
    values: list[Any] = []
    literals: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for op, args, payload in program.instructions:
            if op == "input":
                row = int(str(payload))
                if program.weighted and row == program.n_inputs - 1:
                    found = inputs[row] if weights is None else weights
                    values.append(np.full(length, found, dtype=np.float64))
                else:
                    values.append(inputs[row])
            elif op == "parameter":
                values.append(np.full(length, parameters[int(str(payload))], dtype=kind))
            elif op == "const":
                literals[len(values)] = np.full(length, payload)
                values.append(literals[len(values)].astype(kind))
            else:
                operands = [values[arg] for arg in args]
                if any(operand.dtype == np.float64 for operand in operands):
                    # A literal that meets a double is that of the program, not its nearest float.
                    operands = [literals.get(arg, values[arg]) for arg in args]
                values.append(_apply(op, operands))
    return values


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

    def _rows(
        self, inputs: Rows, start: int, events: int, parameters: Array, weights: Weights
    ) -> Array:
        block = np.empty((inputs.shape[0], BLOCK), dtype=inputs.dtype)
        stop = min(start + BLOCK, events)
        block[:, : stop - start] = inputs[:, start:stop]
        block[:, stop - start :] = inputs[:, stop - 1 : stop]
        own = weights
        if isinstance(weights, np.ndarray):
            own = np.zeros(BLOCK)
            own[: stop - start] = weights[start:stop]
        values = run_block(self.program, block, parameters, own)
        rows = np.empty((self.program.n_outputs, stop - start))
        for row, output in enumerate(self.program.outputs):
            rows[row] = values[output][: stop - start]
        return rows

    def map(self, inputs: Rows, parameters: Array, out: Array, weights: Weights = None) -> None:
        """See `laddu_dask.kernels.backend.Kernel.map`."""
        events = out.shape[1]
        for start in range(0, events, BLOCK):
            stop = min(start + BLOCK, events)
            out[:, start:stop] = self._rows(inputs, start, events, parameters, weights)

    def reduce(
        self,
        inputs: Rows,
        events: int,
        parameters: Array,
        accumulator: Accumulator,
        first_event: int,
        start: int = 0,
        weights: Weights = None,
    ) -> None:
        """See `laddu_dask.kernels.backend.Kernel.reduce`."""
        for position in range(start, events, BLOCK):
            rows = self._rows(inputs, position, events, parameters, weights)
            accumulator.add_tiles(rows, first_event + position)


class InterpreterBackend:
    """Kernels without compilation."""

    name = "interpreter"

    def compile(self, program: Program, purpose: Purpose = "map") -> InterpreterKernel:
        """Wrap the program; it is ready for everything."""
        return InterpreterKernel(program)
