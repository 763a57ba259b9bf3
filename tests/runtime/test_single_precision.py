"""`Execution(precision="f32")` event by event, and in sums of a compiled form."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, CompiledModel, KernelOptions
from laddu_dask.runtime.payload import Mode
from laddu_dask.runtime.planning import Pass
from laddu_dask.runtime.reduction import Reducer

Array = NDArray[Any]
SINGLE = KernelOptions(precision="f32")
BACKENDS = pytest.mark.parametrize("backend", ["cpu", "interpreter"])
FORMS = pytest.mark.parametrize("form", ["written", "regrouped"])
X, Y = ld.scalar("x"), ld.scalar("y")
SCALE, OFFSET = ld.parameter("scale"), ld.parameter("offset")
THREE, HALVES = [0.25, 0.75, 1.25], [0.5, 1.5, 2.0]
LARGE = float(2**24)


def single(backend: Any, **options: Any) -> ld.Execution:
    return ld.Execution(backend=backend, precision="f32", **options)


def events(weights: Any = None, **columns: Any) -> ld.Dataset:
    return ld.Dataset.from_arrays(scalars=columns, weights=weights)


def compiled(expr: ld.Expr, transform: Any, form: str) -> CompiledModel:
    model = ld.Model(expr)
    if form == "written":
        return model.compiled(transform, SINGLE)
    return model.grouped(transform, Assumptions(), SINGLE)


def weighted(
    expr: ld.Expr, transform: Any, data: ld.Dataset, at: list[float], form: str, execution: Any
) -> tuple[float, list[float]]:
    """Sum over events and its gradient; value-only and with the gradient give the same value."""
    model = compiled(expr, transform, form)
    vector = np.array(at)
    found = {}
    modes: tuple[Mode, ...] = ("value", "gradient")
    with closing(Reducer([Pass("events", data, model.programs)], execution)) as reducer:
        for mode in modes:
            (total,) = reducer.reduce(mode, [model.invariants.frontier(vector)])
            assert total.first_bad is None
            found[mode] = np.array(total.round())
    assert found["value"][0] == found["gradient"][0]
    gradient = model.invariants.gradient(vector, found["gradient"][1:])
    return float(found["gradient"][0]), gradient.tolist()


@BACKENDS
def test_12_a_sum_is_rounded(backend: Any) -> None:
    """AX-12, FP-02, FP-10: 2**24 + 1, from columns and from parameters."""
    data = events(x=[LARGE], y=[1.0])
    for precision, value in (("f32", LARGE), ("f64", LARGE + 1)):
        execution = ld.Execution(backend=backend, precision=precision)
        assert ld.Model(X + SCALE).evaluate(data, [1.0], execution).tolist() == [value]
        assert ld.Model(X + Y).evaluate(data, execution=execution).tolist() == [value]
        model = ld.Model(SCALE + OFFSET)
        found, gradient = model.value_and_gradient(None, [LARGE, 1.0], execution)
        assert found == model.evaluate(None, [LARGE, 1.0], execution) == value
        assert gradient.tolist() == [1, 1]
        found, gradient = model.value_and_gradient(data, [LARGE, 1.0], execution)
        assert found.tolist() == [value]
        assert gradient.tolist() == [[1, 1]]


@BACKENDS
def test_10_values_and_gradients(backend: Any) -> None:
    """AX-10, FP-06: also the same bits wherever the event is read."""
    expr = (X.sin() * SCALE + OFFSET).exp() + ld.complex(SCALE, X).norm_sqr()
    model, at = ld.Model(expr), [1.5, -0.25]
    assert model.parameter_names == ("scale", "offset")
    value, gradient = model.value_and_gradient(events(x=[0.75]), at, single(backend))
    assert value[0] == pytest.approx(4.9775817921718729, rel=1e-6)
    np.testing.assert_allclose(gradient[0], [4.4758036681651336, 2.1650817921718729], rtol=1e-6)
    # A double would have further digits.
    assert value.real.astype(np.float32).tolist() == value.real.tolist()
    many = events(x=np.append(np.linspace(-1, 1, 2000), 0.75))
    values, gradients = model.value_and_gradient(many, at, single(backend, chunk_events=7))
    assert (values[-1], gradients[-1].tolist()) == (value[0], gradient[0].tolist())


@BACKENDS
@FORMS
def test_14_weights_and_sums_are_doubles(backend: Any, form: str) -> None:
    """AX-14a, AX-14b, FP-03, T-07: the value is a float, its product with a weight is none.

    The sine is prepared as a double (T-26), so the nearest float enters, 0.84147096.
    """
    one, execution = events(x=[1.0]), single(backend)
    expr = X.sin() * SCALE + LARGE
    assert weighted(expr, "linear", one, [2.0], form, execution) == (
        16777218.0,
        [float(np.float32(math.sin(1)))],
    )
    large = events(x=[LARGE])
    assert weighted(X + SCALE, "linear", large, [1.0], form, execution) == (LARGE, [1.0])
    third = events(weights=[1 / 3, 1.0], x=[1.0, 2.0])
    value, gradient = weighted(X * SCALE, "linear", third, [3.0], form, execution)
    assert (value, gradient) == (1 / 3 * 3 + 6, [1 / 3 + 2])


@BACKENDS
@FORMS
@pytest.mark.parametrize(
    ("expr", "at"), [(X, []), (SCALE * X, [1.0]), (SCALE * 1.5, [2.0]), (SCALE + 0 * X, [3.0])]
)
def test_63_one_logarithm(backend: Any, form: str, expr: ld.Expr, at: list[float]) -> None:
    """AX-63, FP-04, T-34: that of the widened value, with and without gradient, for all kinds."""
    value, _ = weighted(expr, "log", events(x=[3.0]), at, form, single(backend))
    assert value == 1.0986122886681098


@BACKENDS
@FORMS
def test_39_sums(backend: Any, form: str) -> None:
    """AX-39 in single precision."""
    expr = (X * SCALE + OFFSET).sin() + ld.complex(SCALE, OFFSET).norm_sqr() + 2
    data, at = events(HALVES, x=THREE), [1.25, 0.5]
    for transform, value, gradient in (
        ("linear", 18.862757685653755, [9.0551543545445909, 3.5989388751955698]),
        ("log", 6.2029396903700475, [1.919877585136988, 0.76460581712145764]),
    ):
        found, slopes = weighted(expr, transform, data, at, form, single(backend))
        assert found == pytest.approx(value, rel=1e-6)
        assert found != pytest.approx(value, rel=1e-12)  # or it was not single precision
        assert slopes == pytest.approx(gradient, rel=1e-6)


@BACKENDS
@pytest.mark.parametrize(
    ("entry", "value", "slope"),
    [
        (SCALE + 2, 0.2931613064593451 + 0.30058152864914438j, None),
        (X + 2, 0.34704009812797523 + 0.30060453841885459j,
         -0.013136672337940972 + 0.20986998377795763j),
    ],
)  # fmt: skip
def test_18_systems(backend: Any, entry: ld.Expr, value: complex, slope: complex | None) -> None:
    """AX-18, FP-08: a well-conditioned system of two equations."""
    system = ld.matrix([[entry, 0.25 - 0.5j], [0.5, SCALE + 3]])
    solution = ld.solve(system, ld.vector([1, SCALE]))
    model = ld.Model(solution[0] + 1j * solution[1])
    found, gradient = model.value_and_gradient(events(x=[0.75]), [1.25], single(backend))
    assert found[0] == pytest.approx(value, rel=1e-6)
    if slope is not None:
        assert gradient[0, 0] == pytest.approx(slope, rel=1e-6)


@BACKENDS
def test_columns_are_prepared_in_double_precision(backend: Any) -> None:
    """FP-02, T-26: the sine of a large number, and a difference of nearly equal ones."""
    x = np.array([1e6 + 1 / 3, 3e5 + 0.123])
    data = events(x=x)
    for expr, exact in ((X.sin(), np.sin(x)), (X**2 - (X - 1e-3) ** 2, x**2 - (x - 1e-3) ** 2)):
        found = ld.Model(SCALE * expr).evaluate(data, [1.0], single(backend))
        assert found.real.tolist() == exact.astype(np.float32).tolist()


@BACKENDS
@FORMS
def test_differences_of_columns_are_columns(backend: Any, form: str) -> None:
    """T-26: a pole's distance is not made of a rounded mass, however cheap that would be."""
    model = compiled(ld.prod([SCALE - 1.0 + 1 / (X - pole) for pole in (1.0, 2.0)]), "linear", form)
    assert model.programs.n_cached >= 2
    near = np.array([1 + 1e-7, 2 - 1e-7])
    expr = ld.prod([SCALE + 1 / (X - pole) for pole in (1.0, 2.0)])
    exact = np.prod([0.5 + 1 / (near - pole) for pole in (1.0, 2.0)], axis=0).sum()
    value, _ = weighted(expr, "linear", events(x=near), [0.5], form, single(backend))
    assert value == pytest.approx(exact, rel=1e-6)


