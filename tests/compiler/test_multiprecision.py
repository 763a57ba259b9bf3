"""Random expressions against multiprecision: every form, every backend, value and gradient.

An error may be 1e-12 of the conditioning: what relative errors of size one in all literals, inputs
and intermediate results would do to first order. Set LADDU_DASK_FUZZ to a number of examples for a
long run from fresh seeds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled_runs import value_and_gradient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mp_oracle import Irregular, Verdict
from numpy.typing import NDArray
from random_expressions import columns, point, scalars
from test_grouping import grouped_rows

from laddu_dask.compiler import compile_model
from laddu_dask.expr import Expr

Array = NDArray[Any]
#: Events that are looked at for each expression.
FEW = 5
TOLERANCE = 1e-12
LONG = int(os.environ.get("LADDU_DASK_FUZZ", "0"))

Run = Callable[[Expr, dict[str, Array], dict[str, float]], tuple[Array, Array] | None]


def written(backend: str) -> Run:
    return lambda expr, events, at: value_and_gradient(expr, events, at, backend)


def regrouped(
    expr: Expr, events: dict[str, Array], at: dict[str, float]
) -> tuple[Array, Array] | None:
    """Real and imaginary part as two reductions; None where a guard asks for the written form."""
    parts = [
        grouped_rows(part, "linear", events, at, np.ones(FEW))
        for part in (expr.real(), expr.imag())
    ]
    if parts[0] is None or parts[1] is None:
        return None
    (re, re_slope), (im, im_slope) = parts[0], parts[1]
    return re + 1j * im, re_slope + 1j * im_slope


@pytest.mark.parametrize(
    ("run", "examples", "depth"),
    [
        pytest.param(written("interpreter"), 40, 5, id="written-interpreter"),
        pytest.param(written("cpu"), 20, 5, id="written-compiled"),
        pytest.param(regrouped, 40, 4, id="regrouped"),
    ],
)
def test_random_expressions_against_multiprecision(run: Run, examples: int, depth: int) -> None:
    """XE-04, AD-03, DC-12: one truth for all forms."""
    seen = np.zeros(2, dtype=int)
    wrong: list[str] = []

    @settings(
        max_examples=LONG or examples,
        deadline=None,
        derandomize=not LONG,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(scalars(depth), st.integers(0, 2**32 - 1))
    def compare(expr: Expr, seed: int) -> None:
        events = {name: column[:FEW] for name, column in columns(seed).items()}
        names = compile_model(expr, "complex").layout.names
        at = {name: value for name, value in point(seed).items() if name in names}
        at = {name: at[name] for name in names}
        with np.errstate(all="ignore"):
            found = run(expr, events, at)
        if found is None:
            return
        values, gradient = (np.broadcast_to(x, (*x.shape[:-1], FEW)) for x in found)
        for i in range(FEW):
            seen[1] += 1
            try:
                truth = Verdict(expr, {k: float(c[i]) for k, c in events.items()}, at, seed)
            except Irregular:
                continue
            seen[0] += 1
            errors = [abs(values[i] - truth.value), *np.abs(gradient[:, i] - truth.gradient)]
            scales = [truth.scale, *truth.slope_scale]
            if not all(e <= TOLERANCE * k for e, k in zip(errors, scales, strict=True)):
                exact = [truth.value, *truth.gradient]
                wrong.append(f"{expr} at {seed}, event {i}: {exact}, {errors}, {scales}")

    compare()
    # A list in order of length says most; letting hypothesis shrink takes longer than all the rest.
    wrong.sort(key=len)
    text = "\n".join([f"{len(wrong)} failures: true numbers, errors, scales", *wrong])
    assert not wrong, text
    assert seen[0] > 0.5 * seen[1], f"only {seen[0]} of {seen[1]} events were compared"
