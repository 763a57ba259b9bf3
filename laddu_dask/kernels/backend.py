"""The protocol that every backend implements."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler.program import Program
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
