"""The protocol that every backend implements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler.evaluator import Evaluator
from laddu_dask.compiler.program import Program
from laddu_dask.compiler.questions import Question
from laddu_dask.kernels.accumulator import LANES, Accumulator

Array = npt.NDArray[np.float64]
#: Weights of the events; 1.0 if all are one; None if they are the last row of the inputs.
Weights = Array | float | None
Rows = npt.NDArray[np.float64] | npt.NDArray[np.float32]

#: Events as they are read: numbers of events, and columns.
Pieces = Sequence[tuple[int, Sequence[npt.NDArray[Any]]]]

#: What a kernel is used for; each is compiled when it is first needed.
Purpose = Literal["map", "reduce"]


#: A cache line and a page in float64 numbers, and the length from which pages matter.
_LINE, _PAGE, _LONG = 8, 512, 1 << 14


def whole_vectors(events: int) -> int:
    """Number of events, rounded up to whole vectors."""
    return -(-events // LANES) * LANES


def padded(events: int) -> int:
    """Length of a padded row: columns are filled up to whole vectors by repeating the last event.

    The weight of a filled-up event is zero. Rows whose distance the processor's caches map to one
    place (lines, and pages of long rows) get some more: a loop over many columns would push them
    out of there.
    """
    length = whole_vectors(events)
    if length == 0 or length % 64:
        return length
    return length + (_LINE if length < _LONG else _LINE + _PAGE)


class Reduction(Protocol):
    """A kernel and the events that it sums, any number of times and from any thread.

    Attributes
    ----------
    events
        How many there are.
    """

    events: int

    def __call__(
        self, parameters: Array, sums: Accumulator, start: int = 0, stop: int | None = None
    ) -> None:
        """Add the sums of the output rows to an accumulator.

        Parameters
        ----------
        parameters
            As for `Kernel.map`.
        sums
            Receives the sums of the tiles' lanes.
        start, stop
            The events that count, whole tiles; all by default.
        """


class Kernel(Protocol):
    """A program made executable."""

    program: Program

    def map(
        self,
        inputs: Rows,
        parameters: Array,
        out: Array,
        weights: Weights = None,
        first: int = 0,
    ) -> None:
        """Evaluate events into rows.

        Parameters
        ----------
        inputs
            Rows of event values, shape (n_inputs, padded events), or the same by vectors (see
            `laddu_dask.kernels.column_layout`), C-contiguous; float32 for programs in single
            precision. Of a weighted program the last row, the weights, may be left out.
        parameters
            Scalars, shape (n_parameters,).
        out
            Receives the output rows, shape (n_outputs, padded events or more), C-contiguous.
        weights
            Weights of a weighted program, shape (padded events,), or 1.0 for events that count the
            same; None if they are the last input row.
        first
            Where in the output rows the events begin; a multiple of the lanes.
        """

    def bind(
        self, inputs: Rows, events: int, first_event: int, weights: Weights = None
    ) -> Reduction:
        """Sums of this kernel over prepared events, which are checked here and not again.

        Parameters
        ----------
        inputs
            As for `map`; they must not change any more. Every output row is proportional to the
            weight, which is the last row if it is among them, and zero in the padding.
        events
            How many events count; they begin with a tile (see `accumulator.TILE`).
        first_event
            Global index of event 0 of the inputs; it names a bad event.
        weights
            As for `map`; zero in the padding.
        """


class Sources(Protocol):
    """Consecutive events as they were read.

    Attributes
    ----------
    events
        How many there are.
    """

    events: int


class Preparer(Protocol):
    """Prepares events; may be called from several threads."""

    def sources(self, pieces: Pieces) -> Sources:
        """Events to prepare, which must not change any more.

        Parameters
        ----------
        pieces
            Numbers of events, and their columns in the order of the program's inputs: floats of any
            width.
        """

    def prepare(
        self,
        sources: Any,
        start: int,
        stop: int,
        target: Rows,
        first: int,
        room: Callable[[Sequence[int]], Any],
    ) -> list[int]:
        """Prepare consecutive events.

        Parameters
        ----------
        sources
            What `sources` made.
        start, stop
            Which events of them.
        target
            Receives the kept rows, by rows or by vectors (see `laddu_dask.kernels.column_layout`),
            as doubles or rounded to floats: what is too large for one becomes infinite. The last
            vector is filled up by repeating the last event.
        first
            Where the events begin in the target; a multiple of the lanes.
        room
            Gives memory for an array of doubles of some shape.

        Returns
        -------
        list
            The answers to the questions, see `laddu_dask.compiler.questions`.
        """


class Backend(Protocol):
    """Makes kernels of programs.

    Attributes
    ----------
    name
        By which it is chosen.
    evaluator
        What runs programs of parameters.
    """

    name: str
    evaluator: type[Evaluator]

    def by_vectors(self, columns: int) -> bool:
        """Whether so many columns are better kept by vectors than by rows."""

    def compile(self, program: Program, purpose: Purpose = "map") -> Kernel:
        """Kernel of a program, ready for a purpose; compiled at most once per process."""

    def preparer(self, program: Program, kept: int, questions: Sequence[Question]) -> Preparer:
        """What prepares events by a program without parameters.

        Parameters
        ----------
        program
            Event columns -> rows, in double precision.
        kept
            How many rows are kept, the first ones.
        questions
            What is asked about all rows.
        """

    def add_numbers(self, numbers: Array, first_event: int, sums: Accumulator) -> None:
        """Add one number of each event to an accumulator of one sum, as `Accumulator.add_rows`."""

    def compile_soon(self, program: Program, purpose: Purpose) -> None:
        """Begin to get a program ready for a purpose, and do not wait for it."""
