"""What arrays must be before machine code reads them, and where they begin.

Compiled code checks nothing, so everything is checked before it runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler.program import Program
from laddu_dask.kernels.accumulator import LANES, TILE
from laddu_dask.kernels.backend import Array, Rows, Weights, whole_vectors
from laddu_dask.kernels.column_layout import capacity

#: A tile of events that all count the same, and room behind it for events that do not count.
_COUNTING = np.repeat([1.0, 0.0], TILE)
#: Weights of such a tile.
ONES = _COUNTING[:TILE]


def number_kind(program: Program) -> np.dtype[Any]:
    """Numbers in the columns of a program."""
    return np.dtype(np.float32 if program.precision == "f32" else np.float64)


def check_inputs(program: Program, inputs: Rows, weights: Weights) -> Array:
    """Refuse columns and weights that a program cannot read.

    Returns
    -------
    ndarray
        The weights, one per event; or `ONES`.
    """
    wanted = program.n_inputs - (program.weighted and weights is not None)
    _check_columns(inputs, wanted, number_kind(program))
    if weights is None and program.precision == "f64" and inputs.ndim == 2:
        return inputs[program.n_inputs - 1] if program.n_inputs else ONES
    if not isinstance(weights, np.ndarray):
        if program.weighted and weights != 1.0:
            raise ValueError(f"kernel needs weights of its own, or 1.0, got {weights}")
        return ONES
    if weights.dtype != np.float64 or weights.shape != (capacity(inputs),):
        raise ValueError(
            f"kernel needs float64 weights of shape {(capacity(inputs),)}, "
            f"got {weights.dtype} {weights.shape}"
        )
    return np.ascontiguousarray(weights)


def check_parameters(program: Program, parameters: Array) -> None:
    """Refuse parameters that a program cannot read."""
    if (
        parameters.dtype != np.float64
        or parameters.ndim != 1
        or not parameters.flags.c_contiguous
        or len(parameters) < program.n_parameters
    ):
        raise ValueError(
            f"kernel needs {program.n_parameters} contiguous float64 parameters, "
            f"got {parameters.dtype} {parameters.shape}"
        )


def _check_columns(inputs: Rows, wanted: int, kind: np.dtype[Any]) -> None:
    if inputs.ndim != 3:
        check_rows("input", inputs, wanted, kind)
    elif inputs.dtype != kind or not inputs.flags.c_contiguous or inputs.shape[2] != LANES:
        raise ValueError(
            f"kernel inputs must be C-contiguous {kind} vectors of {LANES} events, "
            f"got {inputs.dtype} {inputs.shape}"
        )
    elif inputs.shape[1] < wanted:
        raise ValueError(f"kernel needs {wanted} input columns, got {inputs.shape[1]}")


def check_rows(what: str, rows: Rows, wanted: int, kind: np.dtype[Any]) -> None:
    """Refuse rows of events of another kind, or too few."""
    if rows.dtype != kind or rows.ndim != 2 or not rows.flags.c_contiguous:
        raise ValueError(
            f"kernel {what}s must be C-contiguous {kind} rows, got {rows.dtype} {rows.shape}"
        )
    if rows.shape[0] < wanted or rows.shape[1] % LANES:
        raise ValueError(f"kernel needs {wanted} padded {what} rows, got {rows.shape}")


def check_target(target: Rows, kept: int, first: int, events: int) -> None:
    """Refuse columns without room for prepared events from `first` on."""
    fits = 0 <= first <= capacity(target) - whole_vectors(events) and first % LANES == 0
    columns = target.shape[0 if target.ndim == 2 else 1]
    kinds = target.dtype in (np.float64, np.float32) and target.flags.c_contiguous
    if columns != kept or not (fits and kinds and target.flags.writeable):
        raise ValueError(
            f"{events} events of {kept} columns do not fit {target.dtype} {target.shape} at {first}"
        )


def check_window(program: Program, inputs: Rows, out: Array, first: int) -> None:
    """Refuse output rows without room for the events of the inputs from `first` on."""
    fits = 0 <= first <= out.shape[1] - capacity(inputs) and first % LANES == 0
    if out.shape[0] != program.n_outputs or not fits or not out.flags.writeable:
        raise ValueError(
            f"map: outputs {out.shape} must be writeable and match inputs {inputs.shape} at {first}"
        )


def address(numbers: npt.NDArray[Any]) -> int:
    """Where an array begins; its attribute `ctypes` would make several objects to say so."""
    found: int = numbers.__array_interface__["data"][0]
    return found


def mask(weights: Array) -> int:
    """And-ed to the number of an event to find its weight."""
    return TILE - 1 if weights is ONES else -1
