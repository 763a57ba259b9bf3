"""What executors of other programs decide each in their own way has one answer here (AM rows)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.errors import DataError, EvaluationError, MemoryBudgetError
from laddu_dask.kernels import Accumulator
from laddu_dask.memory import DatasetRequest, plan_dataset

Array = NDArray[np.float64]
BACKENDS = ["interpreter", "cpu"]
STORAGES: list[Any] = ["resident", "streaming", "spilled"]

X = ld.scalar("x")
P = ld.parameter("p", initial=-2.0)
EVENTS = ld.Dataset.from_arrays(scalars={"x": [-1.0, 4.0, 1.0]})


def evaluated(expr: ld.Expr, backend: Any, data: ld.Dataset = EVENTS) -> NDArray[np.complex128]:
    return ld.Model(expr).evaluate(data, execution=ld.Execution(backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_roots_and_logarithms_of_negative_numbers(backend: str) -> None:
    """AM-01: the principal complex value, for columns, parameters and mixtures of both."""
    two = np.array([2.0, -8.0, -2.0])  # x p
    roots: list[tuple[ld.Expr, Any]] = [
        (X.sqrt(), [1j, 2.0, 1.0]),
        (P.sqrt() + 0.0 * X, [1j * math.sqrt(2)] * 3),
        ((X * P).sqrt(), np.sqrt(two.astype(complex))),
        (X.log(), [1j * math.pi, math.log(4.0), 0.0]),
        ((X * P).log(), np.log(two.astype(complex))),
    ]
    for expr, expected in roots:
        np.testing.assert_allclose(evaluated(expr, backend), expected, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("backend", BACKENDS)
def test_real_parts_are_taken_where_numbers_must_be_real(backend: str) -> None:
    """AM-16: of complex operands of complex() and atan2()."""
    crooked = X + 3.0j * X
    np.testing.assert_array_equal(
        evaluated(ld.complex(crooked, 2.0 * X), backend), [-1 - 2j, 4 + 8j, 1 + 2j]
    )
    np.testing.assert_allclose(
        evaluated(ld.atan2(crooked, P), backend),
        [math.atan2(x, -2.0) for x in (-1.0, 4.0, 1.0)],
        rtol=1e-15,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [((X, 1.0), (X, 1.0)), ((X * P, P), (X, 1.0))])
def test_singular_matrices_are_one_error(backend: Any, rows: Any) -> None:
    """AM-13, AM-15: of event columns or with parameters, the first event is named."""
    solved = ld.solve(ld.matrix([list(row) for row in rows]), ld.vector([1.0, P]))
    term = ld.NLL(ld.Model(solved[0].norm_sqr()), data=EVENTS, accepted_mc=EVENTS)
    with (
        ld.Likelihood([term], ld.Execution(backend=backend)) as used,
        pytest.raises(EvaluationError) as caught,
    ):
        used.value_and_gradient([-2.0])
    assert caught.value.event == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("storage", STORAGES)
def test_nan_is_refused_by_every_kind_of_sum(backend: Any, storage: Any) -> None:
    """AM-06: of the values alone, with derivatives, and of a visit; the event is named."""
    x = np.linspace(1.0, 2.0, 3000)
    x[1717] = np.nan
    data = ld.Dataset.from_arrays(scalars={"x": x})
    good = ld.Dataset.from_arrays(scalars={"x": np.linspace(1.0, 2.0, 3000)})
    model = ld.Model((X * P) ** 2)
    execution = ld.Execution(backend=backend, storage=storage)
    term = ld.NLL(model, data=data, accepted_mc=good)
    with ld.Likelihood([term], execution) as used:
        for call in (used.value, used.value_and_gradient):
            with pytest.raises(EvaluationError) as caught:
                call([-2.0])
            assert caught.value.event == 1717
    for reduction in ("positive", "log"):
        with pytest.raises(EvaluationError) as caught:
            model.visit(data, {"one": [-2.0]}, lambda *seen: None, execution, reduction=reduction)
        assert caught.value.event == 1717


@pytest.mark.parametrize("precision", ["f64", "f32"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_value_has_the_same_bits_alone_and_with_derivatives(backend: Any, precision: Any) -> None:
    """AM-03, AM-05: logarithms and sums are double and exact in every kind of pass."""
    rng = np.random.default_rng(3)
    data, mc = (ld.Dataset.from_arrays(scalars={"x": rng.uniform(0.1, 9, n)}) for n in (5000, 7000))
    term = ld.NLL(ld.Model((X * P + 0.3) ** 2 + X), data=data, accepted_mc=mc)
    for storage in STORAGES:
        execution = ld.Execution(backend=backend, precision=precision, storage=storage)
        with ld.Likelihood([term], execution) as used:
            for p in (-2.0, 0.7, 31.0):
                both, _ = used.value_and_gradient([p])
                assert used.value([p]).hex() == both.hex()
                assert used.value_many([[p], [1.0]])[0].hex() == both.hex()


def test_merging_keeps_what_rounding_would_lose() -> None:
    """AM-04: 1e16, 1 and -1e16 are one, in any order and any tree."""
    for numbers in permutations([1e16, 1.0, -1e16, 2.0**-60]):
        parts = []
        for number in numbers:
            parts.append(Accumulator(1))
            parts[-1].add_rows(np.array([[number]]), 0)
        left, right = Accumulator(1), Accumulator(1)
        for part in parts[:2]:
            left.merge(part)
        for part in parts[2:]:
            right.merge(part)
        left.merge(right)
        assert left.round() == [1.0 + 2.0**-60]
        assert left.count == 4


def test_unknown_numbers_of_events_are_counted_once() -> None:
    """AM-08, AM-11: in every storage, and streams never ask for room for all of them."""
    calls: list[int] = []

    def piece(number: int) -> Iterator[dict[str, Array]]:
        calls.append(number)
        yield {"x": np.linspace(1.0 + number, 2.0 + number, 20_000)}

    values = set()
    for storage in STORAGES:
        data = ld.Dataset.from_batches(piece, ["x"], rows=None, pieces=3, identity="am-08")
        calls.clear()
        term = ld.NLL(ld.Model((X * P) ** 2), data=data, accepted_mc=data)
        execution = ld.Execution(
            storage=storage, memory="1 MiB" if storage == "streaming" else None
        )
        assert data.count() == 60_000
        assert sorted(calls) == [0, 1, 2]
        with ld.Likelihood([term], execution) as used:
            values.add(used.value().hex())
        assert data.count() == 60_000
    assert len(values) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_of_events_needs_events(backend: Any) -> None:
    """AM-09: a missing column is named, no event gives no value."""
    with pytest.raises(DataError, match="column 'x'"):
        evaluated(X * P, backend, ld.Dataset.from_arrays(scalars={"y": [1.0]}))
    assert evaluated(X * P, backend, ld.Dataset.from_arrays(scalars={"x": []})).shape == (0,)


@settings(max_examples=60, deadline=None)
@given(
    events=st.integers(1, 60),
    sizes=st.tuples(st.integers(0, 30), st.integers(1, 30), st.integers(0, 30)),
    available=st.integers(0, 3000),
)
def test_a_chunk_is_found_whenever_there_is_one(
    events: int, sizes: tuple[int, int, int], available: int
) -> None:
    """AM-10: the largest of all chunks that fit, resident: no iteration gives up on it."""
    cache, source, fixed = sizes
    request = DatasetRequest("data", events, cache, source, fixed)

    def peak(chunk: int) -> int:
        return cache * events + fixed * -(-events // chunk) + 2 * source * chunk

    fitting = [chunk for chunk in range(1, events + 1) if peak(chunk) <= available]
    if not fitting:
        with pytest.raises(MemoryBudgetError):
            plan_dataset(request, available, "resident")
    else:
        decision = plan_dataset(request, available, "resident")
        assert decision.chunk_events == max(fitting)
        assert decision.peak_bytes == peak(max(fitting))


@pytest.mark.parametrize("backend", BACKENDS)
def test_visits_come_in_planned_chunks(backend: Any) -> None:
    """AM-12: of whole tiles, whatever pieces the source has."""

    def piece(number: int) -> dict[str, Array]:
        return {"x": np.full(700, float(number))}

    data = ld.Dataset.from_batches(piece, ["x"], rows=[700] * 6, identity="am-12")
    seen: list[tuple[int, int]] = []
    ld.Model(X * P).visit(
        data,
        {"one": [-2.0]},
        lambda offset, point, values: seen.append((offset, len(values))),
        ld.Execution(backend=backend, chunk_events=2048),
    )
    assert seen == [(0, 2048), (2048, 2048), (4096, 104)]
