"""Programs in single precision: what is a float, what is kept, and what is decided before."""

from __future__ import annotations

from typing import Any

import models as benchmark_models
import numpy as np
import pytest
from compiled_runs import run_program

import laddu_dask as ld
from laddu_dask.compiler import (
    Assumptions,
    KernelOptions,
    Program,
    compile_integral,
    compile_model,
)
from laddu_dask.compiler.precision import is_moderate
from laddu_dask.kernels import get_backend

SINGLE = KernelOptions(precision="f32")
X, Y = ld.scalar("x"), ld.scalar("y")
A, B = ld.parameter("a", initial=0.7), ld.parameter("b", initial=0.4)
MODELS = [benchmark_models.MODELS[name](ld) for name in ("A", "B", "C-fixed", "C-free", "D")]


def doubles(program: Program) -> int:
    """Operations that are done in double precision, widening itself not counted."""
    wide: set[int] = set()
    count = 0
    for index, (op, args, payload) in enumerate(program.instructions):
        is_weight = op == "input" and int(str(payload)) == program.n_inputs - 1
        if is_weight or op == "widen" or wide.intersection(args):
            wide.add(index)
            count += not is_weight and op != "widen"
    return count


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(
    ("model", "mode"),
    # Forward mode over the many parameters of the other two would take long to compile.
    [*((k, "reverse") for k in range(len(MODELS))), *((k, "forward") for k in (1, 2, 4))],
)
def test_only_the_transform_is_done_in_double_precision(
    model: int, mode: Any, grouped: bool
) -> None:
    """FP-03, FP-04, FP-10: one product with the weight per row, a logarithm and a reciprocal."""
    assumptions = Assumptions() if grouped else None
    for transform, extra in (("linear", 0), ("log", 2)):
        found = compile_model(
            MODELS[model], transform, assumptions, KernelOptions(mode, precision="f32")
        )
        programs, rows = found.programs, 1 + found.invariants.n_adjoints
        assert (programs.prepare.precision, programs.value.precision) == ("f64", "f32")
        assert programs.precision == programs.gradient.precision == "f32"
        assert doubles(programs.gradient) <= rows + extra
        assert doubles(programs.value) == 1 + (transform == "log")


def test_complex_values_are_floats_throughout() -> None:
    programs = compile_model(MODELS[1], "complex", options=SINGLE).programs
    assert doubles(programs.gradient) == doubles(programs.value) == 0


def test_rounded_columns_are_not_subtracted() -> None:
    """T-26: distances from poles are columns of their own; products of columns need not be."""
    for model in MODELS:
        double, single = (
            compile_model(model, "log", Assumptions(), KernelOptions(precision=precision)).programs
            for precision in ("f64", "f32")
        )
        assert double.n_cached <= single.n_cached <= 2 * double.n_cached
    expr = (A + 1 / (X - 1.0)) * (B + 1 / (X - 2.0)) * (A + X)
    assert compile_model(expr, "linear", Assumptions()).programs.n_cached == 1
    assert compile_model(expr, "linear", Assumptions(), SINGLE).programs.n_cached > 1


def test_conditions_of_events_are_columns() -> None:
    """A comparison that only events enter is not repeated with rounded numbers."""
    expr = ld.where(X >= 1, A * Y, B * Y)
    programs = compile_model(expr, "linear", options=SINGLE).programs
    x = np.array([[1 - 1e-12, 1.0, 1 + 1e-12, np.nan], [2.0] * 4])
    order = [("x", "y").index(name) for name in programs.columns]
    rows = run_program(programs.prepare, x[order], np.zeros(0), "interpreter")
    assert [0.0, 1.0, 1.0, 0.0] in rows.tolist()
    chosen = ld.where((X >= 1) & (A < Y), A * Y, B * Y)
    for which in (expr, chosen):
        model = compile_model(which, "complex", options=SINGLE)
        rows = run_program(model.programs.prepare, x[order], np.zeros(0), "cpu")
        out = np.empty((2, 8))
        inputs = np.repeat(rows[:, :1].astype(np.float32), 8, axis=1)
        kernel = get_backend("cpu").compile(model.programs.value)
        kernel.map(inputs, model.invariants.frontier(np.array([0.7, 0.4])), out, 1.0)
        assert out[0, 0] == float(np.float32(0.4) * np.float32(2.0))


def test_statistics_are_doubles() -> None:
    form = compile_integral(MODELS[0] + 1 / (A + X), Assumptions(), SINGLE)
    assert form.separable is not None
    assert form.residual is not None
    assert form.separable.statistics.precision == "f64"
    assert form.separable.statistics.value.precision == "f64"
    assert form.residual.programs.precision == "f32"
    assert form.residual.invariants.precision == "f32"


def test_second_derivatives_are_floats_too() -> None:
    programs = compile_model(MODELS[1], "log", options=SINGLE).programs
    assert programs.curvature.events.precision == "f32"
    assert programs.curvature.scalars.precision == "f64"
    # Reciprocal and logarithm with their tangents, and a few products for each row.
    events = programs.curvature.events
    assert doubles(events) <= 5 * events.n_outputs + 8


def test_frontier_values_must_be_moderate() -> None:
    """Products of two stay within floats: 2**40, and no lower bound."""
    model = compile_model(A**2 * X + B, "linear", Assumptions(), SINGLE)
    for a, valid in ((1e5, True), (1e7, False), (1e-30, True), (0.0, True), (np.nan, False)):
        found = model.invariants.valid_frontier(np.array([a, 1.0]))
        assert (found is not None) == valid
    double = compile_model(A**2 * X + B, "linear", Assumptions())
    assert double.invariants.valid_frontier(np.array([1e7, 1.0])) is not None


def test_ranges() -> None:
    assert [is_moderate(2.0**n, "f32") for n in (-200, -1, 40, 41)] == [True, True, True, False]
    assert [is_moderate(2.0**n) for n in (-401, -400, 400, 401)] == [False, True, True, False]
    assert is_moderate(0.0)
    assert not is_moderate(float("nan"), "f32")
