"""Programs of parameters, evaluated many times: their values, and what is asked of them.

They run once per evaluation, while the events wait. The first runs are interpreted, and a program
that runs often becomes Python code; backends have evaluators that make more of it. The numbers have
the same bits in every stage; only which of several NaN a NaN is may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from laddu_dask.compiler.assumptions import Property
from laddu_dask.compiler.ir import Instruction
from laddu_dask.compiler.layout import Vector
from laddu_dask.compiler.precision import Precision, all_moderate, is_moderate
from laddu_dask.compiler.scalar import run_scalar
from laddu_dask.compiler.scalar_code import Piece, pieces

#: Runs after which a program is turned into code: that takes as long as some thirty runs.
OFTEN = 16

#: Instructions and outputs.
ScalarProgram = tuple[tuple[Instruction, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Demands:
    """What the outputs of a program must be for regrouped forms to be valid.

    Attributes
    ----------
    guards
        Properties of the last outputs.
    precision
        In which all others are moderate (see `laddu_dask.compiler.precision`).
    """

    guards: tuple[Property, ...] = ()
    precision: Precision = "f64"


class Evaluator:
    """A program that is run many times, from any thread.

    Parameters
    ----------
    program
        The program, without event inputs.
    demands
        What `valid` and `weighted` ask of its outputs.
    """

    def __init__(self, program: ScalarProgram, demands: Demands | None = None) -> None:
        self.instructions, self.outputs = program
        self.demands = demands or Demands()
        self.n_values = len(self.outputs) - len(self.demands.guards)
        self._runs = 0
        self._pieces: list[Piece] | None = None

    def __reduce__(self) -> tuple[type[Evaluator], tuple[object, ...]]:
        """Code stays where it is."""
        return type(self), ((self.instructions, self.outputs), self.demands)

    def __call__(self, *inputs: Vector) -> Vector:
        """Values of the outputs; the inputs are read one behind the other."""
        return np.array(self._run(inputs), dtype=np.float64)

    def valid(self, *inputs: Vector) -> Vector | None:
        """Outputs but the guarded ones; None if a demand is not met."""
        values = self._valid(inputs)
        return None if values is None else np.array(values, dtype=np.float64)

    def weighted(self, weights: Vector, *inputs: Vector) -> tuple[float, float] | None:
        """Sum of the valid outputs, and of their moduli, each times a weight.

        Weights have shape (2, outputs but the guarded ones). None if a demand is not met.
        """
        values = self._valid(inputs)
        if values is None:
            return None
        total = size = 0.0
        for value, slope, modulus in zip(values, *weights.tolist(), strict=True):
            total += value * slope
            size += abs(value) * modulus
        return total, size

    def _valid(self, inputs: Sequence[Vector]) -> list[float] | None:
        found = self._run(inputs)
        values, guarded = found[: self.n_values], found[self.n_values :]
        precision = self.demands.precision
        for guard, value in zip(self.demands.guards, guarded, strict=True):
            if not holds(guard, value, precision):
                return None
        return values if all_moderate(values, precision) else None

    def _run(self, inputs: Sequence[Vector]) -> list[float]:
        numbers = [number for vector in inputs for number in vector.tolist()]
        if self._pieces is None:
            self._runs += 1
            self._hasten(self._runs)
            return run_scalar(self.instructions, numbers, self.outputs)
        shared: dict[int, object] = {}
        *others, last = self._pieces
        for piece in others:
            piece(shared, numbers)
        outputs = last(shared, numbers)
        assert outputs is not None
        return outputs

    def _hasten(self, runs: int) -> None:
        """Make later runs faster if there have been so many."""
        if runs >= OFTEN:
            self._pieces = pieces(self.instructions, self.outputs)


def holds(assumed: Property, value: float, precision: Precision = "f64") -> bool:
    """Whether a parameter-only value has the property that a guard demands."""
    return value >= 0 if assumed == "nonnegative" else is_moderate(value, precision)