@BACKENDS
@FORMS
def test_an_event_stays_on_its_side_of_a_threshold(backend: Any, form: str) -> None:
    """Conditions are decided in double precision: the branches differ there."""
    below, above = 1 - 1e-9, 1 + 1e-9
    expr = ld.where(X >= 1, SCALE * (X - 1) + 2, SCALE)
    for value, expected in ((below, 3.0), (above, 2.0)):
        data = events(x=[value])
        found, _ = weighted(expr, "linear", data, [3.0], form, single(backend))
        assert found == pytest.approx(expected, rel=1e-4)
        (element,) = ld.evaluate_elements(expr, data, [3.0], single(backend))[:, 0]
        assert element == pytest.approx(expected, rel=1e-4)


@BACKENDS
def test_every_way_to_values_gives_the_same_bits(backend: Any) -> None:
    """CP rows in single precision: evaluate, many points, elements, and block by block."""
    expr = (X * SCALE).sin() + OFFSET * X
    data, model = events(x=np.linspace(0.1, 3, 3000)), ld.Model(expr)
    points = [[0.3, 0.7], [1.1, -0.2]]
    execution = single(backend, chunk_events=1000)
    expected = [model.evaluate(data, point, execution) for point in points]
    double = model.evaluate(data, points[0], replace(execution, precision="f64"))
    assert expected[0].tolist() != double.tolist()
    assert (expected[0].real.astype(np.float32) == expected[0].real).all()
    np.testing.assert_array_equal(model.evaluate_many(data, points, execution), expected)
    for point, values in zip(points, expected, strict=True):
        found, _ = model.value_and_gradient(data, point, execution)
        np.testing.assert_array_equal(found, values)
        (elements,) = ld.evaluate_elements(expr, data, point, execution)
        np.testing.assert_array_equal(elements, values)
    shown: list[list[Array]] = [[], []]
    named = {"first": points[0], "second": points[1]}
    sums = model.visit(
        data, named, lambda _, k, values: shown[k].append(values), execution, "linear"
    )
    np.testing.assert_array_equal([np.concatenate(each) for each in shown], expected)
    assert sums == pytest.approx([values.real.sum() for values in expected], rel=1e-12)


