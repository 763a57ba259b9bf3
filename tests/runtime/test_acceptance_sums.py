"""Worked examples of weighted sums over events, written and regrouped, on every backend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, Transform
from laddu_dask.runtime import Pass, Reducer

X = ld.scalar("x")
THREE = [0.25, 0.75, 1.25]
HALVES = [0.5, 1.5, 2.0]

BACKENDS = pytest.mark.parametrize("backend", ["interpreter", "cpu"])
STORAGES = pytest.mark.parametrize("storage", ["resident", "streaming"])
FORMS = pytest.mark.parametrize("form", ["written", "regrouped"])


def events(x: Sequence[float], w: Sequence[float] | None = None) -> ld.Dataset:
    weights = None if w is None else np.array(w)
    return ld.Dataset.from_arrays(scalars={"x": np.array(x)}, weights=weights)


def weighted(
    expr: ld.Expr,
    transform: Transform,
    data: ld.Dataset,
    parameters: Sequence[float],
    *,
    form: str = "written",
    **options: Any,
) -> tuple[float, list[float]]:
    """Sum of w T(Re model) over events, and its gradient."""
    model = ld.Model(expr)
    if form == "written":
        compiled = model.compiled(transform)
    else:
        compiled = model.grouped(transform, Assumptions())
    vector = np.array(parameters)
    one = Pass("events", data, compiled.programs)
    with closing(Reducer([one], ld.Execution(**options))) as reducer:
        (state,) = reducer.reduce("gradient", [compiled.invariants.frontier(vector)])
    assert state.count == data.n_events
    sums = np.array(state.round())
    return float(sums[0]), compiled.invariants.gradient(vector, sums[1:]).tolist()


def wave(s: ld.Expr, phi: ld.Expr) -> ld.Expr:
    return ld.complex((X * s).sin(), (X + phi).cos()).norm_sqr()


@BACKENDS
@FORMS
@STORAGES
def test_15_log_positive(backend: str, form: str, storage: str) -> None:
    """AX-15, T-33: the imaginary part of the model does not enter."""
    s, phi = ld.parameter("s"), ld.parameter("phi")
    expr = ld.complex(wave(s, phi) + 0.5, X * s)
    data = events(THREE, HALVES)
    value, gradient = weighted(
        expr, "log", data, [0.4, -0.2], form=form, backend=backend, storage=storage
    )
    assert value == pytest.approx(0.56931273144441844, abs=1e-12)
    assert gradient == pytest.approx([2.6521157014105017, -2.8166634486059028], abs=1e-12)


@BACKENDS
@FORMS
def test_27_component_of_a_solution(backend: str, form: str) -> None:
    """AX-27: weighted real over three events."""
    system = ld.matrix([[X + 2, 1j], [2 - 1j, 3]])
    expr = ld.solve(system, ld.vector([ld.parameter("p"), ld.parameter("q")]))[1]
    value, gradient = weighted(
        expr, "linear", events(THREE), [1.5, -0.25], form=form, backend=backend
    )
    assert value == pytest.approx(-1.6106519553420737, abs=1e-12)
    assert gradient == pytest.approx([-0.89801038489894457, 1.0545455119746275], abs=1e-12)


@BACKENDS
@FORMS
@STORAGES
@pytest.mark.parametrize("threads", [1, 2])
def test_30_weighted_sums(backend: str, form: str, storage: str, threads: int) -> None:
    """AX-30, RD-10, RD-11: exact numbers; the sum of v**2 is the model v**2."""
    v = X * ld.parameter("scale")
    data = events([1, 2, 3], [2, 3, 4])
    options: dict[str, Any] = {
        "form": form, "backend": backend, "storage": storage, "threads": threads
    }  # fmt: skip
    assert data.sum_weights() == 9
    assert weighted(v, "linear", data, [2.0], **options) == (40.0, [20.0])
    imaginary = (1j * v).imag()
    assert weighted(imaginary, "linear", data, [2.0], **options) == (40.0, [20.0])
    assert weighted(1j * v, "linear", data, [2.0], **options) == (0.0, [0.0])
    assert weighted(v**2, "linear", data, [2.0], **options) == (200.0, [200.0])


@BACKENDS
@FORMS
@STORAGES
@pytest.mark.parametrize("threads", [1, 2])
def test_33_line(backend: str, form: str, storage: str, threads: int) -> None:
    """AX-33, RD-05, RD-07: 2 x + 1, and 2 ln 3 + 3 ln 5 + 4 ln 7."""
    expr = ld.parameter("scale") * X + 1
    data = events([1, 2, 3], [2, 3, 4])
    options: dict[str, Any] = {
        "form": form, "backend": backend, "storage": storage, "threads": threads
    }  # fmt: skip
    assert weighted(expr, "linear", data, [2.0], **options) == (49.0, [20.0])
    value, gradient = weighted(expr, "log", data, [2.0], **options)
    assert value == pytest.approx(14.809178910859774, rel=1e-12)
    assert gradient == pytest.approx([3.580952380952381], rel=1e-12)


@BACKENDS
@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_34_not_positive(backend: str, weight: float) -> None:
    """AX-34, RD-03, RD-04, T-06, T-32: the value is named, with weight zero too."""
    data, mc = events([1.0, -2.0], [1.0, weight]), events([1.0, 2.0])
    execution = ld.Execution(backend=backend)
    with (
        ld.Likelihood([ld.NLL(X, data=data, accepted_mc=mc)], execution) as likelihood,
        pytest.raises(ld.EvaluationError) as caught,
    ):
        likelihood.value()
    assert caught.value.value == -2.0
    assert caught.value.event == 1


@BACKENDS
@STORAGES
def test_35_several_sets_of_parameters(backend: str, storage: str) -> None:
    """AX-35: values and positive sums of x + offset at 0.5 and at 1.5."""
    model = ld.Model(X + ld.parameter("offset"))
    data = events([1, 2, 3])
    for offset, values, total in ((0.5, [1.5, 2.5, 3.5], 7.5), (1.5, [2.5, 3.5, 4.5], 10.5)):
        found = model.evaluate(data, [offset], ld.Execution(backend=backend))
        np.testing.assert_array_equal(found, values)
        value, gradient = weighted(
            model.expr, "linear", data, [offset], backend=backend, storage=storage
        )
        assert (value, gradient) == (total, [3.0])


@BACKENDS
@FORMS
def test_39_rows_and_sums(backend: str, form: str) -> None:
    """AX-39, AX-43: values event by event, weighted sums and the sum of weights."""
    scale, offset = ld.parameter("scale"), ld.parameter("offset")
    expr = (X * scale + offset).sin() + ld.complex(scale, offset).norm_sqr() + 2
    data, at = events(THREE, HALVES), [1.25, 0.5]
    model = ld.Model(expr)
    assert model.parameter_names == ("scale", "offset")
    rows = [4.5385086552607125, 4.8036291909537617, 4.6940297857963782]
    found = model.evaluate(data, at, ld.Execution(backend=backend))
    np.testing.assert_allclose(found, rows, rtol=0, atol=1e-10)
    value, gradient = weighted(expr, "linear", data, at, form=form, backend=backend)
    assert value == pytest.approx(18.862757685653755, abs=1e-10)
    assert gradient == pytest.approx([9.0551543545445909, 3.5989388751955698], abs=1e-10)
    value, gradient = weighted(expr, "log", data, at, form=form, backend=backend)
    assert value == pytest.approx(6.2029396903700475, abs=1e-10)
    assert gradient == pytest.approx([1.919877585136988, 0.76460581712145764], abs=1e-10)
    assert data.sum_weights() == 4.0


@BACKENDS
@pytest.mark.parametrize("form", ["written", "regrouped"])
def test_56_transforms(backend: str, form: str) -> None:
    """AX-56, RD-02: value and derivative of both transforms at one event."""
    a = ld.parameter("a")
    one = events([1.0])
    options: dict[str, Any] = {"form": form, "backend": backend}
    assert weighted(ld.complex(a, 4), "linear", one, [3.0], **options) == (3.0, [1.0])
    value, gradient = weighted(a * X, "log", one, [2.0], **options)
    assert (value, gradient) == (math.log(2), [0.5])
    # In double precision the logarithm of a sum with its gradient is that of the sum alone.
    value, _ = weighted(a * X, "log", one, [3.0], **options)
    assert value == 1.0986122886681098  # AX-63, second number


@BACKENDS
@pytest.mark.parametrize("value", [-2.0, 0.0, math.nan])
def test_56_no_logarithm(backend: str, value: float) -> None:
    """AX-56, T-06: zero, negative numbers and NaN have none, and the event is counted as bad."""
    data = events([1.0, value, 2.0])
    compiled = ld.Model(ld.parameter("a") * X).compiled("log")
    one = Pass("events", data, compiled.programs)
    with closing(Reducer([one], ld.Execution(backend=backend))) as reducer:
        (state,) = reducer.reduce("value", [compiled.invariants.frontier(np.array([1.0]))])
    assert (state.first_bad, state.count) == (1, 2)
    assert float(state.round()[0]) == math.log(2)
