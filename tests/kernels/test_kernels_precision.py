"""Single precision, and weights that are not among the inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from every_operation import program, rows
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.compiler import Program, compile_model
from laddu_dask.compiler.ir import Region
from laddu_dask.kernels import Accumulator, get_backend

BACKENDS = ["interpreter", "cpu"]


def mapped(which: Program, inputs: Any, parameters: Any, backend: str, weights: Any = None) -> Any:
    out = np.empty((which.n_outputs, inputs.shape[1]))
    kernel = get_backend(backend).compile(which)
    kernel.map(inputs, np.asarray(parameters, dtype=float), out, weights)
    return out


def straight(*instructions: Any, outputs: tuple[int, ...], precision: Any = "f32") -> Program:
    inputs = [int(payload) for op, _, payload in instructions if op == "input"]
    parameters = [int(payload) for op, _, payload in instructions if op == "parameter"]
    which = Program(
        instructions,
        max(inputs, default=-1) + 1,
        max(parameters, default=-1) + 1,
        outputs,
        precision=precision,
    )
    which.verify()
    return which


def column(*values: float) -> NDArray[np.float32]:
    return np.resize(np.array(values, dtype=np.float32), (1, 8))


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_and_parameters_are_rounded_first(backend: str) -> None:
    """AX-12, FP-02: 2**24 + 1 is 2**24 in single precision, and itself in double."""
    add = (("input", (), "0"), ("parameter", (), "0"), ("add", (0, 1), None))
    single, double = (
        straight(*add, outputs=(2, 1), precision=precision) for precision in ("f32", "f64")
    )
    assert mapped(single, column(0.0), [2.0**24 + 1], backend)[:, 0].tolist() == [2.0**24] * 2
    zero = np.zeros((1, 8))
    assert mapped(double, zero, [2.0**24 + 1], backend)[:, 0].tolist() == [2.0**24 + 1] * 2
    literal = straight(("input", (), "0"), ("const", (), 0.1), ("mul", (0, 1), None), outputs=(2,))
    expected = float(np.float32(3) * np.float32(0.1))
    assert mapped(literal, column(3.0), [], backend)[0, 0] == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_arithmetic_is_that_of_single_precision(backend: str) -> None:
    """FP-10: no operation is done in double and rounded later, none overflows later."""
    rng = np.random.default_rng(3)
    x = np.ascontiguousarray(rng.normal(size=(2, 1024)) * 10.0 ** rng.integers(-30, 30, (2, 1024)))
    x = x.astype(np.float32)
    a, b = x
    with np.errstate(all="ignore"):
        operations = [("add", a + b), ("sub", a - b), ("mul", a * b), ("div", a / b)]
    which = straight(
        ("input", (), "0"),
        ("input", (), "1"),
        *((name, (0, 1), None) for name, _ in operations),
        ("abs", (0,), None),
        ("sqrt", (6,), None),
        outputs=tuple(range(2, 8)),
    )
    found = mapped(which, x, [], backend)
    expected = [value for _, value in operations] + [abs(a), np.sqrt(abs(a))]
    assert np.isinf(expected[2]).any()  # 1e39 is no single-precision number
    np.testing.assert_array_equal(found, np.array(expected, dtype=np.float64))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh"])
def test_functions_are_rounded_once(backend: str, name: str) -> None:
    x = np.linspace(0.01, 80.0, 1024, dtype=np.float32)[np.newaxis]
    which = straight(("input", (), "0"), (name, (0,), None), outputs=(1,))
    with np.errstate(over="ignore"):
        expected = getattr(np, name)(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(mapped(which, x, [], backend), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_widened_stays_double(backend: str) -> None:
    """FP-03, FP-04: transform and weight are doubles; the logarithm of 3 is that of a double."""
    x = column(3.0)
    log = straight(
        ("input", (), "0"), ("widen", (0,), None), ("log", (1,), None), ("log", (0,), None),
        ("const", (), 0.1), ("mul", (2, 4), None), outputs=(2, 3, 5),
    )  # fmt: skip
    found = mapped(log, x, [], backend)[:, 0]
    assert found.tolist() == [1.0986122886681098, 1.0986123085021973, 0.1 * 1.0986122886681098]


@pytest.mark.parametrize("precision", ["f32", "f64"])
def test_backends_agree_on_every_operation(precision: Any) -> None:
    which = replace(program(), precision=precision)
    values = rows(which)
    weights = np.where(np.isfinite(values[-1]), values[-1], 1.0)
    kind = np.float32 if precision == "f32" else np.float64
    with np.errstate(all="ignore"):
        inputs = np.ascontiguousarray(values[:-1].astype(kind))
    first, second = (
        mapped(which, inputs, np.linspace(0.4, 0.9, which.n_parameters), backend, weights)
        for backend in BACKENDS
    )
    assert (np.isnan(first) == np.isnan(second)).all()
    usual = np.abs(first) < 1e12  # elsewhere arguments of sine have lost their fraction
    np.testing.assert_allclose(first[usual], second[usual], rtol=1e-12 if kind is float else 2e-4)


def model() -> Program:
    x, a = ld.scalar("x"), ld.parameter("a", initial=0.5)
    return compile_model(((a * x) ** 2 + 1).log(), "linear").programs.gradient


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("events", [1, 1023, 1024, 1025, 5000])
def test_weights_may_be_a_row_an_array_or_one(backend: str, events: int) -> None:
    """The same bits for all of them, at every length of the last tile."""
    which = model()
    length = -(-events // 8) * 8
    x = np.linspace(-2, 3, length)[np.newaxis].copy()
    row = np.zeros((1, length))
    row[0, :events] = 1.0
    states = []
    for inputs, weights in ((np.vstack([x, row]), None), (x, row[0]), (x, 1.0)):
        states.append(Accumulator(which.n_outputs))
        kernel = get_backend(backend).compile(which)
        kernel.bind(inputs, events, 0, weights=weights)(np.array([0.7]), states[-1])
    assert states[0] == states[1] == states[2]
    assert states[0].count == events


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reduction_may_begin_at_any_tile(backend: str) -> None:
    which = model()
    x = np.linspace(-2, 3, 5000)[np.newaxis].copy()
    whole, parts = Accumulator(which.n_outputs), Accumulator(which.n_outputs)
    kernel = get_backend(backend).compile(which)
    kernel.bind(x, 5000, 0, weights=1.0)(np.array([0.7]), whole)
    for start, stop in ((3072, 5000), (0, 1024), (1024, 3072)):
        kernel.bind(x, 5000, 0, weights=1.0)(np.array([0.7]), parts, start, stop)
    assert parts == whole


def test_weights_are_never_forgotten() -> None:
    which = model()
    kernel, state = get_backend("cpu").compile(which), Accumulator(which.n_outputs)
    x = np.zeros((1, 8))
    with pytest.raises(ValueError, match="needs 2 padded input rows"):
        kernel.bind(x, 8, 0)(np.ones(1), state)
    with pytest.raises(ValueError, match=r"float64 weights of shape \(8,\), got float32"):
        kernel.bind(x, 8, 0, weights=np.ones(8, dtype=np.float32))(np.ones(1), state)
    with pytest.raises(ValueError, match=r"weights of its own, or 1\.0, got 2"):
        kernel.bind(x, 8, 0, weights=2.0)(np.ones(1), state)
    single = get_backend("cpu").compile(replace(which, precision="f32"))
    with pytest.raises(ValueError, match="C-contiguous float32 rows"):
        single.bind(x, 8, 0, weights=1.0)(np.ones(1), state)
    with pytest.raises(ValueError, match="weights of its own"):
        single.bind(np.zeros((2, 8), dtype=np.float32), 8, 0)(np.ones(1), state)


@pytest.mark.parametrize("backend", BACKENDS)
def test_regions_work_with_doubles(backend: str) -> None:
    """Their results are rounded to what they replace; 16777217 + 0.5 is lost in a float."""
    region = Region((("input", (), "0"), ("const", (), 16777217.0), ("add", (0, 1), None)), (2, 2))
    which = straight(
        ("input", (), "0"), ("widen", (0,), None), ("const", (), 0.0), ("lt", (2, 0), None),
        ("cold", (3, 0), region), ("merge", (4, 0), "0"), ("merge", (4, 1), "1"), outputs=(5, 6),
    )  # fmt: skip
    found = mapped(which, column(0.5, -0.5), [], backend)
    assert found[0, :2].tolist() == [16777218.0, -0.5]
    assert found[1, :2].tolist() == [16777217.5, -0.5]
