"""The K-matrix models of the published comparison: values and gradients by three routes."""

from __future__ import annotations

from typing import Any

import models as benchmark_models
import numpy as np
import pytest
from compiled_runs import run_program
from models import CHANNELS, COUPLINGS, POLES
from numpy.typing import NDArray
from test_grouping import grouped_rows, written_rows

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, compile_model
from laddu_dask.compiler.layout import ParameterLayout

Array = NDArray[Any]
MODELS = pytest.mark.parametrize(
    "model", [benchmark_models.k_matrix_fixed, benchmark_models.k_matrix_free]
)
#: All channels open; and two thresholds inside the sample.
SAMPLES = pytest.mark.parametrize("low", [1.25, 0.1], ids=["open", "thresholds inside"])


def invariants(low: float, events: int) -> Array:
    """Squared masses, none of them within 1e-4 of a bare pole."""
    s = np.random.default_rng(3).uniform(low, 6.0, events)
    assert np.abs(s - np.square(POLES)[:, np.newaxis]).min() > 1e-4
    return s


def point(expr: ld.Expr, seed: int = 5) -> dict[str, float]:
    """Parameters away from their start values."""
    layout = ParameterLayout.of(expr.node)
    shift = np.random.default_rng(seed).normal(scale=0.2, size=len(layout.names))
    moved = (layout.defaults + shift).tolist()
    return dict(zip(layout.names, moved, strict=True))


def system(s: float, at: dict[str, float]) -> tuple[Array, Array]:
    """Matrix and right-hand side of one event by NumPy."""
    fixed = [[at.get(f"k{c}{a}", COUPLINGS[c, a]) for a in range(5)] for c in range(4)]
    g, gaps = np.array(fixed), np.square(POLES) - s
    cleared = np.array([np.prod(np.delete(gaps, a)) for a in range(5)])
    total, difference = np.array([((a + b) ** 2, (a - b) ** 2) for a, b in CHANNELS]).T
    phase_space = np.sqrt((s - total) * (s - difference) + 0j) / s
    matrix = np.prod(gaps) * np.eye(4) - 1j * ((g * cleared) @ g.T) * phase_space
    beta = np.array([at[f"b{a}_re"] + 1j * at.get(f"b{a}_im", 0.0) for a in range(5)])
    return matrix, (g * cleared) @ beta


@MODELS
@SAMPLES
def test_values(model: Any, low: float) -> None:
    """XE-04: both forms against LAPACK, within the error bound of the condition number."""
    expr = model(ld)
    at, s = point(expr), invariants(low, 400)
    grouped = grouped_rows(expr, "linear", {"s": s}, at, np.ones(s.size))
    written = written_rows(expr, "linear", {"s": s}, at, np.ones(s.size))
    assert grouped is not None
    for value, e, other in zip(grouped[0], s, written[0], strict=True):
        matrix, rhs = system(e, at)
        f = np.linalg.solve(matrix, rhs)
        bound = 64 * 2.0**-53 * np.linalg.cond(matrix) * np.linalg.norm(f) * 2 * abs(f[1])
        for found in (value, other):
            assert abs(found - abs(f[1]) ** 2) <= bound + 1e-15 * abs(f[1]) ** 2


@MODELS
@SAMPLES
def test_gradients(model: Any, low: float) -> None:
    """AD-03: against central differences of the written form, for every parameter."""
    expr = model(ld)
    at, s = point(expr), invariants(low, 60)
    ones = np.ones(s.size)
    grouped = grouped_rows(expr, "linear", {"s": s}, at, ones)
    written = written_rows(expr, "linear", {"s": s}, at, ones)
    assert grouped is not None
    size = np.abs(written[1]).max(axis=0)
    np.testing.assert_allclose((grouped[1] - written[1]) / size, 0, atol=1e-10)
    plain = compile_model(expr, "linear")
    (source,) = plain.programs.columns
    assert source == "s"
    cached = run_program(plain.programs.prepare, s[np.newaxis], np.zeros(0), "interpreter")
    inputs = np.concatenate([cached, ones[np.newaxis]])

    def value(shifted: dict[str, float]) -> Array:
        frontier = plain.invariants.frontier(plain.layout.vector(shifted))
        return run_program(plain.programs.value, inputs, frontier, "interpreter")[0]

    step = 1e-3
    for row, name in enumerate(ParameterLayout.of(expr.node).names):
        ends = [value(at | {name: at[name] + k * step}) for k in (-2, -1, 1, 2)]
        slope = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * step)
        np.testing.assert_allclose((grouped[1][row] - slope) / size, 0, atol=1e-7)


@MODELS
@pytest.mark.parametrize("transform", ["linear", "log"])
def test_kernel_and_interpreter(model: Any, transform: Any) -> None:
    """XE-04: the same bits without a logarithm, else to 1e-12; adjoints included."""
    expr = model(ld)
    compiled = compile_model(expr, transform, Assumptions())
    s = np.random.default_rng(1).uniform(1.25, 6.0, 512)[np.newaxis]
    frontier = compiled.invariants.frontier(compiled.layout.vector(point(expr)))
    rows = run_program(compiled.programs.prepare, s, np.zeros(0), "interpreter")
    again = run_program(compiled.programs.prepare, s, np.zeros(0), "cpu")
    np.testing.assert_array_equal(again, rows)
    weights = np.random.default_rng(2).normal(size=512)
    inputs = np.concatenate([rows[: compiled.programs.n_cached], weights[np.newaxis]])
    results = [
        run_program(compiled.programs.gradient, inputs, frontier, backend)
        for backend in ("interpreter", "cpu")
    ]
    if transform == "linear":
        np.testing.assert_array_equal(*results)
    else:
        np.testing.assert_allclose(*results, rtol=1e-12)


def test_no_system_is_left_where_couplings_are_fixed() -> None:
    """SP-03: five complex columns times five strengths, no quotient in the event loop."""
    programs = compile_model(benchmark_models.k_matrix_fixed(ld), "linear", Assumptions()).programs
    operations = {op for op, _, _ in programs.gradient.instructions}
    assert operations == {"input", "parameter", "const", "add", "sub", "mul"}


def test_vector_and_matrix_of_phase_space_are_one_model() -> None:
    """Zeros of a diagonal matrix leave no operation behind, under the check that K is finite."""

    def counts(diagonal: bool) -> list[int]:
        s, g = ld.scalar("s"), ld.matrix([[ld.parameter("g"), 0.2], [0.1, 0.5]])
        options: Any = {"pole_masses": [1.3, 1.6], "couplings": g, "barriers": [[1, 1], [1, 1]]}
        loops = [-1j * ld.rho(s, mass1=0.2, mass2=0.3), -1j * ld.rho(s, mass1=0.5, mass2=0.5)]
        matrix = [[loops[0], 0], [0, loops[1]]]
        f = ld.f_vector(
            s,
            pole_masses=[1.3, 1.6],
            k=ld.k_matrix(s, **options),
            p=ld.p_vector(s, production=[1, 0.3], **options),
            phase_space=loops if diagonal else matrix,
        )
        programs = compile_model(f[0].norm_sqr(), "linear", Assumptions()).programs
        return [programs.n_cached, len(programs.gradient.instructions)]

    assert counts(True) == counts(False)
