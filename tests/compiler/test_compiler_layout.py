"""Order and meaning of parameter vectors, and the columns that a model reads."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

import laddu_dask as ld
from laddu_dask.compiler import ParameterLayout, compile_model

A, B, C = (ld.parameter(name) for name in "abc")
X = ld.scalar("x")


def layout(expr: ld.Expr) -> ParameterLayout:
    return ParameterLayout.of(expr.node)


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        (B * A + C, ("b", "a", "c")),
        (C + B * A, ("c", "b", "a")),
        (A + B + A, ("a", "b")),
        (B - B, ("b",)),
        (A * 0 + B, ("a", "b")),
        (ld.vector([C, A])[1] + B, ("c", "a", "b")),
        (ld.where(C < A, B, A), ("c", "a", "b")),
        (ld.atan2(B, A), ("b", "a")),
        (ld.cparameter("z") + A, ("z real", "z imag", "a")),
        (X + 1, ()),
    ],
)
def test_order_of_first_appearance(expr: ld.Expr, names: tuple[str, ...]) -> None:
    """Parameters that cancel keep their place."""
    assert layout(expr).names == names
    assert ld.Model(expr).parameter_names == names


def test_fixed_parameters_are_known_but_take_no_place() -> None:
    """AX-54."""
    mass = ld.parameter("mass", initial=1.2)
    pi = ld.parameter("pi", fixed=math.pi)
    width = ld.parameter("width", initial=(0, 1))
    found = layout(mass * pi + width)
    assert [spec.name for spec in found.specs] == ["mass", "pi", "width"]
    assert found.names == ("mass", "width")
    np.testing.assert_array_equal(found.defaults, [1.2, 0.5])
    np.testing.assert_array_equal(found.vector([1.4, 0.2]), [1.4, 0.2])
    assert ld.Model(mass * pi + width).evaluate(parameters=[2, 1]) == 2 * math.pi + 1
    with pytest.raises(ld.ParameterError, match=r"expected 2 parameters \(mass, width\)"):
        found.vector([1.0])


def test_one_name_two_definitions() -> None:
    """A conflict names the parameter, the fields and both values."""
    for options, text in (
        ({"initial": 1.0}, r"initial: 0\.0 and 1\.0"),
        ({"unit": "GeV"}, "unit: None and 'GeV'"),
        ({"bounds": (-1, 1)}, "bounds"),
        ({"fixed": 0.0}, "fixed: False and True"),
        ({"latex": "a"}, "latex"),
    ):
        with pytest.raises(ld.ParameterError, match=text) as caught:
            ld.Model(A + ld.parameter("a", **options))
        assert caught.value.name == "a"
    assert ParameterLayout.merge([layout(A + B).specs, layout(B * C).specs]).names == (
        "a",
        "b",
        "c",
    )
    with pytest.raises(ld.ParameterError, match="defined twice"):
        ParameterLayout.merge([layout(A).specs, layout(ld.parameter("a", scale=2)).specs])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], [1, 2]),
        ((1.5, -2), [1.5, -2]),
        (np.array([1, 2], dtype=np.float32), [1, 2]),
        (np.array([1, 2]), [1, 2]),
        ({}, [0.25, 0]),
        ({"b": 3}, [0.25, 3]),
        ({"b": np.float32(3), "a": np.int8(1)}, [1, 3]),
        (None, [0.25, 0]),
        ([math.nan, math.inf], [math.nan, math.inf]),
    ],
)
def test_vectors(values: Any, expected: list[float]) -> None:
    """Bounds are not enforced when a model is evaluated."""
    found = layout(ld.parameter("a", initial=0.25, bounds=(0, 0.5)) + B)
    vector = found.vector(values)
    assert vector.dtype == np.float64
    np.testing.assert_array_equal(vector, expected)
    vector[0] = 99  # a copy: neither the caller's array nor the defaults change
    np.testing.assert_array_equal(found.vector(values), expected)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1], "expected 2 parameters"),
        ([1, 2, 3], "expected 2 parameters"),
        ([[1, 2]], "shape"),
        (1.0, "expected 2 parameters"),
        ("12", "real numbers"),
        (["1", "2"], "real numbers"),
        ([1, 2j], "real numbers"),
        (np.array([1, 2j]), "real numbers"),
        ([1, None], "real numbers"),
        ([1, [2, 3]], "real numbers"),
        ({"A": 1}, "unknown parameter 'A'.*free parameters: a, b"),
        ({"held": 1}, "'held' is fixed"),
        ({"a": "1"}, "real numbers"),
        ({"a": 1j}, "real numbers"),
        ({"a": [1]}, "one number"),
        ({"a": None}, "real numbers"),
        ({1: 1}, "unknown parameter"),
    ],
)
def test_wrong_vectors(values: Any, message: str) -> None:
    found = layout(A + B * ld.parameter("held", fixed=2.0))
    with pytest.raises(ld.ParameterError, match=message):
        found.vector(values)
    with pytest.raises(ld.ParameterError, match=message):
        ld.Model(A + B * ld.parameter("held", fixed=2.0)).evaluate(parameters=values)


def test_near_miss_is_suggested() -> None:
    with pytest.raises(ld.ParameterError, match="did you mean 'mass'"):
        layout(ld.parameter("mass") + A).vector({"msas": 1})


def test_outside_bounds() -> None:
    found = layout(ld.parameter("a", bounds=(0, 1)) + ld.parameter("b", bounds=(None, 2)) + C)
    assert found.outside_bounds(np.array([0.0, 2.0, 1e9])) == []
    assert found.outside_bounds(np.array([-0.5, 3.0, math.nan])) == [
        "a = -0.5 is outside [0.0, 1.0]",
        "b = 3.0 is outside [None, 2.0]",
        "c is NaN",
    ]


def test_columns_are_those_that_matter() -> None:
    y = ld.scalar("y")
    assert ld.Model(y * A + X).columns == ("y", "x")
    assert ld.Model(ld.vector([X, y])[0]).columns == ("x",)
    assert ld.Model(A + 1).columns == ()


def test_only_scalars_are_models() -> None:
    for expr in (ld.vector([A, B]), ld.matrix([[A]])):
        with pytest.raises(ld.ExpressionError, match="a model must be a scalar"):
            ld.Model(expr)


def test_missing_data_set() -> None:
    """CP-01."""
    with pytest.raises(ld.DataError, match="reads the event columns x, y"):
        ld.Model(A * X + ld.scalar("y")).evaluate()


def test_programs_travel() -> None:
    """Workers receive plain data with the same digest."""
    expr = (ld.complex(A * X, B).exp() / (X - C)).norm_sqr()
    for transform in ("linear", "log", "complex"):
        model = compile_model(expr, transform)  # type: ignore[arg-type]
        again = pickle.loads(pickle.dumps(model))
        assert again == model
        assert again.programs.digest == model.programs.digest
        other = compile_model(expr + A, transform)  # type: ignore[arg-type]
        assert other.programs.digest != model.programs.digest


def test_names_are_made_once_and_change_nothing() -> None:
    """A layout that has been asked equals, hashes and pickles as one that has not."""
    asked, fresh = layout(A * B), layout(A * B)
    assert asked.names is asked.names
    assert asked.free is asked.free
    assert (asked, hash(asked)) == (fresh, hash(fresh))
    again = pickle.loads(pickle.dumps(asked))
    assert (again, again.names) == (fresh, ("a", "b"))


@pytest.mark.parametrize("values", [[1, 2.5], (1, 2.5), np.array([1, 2.5]), {"a": 1, "b": 2.5}])
def test_vectors_are_new_arrays_of_floats(values: Any) -> None:
    """Whatever they are made of: nobody's array is kept."""
    found = layout(A * B).vector(values)
    assert found.dtype == np.float64
    assert found.tolist() == [1.0, 2.5]
    if isinstance(values, np.ndarray):
        assert not np.shares_memory(found, values)
