"""The protocol that every backend implements, and the choice of a backend."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler.program import Program
from laddu_dask.errors import ExecutionError
from laddu_dask.kernels.accumulator import Accumulator

Array = npt.NDArray[np.float64]

#: Columns are padded to a multiple of this many events, by repeating the last one.
PADDING = 8


def padded(events: int) -> int:
    """Length of a padded row."""
    return -(-events // PADDING) * PADDING


class Kernel(Protocol):
    """A program made executable."""

    program: Program

    def map(self, inputs: Array, parameters: Array, out: Array) -> None:
        """Evaluate events into rows.

        Parameters
        ----------
        inputs
            Rows of event values, shape (n_inputs, padded events), C-contiguous.
        parameters
            Scalars, shape (n_parameters,).
        out
            Receives the output rows, shape (n_outputs, padded events), C-contiguous.
        """

    def reduce(
        self,
        inputs: Array,
        events: int,
        parameters: Array,
        accumulator: Accumulator,
        first_event: int,
    ) -> None:
        """Add the output rows of the first `events` events to an accumulator.

        `first_event` is the global index of the first one; it names a bad event.
        """


class Backend(Protocol):
    """Makes kernels of programs."""

    name: str

    def compile(self, program: Program) -> Kernel:
        """Kernel of a program, compiled at most once per process."""


def get_backend(name: str) -> Backend:
    """The backend called ``"interpreter"`` or ``"cpu"``.

    Raises
    ------
    ExecutionError
        Another name.
    """
    if name == "interpreter":
        from laddu_dask.kernels.interpreter import InterpreterBackend

        return InterpreterBackend()
    if name == "cpu":
        from laddu_dask.kernels.cpu import CpuBackend

        return CpuBackend()
    raise ExecutionError(
        f"unknown backend {name!r}; this version has 'interpreter' and 'cpu'", option="backend"
    )
