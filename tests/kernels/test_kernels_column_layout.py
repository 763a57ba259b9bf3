"""Columns by rows or by vectors: the same numbers in another place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from laddu_dask.compiler import Program
from laddu_dask.kernels import Accumulator, column_layout, get_backend
from laddu_dask.kernels.target import find_target

COUNT = 20


def program() -> Program:
    """Sum of all columns, times the weight; and the last column."""
    instructions: list[Any] = [("input", (), str(row)) for row in range(COUNT + 1)]
    total = 0
    for row in range(1, COUNT):
        instructions.append(("add", (total, row), None))
        total = len(instructions) - 1
    instructions.append(("mul", (total, COUNT), None))
    return Program(
        tuple(instructions), COUNT + 1, 0, (len(instructions) - 1, COUNT - 1), weighted=True
    )


def filled(events: int, *, vectors: bool, dtype: Any = float) -> tuple[Any, Any]:
    """Columns, put there in pieces of whole tiles, and the rows that they come from."""
    rows = np.random.default_rng(4).normal(size=(COUNT, -(-events // 8) * 8))
    columns = column_layout.empty_columns(COUNT, events, vectors=vectors, dtype=dtype)
    for first in range(0, events, 1024):
        length = min(1024, events - first)
        column_layout.put(columns, first, rows[:, first:], length)
    return columns, rows


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("events", [1, 8, 1023, 1024, 3001])
def test_what_was_put_is_found(events: int, vectors: bool) -> None:
    columns, rows = filled(events, vectors=vectors)
    assert column_layout.capacity(columns) >= events
    found = column_layout.as_rows(columns, 0, events)
    np.testing.assert_array_equal(found, rows[:, :events])
    start = events // 16 * 8
    np.testing.assert_array_equal(
        column_layout.as_rows(columns, start, events), rows[:, start:events]
    )
    row, step = column_layout.strides(columns)
    flat = columns.reshape(-1)
    for event, column in ((0, 0), (start, COUNT - 1), (events // 8 * 8 - 8, 3)):
        if event >= 0:
            assert flat[column * row + event // 8 * step] == rows[column, event]


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("events", [1, 1024, 200_000])
def test_columns_begin_with_a_cache_line(dtype: Any, events: int, vectors: bool) -> None:
    columns = column_layout.empty_columns(COUNT, events, vectors=vectors, dtype=dtype)
    assert columns.ctypes.data % 64 == 0
    assert columns.dtype == dtype
    assert columns.flags.c_contiguous
    assert columns.flags.writeable
    assert column_layout.capacity(columns) >= events


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("precision", ["f64", "f32"])
@pytest.mark.parametrize("events", [1, 1024, 3001])
def test_no_bit_depends_on_the_layout(backend: str, precision: Any, events: int) -> None:
    kernel = get_backend(backend).compile(replace(program(), precision=precision))
    states, values = [], []
    for vectors in (False, True):
        columns, _ = filled(
            events, vectors=vectors, dtype=np.float32 if precision == "f32" else float
        )
        weights = np.zeros(column_layout.capacity(columns))
        weights[:events] = np.linspace(0.5, 1.5, events)
        states.append(Accumulator(2))
        kernel.bind(columns, events, 0, weights=weights)(np.zeros(0), states[-1])
        values.append(np.empty((2, len(weights))))
        kernel.map(columns, np.zeros(0), values[-1], weights)
    assert states[0] == states[1]
    np.testing.assert_array_equal(values[0][:, :events], values[1][:, :events])


def test_bad_events_are_found_by_vectors_too() -> None:
    columns, _ = filled(3001, vectors=True)
    columns[2000 // 8, 7, 2000 % 8] = np.nan
    state = Accumulator(2)
    kernel = get_backend("cpu").compile(program())
    kernel.bind(columns, 3001, 500, weights=1.0)(np.zeros(0), state)
    assert (state.first_bad, state.count) == (2500, 3000)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (np.zeros((2, COUNT - 1, 8)), "needs 20 input columns, got 19"),
        (np.zeros((2, COUNT, 4)), "vectors of 8 events"),
        (np.zeros((2, COUNT, 8), dtype=np.float32), "C-contiguous float64 vectors"),
        (np.zeros((2, 8, COUNT)).transpose(0, 2, 1), "C-contiguous float64 vectors"),
    ],
)
def test_other_shapes_never_reach_compiled_code(columns: Any, message: str) -> None:
    kernel = get_backend("cpu").compile(program())
    with pytest.raises(ValueError, match=message):
        kernel.bind(columns, 8, 0, weights=1.0)(np.zeros(0), Accumulator(2))


def test_the_processor_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    target = find_target("host")
    for name, wide in (("znver4", True), ("sapphirerapids", False)):
        monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda name=name: name)
        assert column_layout.prefers_vectors(41, target) is wide
        assert not column_layout.prefers_vectors(16, target)
