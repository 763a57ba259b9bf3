"""Runs the regrouped and the written form of an expression event by event."""

from __future__ import annotations

from typing import Any

import numpy as np
from compiled_runs import run_program
from numpy.typing import NDArray

from laddu_dask.compiler import Assumptions, CompiledModel, Transform, compile_model
from laddu_dask.expr import Expr

Array = NDArray[Any]


def findings(model: CompiledModel, rows: Array) -> dict[bytes, Any]:
    """What the rows of a prepare program contradict."""
    found: dict[bytes, Any] = {}
    for check in model.programs.checks:
        values = rows[check.value]
        bad = {
            "finite": ~np.isfinite(values),
            "negative": values >= 0,
            "nonnegative": values < 0,
        }[check.property]
        if bad.any():
            negative = check.property == "nonnegative" and bool(bad.all())
            found[check.digest] = "negative" if negative else "open"
    return found


def grouped_rows(
    expr: Expr, transform: Transform, events: dict[str, Array], at: dict[str, float], w: Array
) -> tuple[Array, Array] | None:
    """Value row and gradient per event of the grouped form; None where a guard does not hold."""
    assumptions = Assumptions()
    while True:
        model = compile_model(expr, transform, assumptions)
        source = np.array([events[name] for name in model.programs.columns])
        source = source.reshape(len(model.programs.columns), len(w))
        rows = run_program(model.programs.prepare, source, np.zeros(0), "interpreter")
        found = findings(model, rows)
        if not found:
            break
        assumptions = assumptions.weaken(found)
    vector = model.layout.vector({name: at[name] for name in model.layout.names})
    frontier = model.invariants.valid_frontier(vector)
    if frontier is None:
        return None
    inputs = np.concatenate([rows[: model.programs.n_cached], w[np.newaxis]])
    result = run_program(model.programs.gradient, inputs, frontier, "interpreter")
    return result[0], model.invariants.jacobian(vector).T @ result[1:]


def written_rows(
    expr: Expr, transform: Transform, events: dict[str, Array], at: dict[str, float], w: Array
) -> tuple[Array, Array]:
    """The same of the written form."""
    model = compile_model(expr, transform)
    source = np.array([events[name] for name in model.programs.columns])
    source = source.reshape(len(model.programs.columns), len(w))
    rows = run_program(model.programs.prepare, source, np.zeros(0), "interpreter")
    vector = model.layout.vector({name: at[name] for name in model.layout.names})
    inputs = np.concatenate([rows, w[np.newaxis]])
    frontier = model.invariants.frontier(vector)
    result = run_program(model.programs.gradient, inputs, frontier, "interpreter")
    return result[0], model.invariants.jacobian(vector).T @ result[1:]
