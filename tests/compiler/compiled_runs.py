"""Runs the programs of a compiled expression, for tests that look below `Model`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laddu_dask.compiler import CompiledModel, Program, compile_model
from laddu_dask.expr import Expr
from laddu_dask.kernels import get_backend, padded

Array = NDArray[Any]
ELEMENTARY = frozenset(
    {"exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "atan2", "hypot", "pow"}
)


def run_program(program: Program, inputs: Array, parameters: Array, backend: str) -> Array:
    """Output rows of a program over unpadded input rows."""
    events = inputs.shape[1]
    rows = np.empty((inputs.shape[0], padded(events)))
    rows[:, :events] = inputs
    rows[:, events:] = inputs[:, -1:]
    out = np.empty((program.n_outputs, rows.shape[1]))
    get_backend(backend).compile(program).map(rows, np.asarray(parameters, dtype=float), out)
    return out[:, :events]


def event_inputs(model: CompiledModel, columns: Mapping[str, Array], backend: str) -> Array:
    """Input rows of the event programs: cached columns, then weights of one."""
    events = max((np.size(c) for c in columns.values()), default=1)
    rows = np.array([columns[name] for name in model.programs.columns], dtype=float)
    rows = rows.reshape(len(model.programs.columns), events)
    prepared = run_program(model.programs.prepare, rows, np.empty(0), backend)
    cached = prepared[: model.programs.n_cached]  # behind them come values that are only checked
    return np.concatenate([cached, np.ones((1, events))])


def value_and_gradient(
    expr: Expr, columns: Mapping[str, Array], parameters: Mapping[str, float], backend: str
) -> tuple[Array, Array]:
    """Complex values (n,) and gradients (n_parameters, n)."""
    model = compile_model(expr, "complex")
    vector = model.layout.vector(parameters)
    inputs = event_inputs(model, columns, backend)
    rows = run_program(model.programs.gradient, inputs, model.invariants.frontier(vector), backend)
    n = model.invariants.n_adjoints
    jacobian = model.invariants.jacobian(vector).T
    with np.errstate(all="ignore"):
        gradient = _complex(jacobian @ rows[2 : 2 + n], jacobian @ rows[2 + n : 2 + 2 * n])
    return _complex(rows[0], rows[1]), gradient


def _complex(real: Array, imag: Array) -> Array:
    result = np.empty(real.shape, dtype=complex)
    result.real, result.imag = real, imag
    return result


def with_noisy_functions(program: Program) -> Program:
    """The program with every elementary function value multiplied by an input row of its own.

    Two correct kernels of one program differ by the last bits of these functions only. The rows
    come after those of the program.
    """
    instructions: list[Any] = []
    moved: list[int] = []
    rows = program.n_inputs
    for op, args, payload in program.instructions:
        instructions.append((op, tuple(moved[arg] for arg in args), payload))
        if op in ELEMENTARY:
            value = len(instructions) - 1
            instructions.append(("input", (), str(rows)))
            instructions.append(("mul", (value, value + 1), None))
            rows += 1
        moved.append(len(instructions) - 1)
    noisy = replace(
        program,
        instructions=tuple(instructions),
        n_inputs=rows,
        outputs=tuple(moved[output] for output in program.outputs),
    )
    noisy.verify()
    return noisy