@BACKENDS
def test_an_imaginary_part_may_be_rounding(backend: Any) -> None:
    """Of floats: 1e-7 of the modulus; more is refused as ever."""
    data = events(x=np.linspace(0.1, 3, 100))
    z = ld.complex(X * SCALE, X + OFFSET)
    real = ld.Model(z * z.conj() * (1 + 0j) / 3.0)
    values = real.evaluate(data, [0.3, 0.7], single(backend), real=True)
    assert values.dtype == np.float64
    with pytest.raises(ld.EvaluationError, match="is complex"):
        ld.Model(z * z.conj() + 1e-3j).evaluate(data, [0.3, 0.7], single(backend), real=True)


def test_digests_differ() -> None:
    """T-25, T-63: prepared data and kernels of one precision are never taken for the other's."""
    expr = X * SCALE
    double, floats = (
        ld.Model(expr).compiled("log", options).programs for options in (KernelOptions(), SINGLE)
    )
    assert double.prepare.digest == floats.prepare.digest
    assert len({double.digest, floats.digest}) == 2
    assert double.gradient.digest != floats.gradient.digest
    assert floats.curvature.events.precision == "f32"


@BACKENDS
def test_a_saturated_function_has_no_slope(backend: Any) -> None:
    """The square of cosh(100) is no float; the slope of tanh is nevertheless zero there."""
    data = events(x=[0.5, 30.0, 60.0, 100.0, 1000.0])
    model = ld.Model(ld.complex(SCALE * X, 0.3 * SCALE).tanh())
    values, gradient = model.value_and_gradient(data, [1.0], single(backend))
    _, exact = model.value_and_gradient(data, [1.0], ld.Execution(backend=backend))
    np.testing.assert_allclose(values[1:], 1, rtol=0, atol=1e-25)
    np.testing.assert_allclose(gradient, exact, rtol=1e-5, atol=1e-37)
