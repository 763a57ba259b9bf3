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
from laddu_dask.kernels.backend import Array, Purpose

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
    "select": np.where,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
}


def run_block(program: Program, inputs: Array, parameters: Array) -> list[Array]:
    """Every value of a program over a block of events, in instruction order."""
    length = inputs.shape[1]
    values: list[Array] = []
    with np.errstate(all="ignore"):
        for op, args, payload in program.instructions:
            if op == "input":
                values.append(inputs[int(str(payload))])
            elif op == "parameter":
                values.append(np.full(length, parameters[int(str(payload))]))
            elif op == "const":
                values.append(np.full(length, payload))
            else:
                values.append(_FUNCTIONS[op](*(values[arg] for arg in args)))
    return values


class InterpreterKernel:
    """A program and the block loop that runs it."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def _rows(self, inputs: Array, start: int, events: int, parameters: Array) -> Array:
        block = np.empty((inputs.shape[0], BLOCK))
        stop = min(start + BLOCK, events)
        block[:, : stop - start] = inputs[:, start:stop]
        block[:, stop - start :] = inputs[:, stop - 1 : stop]
        values = run_block(self.program, block, parameters)
        rows = np.empty((self.program.n_outputs, stop - start))
        for row, output in enumerate(self.program.outputs):
            rows[row] = values[output][: stop - start]
        return rows

    def map(self, inputs: Array, parameters: Array, out: Array) -> None:
        """See `laddu_dask.kernels.backend.Kernel.map`."""
        events = out.shape[1]
        for start in range(0, events, BLOCK):
            stop = min(start + BLOCK, events)
            out[:, start:stop] = self._rows(inputs, start, events, parameters)

    def reduce(
        self,
        inputs: Array,
        events: int,
        parameters: Array,
        accumulator: Accumulator,
        first_event: int,
        start: int = 0,
    ) -> None:
        """See `laddu_dask.kernels.backend.Kernel.reduce`."""
        for position in range(start, events, BLOCK):
            rows = self._rows(inputs, position, events, parameters)
            accumulator.add_tiles(rows, first_event + position)


class InterpreterBackend:
    """Kernels without compilation."""

    name = "interpreter"

    def compile(self, program: Program, purpose: Purpose = "map") -> InterpreterKernel:
        """Wrap the program; it is ready for everything."""
        return InterpreterKernel(program)
