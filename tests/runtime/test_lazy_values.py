"""Event-wise results as Dask arrays, and several expressions in one pass."""

from __future__ import annotations

from typing import Any

import dask
import numpy as np
import pytest
from counting_source import counting
from dask import array as da
from distributed import Client

import laddu_dask as ld
from laddu_dask.errors import DataError, EvaluationError, ExpressionError, ParameterError

X, Y = ld.scalar("x"), ld.scalar("y")
A, B = ld.parameter("a", initial=0.5), ld.parameter("b", initial=-0.25)
MODEL = ld.Model((A * X).exp() + 1j * B * Y**2)
N = 5000
PARTS = ld.Execution(partitions=3, threads=1)


def events(n: int = N) -> ld.Dataset:
    rng = np.random.default_rng(11)
    return ld.Dataset.from_arrays(scalars={"x": rng.normal(size=n), "y": rng.normal(size=n)})


DATA = events()

# lazy --------------------------------------------------------------------------------------


def test_values() -> None:
    """EV-01: dtype and chunks are known, bits are those of an evaluation now."""
    lazy = MODEL.evaluate(DATA, [0.7, 0.1], PARTS, lazy=True)
    assert isinstance(lazy, da.Array)
    assert (lazy.shape, lazy.dtype, lazy.numblocks) == ((N,), np.complex128, (3,))
    assert all(chunk % 1024 == 0 for chunk in lazy.chunks[0][:-1])
    now = MODEL.evaluate(DATA, [0.7, 0.1])
    np.testing.assert_array_equal(lazy.compute(), now)
    np.testing.assert_array_equal(lazy[1000:1100].compute(), now[1000:1100])
    intensity = ld.Model(MODEL.expr.norm_sqr())
    real = intensity.evaluate(DATA, None, PARTS, real=True, lazy=True)
    assert real.dtype == np.float64
    np.testing.assert_array_equal(real.compute(), intensity.evaluate(DATA, real=True))


