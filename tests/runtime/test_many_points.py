"""Event by event at several parameter points, visits, and several quantities in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
import pytest
from counting_source import counting
from distributed import Client

import laddu_dask as ld
from laddu_dask.errors import DataError, EvaluationError, ParameterError

X = ld.scalar("x")
SHIFTED = ld.Model(X + ld.parameter("offset", initial=0.5))
OFFSETS = {"central": [0.5], "ensemble draw 0": [1.5]}


@pytest.fixture(
    params=[
        pytest.param("here", id="here"),
        pytest.param("cluster", id="cluster", marks=pytest.mark.cluster),
    ]
)
def execution(request: pytest.FixtureRequest) -> ld.Execution:
    """Blocks of two events, in this process or on a cluster."""
    where: Client | None = None
    if request.param == "cluster":
        where = request.getfixturevalue("client")
    return ld.Execution(cluster=where, chunk_events=2, backend="interpreter")


def events(x: Sequence[float], weights: Any = None) -> ld.Dataset:
    return ld.Dataset.from_arrays(scalars={"x": np.array(x, dtype=float)}, weights=weights)


def test_rows_of_two_points(execution: ld.Execution) -> None:
    """AX-35, EV-01, EV-02."""
    rows = SHIFTED.evaluate_many(events([1, 2, 3]), OFFSETS.values(), execution)
    assert rows.dtype == np.complex128
    np.testing.assert_array_equal(rows, [[1.5, 2.5, 3.5], [2.5, 3.5, 4.5]])
    real = SHIFTED.evaluate_many(events([1, 2, 3]), OFFSETS.values(), execution, real=True)
    assert real.dtype == np.float64
    np.testing.assert_array_equal(SHIFTED.evaluate(events([1, 2, 3]), [1.5], execution), rows[1])


def test_nothing_to_do() -> None:
    """EV-03, T-43: no point, no event."""
    assert SHIFTED.evaluate_many(events([1, 2, 3]), []).shape == (0, 3)
    assert SHIFTED.evaluate_many(events([1, 2, 3]), [], real=True).shape == (0, 3)
    assert SHIFTED.evaluate_many(events([]), [[0.5], [1.5]]).shape == (2, 0)
    assert SHIFTED.visit(events([1.0]), {}, lambda *_: None, reduction="linear") == []
    assert SHIFTED.visit(events([]), OFFSETS, lambda *_: None, reduction="linear") == [0.0, 0.0]


def test_a_row_does_not_depend_on_the_others() -> None:
    """EV-18."""
    model = ld.Model((X * ld.parameter("a") + 0.3).exp() + ld.parameter("b") * X**2)
    data = events(np.linspace(-1, 1, 777).tolist())
    points = np.random.default_rng(3).normal(size=(5, 2))
    for order in ([0, 1, 2, 3, 4], [4, 2, 0], [3]):
        for k, row in zip(order, model.evaluate_many(data, points[order]), strict=True):
            np.testing.assert_array_equal(row, model.evaluate(data, points[k]))


def test_a_visit(execution: ld.Execution) -> None:
    """AX-36, AX-35, EV-05, EV-06: blocks outside, points inside, offsets count events."""
    calls: list[tuple[int, int]] = []
    shown: dict[int, list[Any]] = {0: [], 1: []}

    def consume(offset: int, point: int, values: Any) -> None:
        calls.append((offset, point))
        shown[point].append(values)

    sums = SHIFTED.visit(events([1, 2, 3]), OFFSETS, consume, execution, "positive")
    assert calls == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert sums == [7.5, 10.5]
    np.testing.assert_array_equal(np.concatenate(shown[0]), [1.5, 2.5, 3.5])
    np.testing.assert_array_equal(np.concatenate(shown[1]), [2.5, 3.5, 4.5])
    assert SHIFTED.visit(events([1, 2, 3]), OFFSETS, consume, execution) == []


def test_sums_of_a_visit() -> None:
    """EV-04, EV-21, AX-33: weights multiply the value or its logarithm; sums are exact."""
    model = ld.Model(2 * X + 1)
    data = events([1, 2, 3], np.array([2.0, 3.0, 4.0]))
    at = {"only": None}
    assert model.visit(data, at, lambda *_: None, reduction="linear") == [49.0]
    (log,) = model.visit(data, at, lambda *_: None, reduction="log")
    assert log == pytest.approx(14.809178910859774, rel=1e-15)
    cancelling = events([1.0, 1.0, 1.0], np.array([1e16, 1.0, -1e16]))
    assert ld.Model(X).visit(cancelling, at, lambda *_: None, reduction="linear") == [1.0]


def test_a_block_that_cannot_be_summed_is_not_shown(execution: ld.Execution) -> None:
    """AX-36, EV-07, T-40, T-42: the error begins with the name of the point."""
    calls: list[int] = []
    with pytest.raises(
        EvaluationError, match=r"^central: reduction failed: the value of event 2 is -0\.5"
    ) as caught:
        SHIFTED.visit(
            events([1, 2, -1]), OFFSETS, lambda offset, *_: calls.append(offset), execution, "log"
        )
    assert calls == [0, 0]
    assert caught.value.event == 2
    assert caught.value.value == -0.5
    points = {"central": [0.5], "ensemble draw 0": [np.inf]}
    with pytest.raises(EvaluationError, match="ensemble draw 0: .* inf, it must be finite"):
        SHIFTED.visit(events([1.0]), points, lambda *_: None, execution, "linear")


def test_what_the_consumer_raises_is_passed_on(execution: ld.Execution) -> None:
    """EV-05, EV-08, T-41: unchanged, and it may be a closure over anything."""

    class Enough(Exception):  # noqa: N818 - a signal of the test
        pass

    lock = Lock()  # cannot be sent to another process

    def consume(offset: int, point: int, values: Any) -> None:
        with lock:
            if offset:
                raise Enough

    with pytest.raises(Enough):
        SHIFTED.visit(events([1, 2, 3]), OFFSETS, consume, execution)


def test_the_source_is_read_once_for_all_points() -> None:
    """EV-02, T-37."""
    dataset, reads = counting(events([1, 2, 3]))
    SHIFTED.evaluate_many(dataset, [[k] for k in range(9)])
    SHIFTED.visit(dataset, OFFSETS, lambda *_: None)
    assert len(reads) == 2


def test_several_quantities_in_one_pass(execution: ld.Execution) -> None:
    """EV-14: the elements of a vector, row by row those of a matrix, of events or not."""
    a = ld.parameter("a", initial=2.0)
    data = events([1, 2, 3])
    found = ld.evaluate_elements(ld.vector([X, X * a, 1j * X**2, a]), data, None, execution)
    expected = [[1, 2, 3], [2, 4, 6], [1j, 4j, 9j], [2, 2, 2]]
    np.testing.assert_array_equal(found, expected)
    matrix = ld.matrix([[X, a], [a * X, 0.0]])
    found = ld.evaluate_elements(matrix, data, {"a": 3.0}, execution)
    np.testing.assert_array_equal(found, [[1, 2, 3], [3, 3, 3], [3, 6, 9], [0, 0, 0]])
    np.testing.assert_array_equal(ld.evaluate_elements(X, data), [[1, 2, 3]])
    with pytest.raises(DataError, match="y"):
        ld.evaluate_elements(ld.vector([X, ld.scalar("y")]), data)
    with pytest.raises(ParameterError):
        ld.evaluate_elements(matrix, data, {"b": 3.0})