def test_many_points_and_gradients() -> None:
    """EV-02: shapes (points, events), and (events, parameters)."""
    points = [[0.7, 0.1], [0.1, 0.2], [0.0, 0.0], [-1.0, 5.0]]
    lazy = MODEL.evaluate_many(DATA, points, PARTS, lazy=True)
    assert (lazy.shape, lazy.dtype) == ((4, N), np.complex128)
    assert lazy.chunks[0] == (4,)
    np.testing.assert_array_equal(lazy.compute(), MODEL.evaluate_many(DATA, points))
    assert MODEL.evaluate_many(DATA, [], PARTS, lazy=True).compute().shape == (0, N)
    values, gradient = MODEL.value_and_gradient(DATA, points[0], PARTS, lazy=True)
    assert (values.shape, gradient.shape) == ((N,), (N, 2))
    assert gradient.dtype == np.complex128
    now = MODEL.value_and_gradient(DATA, points[0])
    for found, expected in zip(dask.compute(values, gradient), now, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_what_is_not_asked_for_is_not_read() -> None:
    """Nothing at first, one partition for a few events, one reading for values and derivatives."""
    data, reads = counting(events())
    lazy = MODEL.evaluate(data, None, PARTS, lazy=True)
    assert reads == []
    lazy[:10].compute(scheduler="synchronous")
    assert len(reads) == 1
    reads.clear()
    dask.compute(*MODEL.value_and_gradient(data, None, PARTS, lazy=True), scheduler="synchronous")
    assert len(reads) == 3
    reads.clear()
    again = MODEL.evaluate(data, None, PARTS, lazy=True)
    assert again.name == lazy.name
    assert MODEL.evaluate(data, [0.7, 0.1], PARTS, lazy=True).name != lazy.name


def test_no_events_and_no_data_set() -> None:
    """EV-03, T-43."""
    assert MODEL.evaluate(events(0), lazy=True).compute().shape == (0,)
    values, gradient = MODEL.value_and_gradient(events(0), lazy=True)
    assert (values.compute().shape, gradient.compute().shape) == ((0,), (0, 2))
    with pytest.raises(DataError, match="pass one"):
        ld.Model(A).evaluate(lazy=True)
    with pytest.raises(DataError, match="'z'"):
        ld.Model(ld.scalar("z")).evaluate(DATA, lazy=True)


def test_errors_count_from_the_beginning_of_the_data() -> None:
    """EV-06: a value that is not real in the second of three partitions."""
    x = np.ones(N)
    x[3000] = -1.0
    data = ld.Dataset.from_arrays(scalars={"x": x})
    lazy = ld.Model((X + 0j).sqrt()).evaluate(data, None, PARTS, real=True, lazy=True)
    with pytest.raises(EvaluationError, match="of event 3000 is complex") as caught:
        lazy.compute()
    assert caught.value.event == 3000


@pytest.mark.cluster
def test_blocks_stay_on_the_cluster(client: Client) -> None:
    """A sum of values moves numbers, not events; the values have the bits of this process."""
    spread = ld.Execution(cluster=client, partitions=4, backend="interpreter")
    lazy = MODEL.evaluate(DATA, None, spread, lazy=True)
    kept = client.persist(lazy)
    assert client.compute(kept.real.max()).result() == MODEL.evaluate(DATA).real.max()
    here = MODEL.evaluate(DATA, None, ld.Execution(backend="interpreter"))
    np.testing.assert_array_equal(client.compute(kept).result(), here)


# several expressions -----------------------------------------------------------------------


def test_several_expressions() -> None:
    """EV-14: each with its own shape and type, and the bits that it has by itself."""
    shared = (A * X + Y).sin()
    vector = ld.vector([shared, 1j * X])
    matrix = ld.matrix([[X, A], [shared, 0.0]])
    exprs = {"shared": shared, "complex": shared * 1j + X, "vector": vector, "matrix": matrix}
    found = ld.evaluate(exprs, DATA, {"a": 2.0}, PARTS)
    assert list(found) == list(exprs)
    assert [(value.shape, value.dtype) for value in found.values()] == [
        ((N,), np.float64),
        ((N,), np.complex128),
        ((2, N), np.complex128),
        ((2, 2, N), np.float64),
    ]
    at = {"a": 2.0}
    np.testing.assert_array_equal(found["shared"], ld.Model(shared).evaluate(DATA, at, real=True))
    np.testing.assert_array_equal(found["complex"], ld.Model(exprs["complex"]).evaluate(DATA, at))
    np.testing.assert_array_equal(found["vector"], ld.evaluate_elements(vector, DATA, at))
    np.testing.assert_array_equal(
        found["matrix"].reshape(4, N), ld.evaluate_elements(matrix, DATA, at)
    )
    one, two = ld.evaluate([exprs["complex"], shared], DATA, [2.0])
    np.testing.assert_array_equal(one, found["complex"])
    np.testing.assert_array_equal(two, found["shared"])
    np.testing.assert_array_equal(ld.evaluate(shared, DATA, [2.0]), two)


def test_one_reading_and_one_computation() -> None:
    """EV-14, T-37: the events are read once; what expressions share is in the program once."""
    data, reads = counting(events())
    ld.evaluate([X * A, (X * A).exp(), Y + B], data, None, ld.Execution(partitions=1))
    assert len(reads) == 1
    from laddu_dask.compiler import compile_elements

    costly = (X * A).exp()
    program = compile_elements([costly + k for k in range(5)]).programs.value
    assert sum(op == "exp" for op, _, _ in program.instructions) == 1


def test_lazily() -> None:
    exprs = [ld.vector([X, Y * 1j]), X * A]
    lazy = ld.evaluate(exprs, DATA, [3.0], PARTS, lazy=True)
    assert [array.shape for array in lazy] == [(2, N), (N,)]
    assert [array.dtype for array in lazy] == [np.complex128, np.float64]
    for found, expected in zip(dask.compute(*lazy), ld.evaluate(exprs, DATA, [3.0]), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_parameters_of_several_expressions() -> None:
    """In the order of first appearance; one definition each."""
    first, second = ld.evaluate([B * 1.0, A * 1.0], events(3), [1.0, 2.0])
    assert first.tolist() == [1.0] * 3
    assert second.tolist() == [2.0] * 3
    with pytest.raises(ParameterError, match="defined twice"):
        ld.evaluate([A * X, ld.parameter("a", initial=9.0) * X], DATA)
    with pytest.raises(ParameterError, match="expected 2 parameters"):
        ld.evaluate([A, B], DATA, [1.0])
    with pytest.raises(ExpressionError, match="no expression"):
        ld.evaluate([], DATA)
    with pytest.raises(DataError, match="'z'"):
        ld.evaluate([X, ld.scalar("z")], DATA)


def test_single_precision() -> None:
    options: Any = {"precision": "f32", "partitions": 2}
    found = ld.evaluate([X * A, X * 1j], DATA, [2.0], ld.Execution(**options))
    x = DATA.column("x").astype(np.float32)
    np.testing.assert_array_equal(found[0], (x * np.float32(2.0)).astype(float))
    np.testing.assert_array_equal(found[1].imag, x.astype(float))
