"""Data sets from arrays: copies, types, refusals."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from laddu_dask.data import Dataset
from laddu_dask.errors import DataError

P4 = np.arange(12.0).reshape(3, 4)


def test_columns_come_out_as_they_went_in() -> None:
    """Conventions 2.1: four-momenta are (E, px, py, pz)."""
    data = Dataset.from_arrays({"k": P4}, {"x": [1, 2, 3]}, weights=[0.5, -1.0, 2.0])
    assert data.n_events == 3
    assert data.schema.columns == ("k_e", "k_px", "k_py", "k_pz", "x")
    for position, label in enumerate(("e", "px", "py", "pz")):
        assert data.column(f"k_{label}").tolist() == P4[:, position].tolist()
    assert data.column("x").tolist() == [1.0, 2.0, 3.0]
    assert data.weights().tolist() == [0.5, -1.0, 2.0]
    assert data.sum_weights() == 1.5


def test_weights_default_to_one() -> None:
    """DA-02."""
    data = Dataset.from_arrays(scalars={"x": np.zeros(3)})
    assert data.weights().tolist() == [1.0, 1.0, 1.0]
    assert data.sum_weights() == 3.0
    assert not data.schema.has_weight


def test_single_precision_is_widened_exactly() -> None:
    """Conventions 2.9: 0.1f32 becomes 0.10000000149011612."""
    data = Dataset.from_arrays(scalars={"x": np.array([0.1], dtype=np.float32)})
    assert data.column("x")[0] == 0.10000000149011612


def test_arrays_are_copied() -> None:
    p4, x, weights = P4.copy(), np.ones(3), np.ones(3)
    data = Dataset.from_arrays({"k": p4}, {"x": x}, weights)
    p4[:], x[:], weights[:] = -1.0, -1.0, -1.0
    assert data.column("k_e").tolist() == [0.0, 4.0, 8.0]
    assert data.column("x").tolist() == data.weights().tolist() == [1.0, 1.0, 1.0]
    batch = next(data.fragments[0].read(["x"], 10))
    batch.values[:], batch.weights[:] = 9.0, 9.0
    assert data.column("x").tolist() == data.weights().tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        data.fragments[0].values[:] = 0.0  # type: ignore[attr-defined]


def test_nan_is_accepted_outside_weights() -> None:
    data = Dataset.from_arrays(scalars={"x": [np.nan, np.inf]})
    assert np.array_equal(data.column("x"), [np.nan, np.inf], equal_nan=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "at least one array"),
        ({"p4s": {"k": np.zeros((4, 3))}}, r"p4s\['k'\] has the shape \(4, 3\)"),
        (
            {"p4s": {"k": np.zeros(4)}},
            r"p4s\['k'\] has the shape \(4,\) .*px, py, pz; one number per event goes to "
            r"scalars=\{'k': \.\.\.\}",
        ),
        ({"scalars": {"x": np.zeros((3, 1))}}, r"scalars\['x'\] has the shape \(3, 1\)"),
        ({"scalars": {"x": 1.0}}, r"scalars\['x'\] has the shape \(\)"),
        ({"scalars": {"x": [1.0], "y": [1.0, 2.0]}}, r"scalars\['x'\] has 1, scalars\['y'\] has 2"),
        ({"scalars": {"x": [1.0]}, "weights": [1.0, 2.0]}, "weights has 2"),
        ({"scalars": {"x": [[1.0], [1.0, 2.0]]}}, "is not an array of shape"),
        ({"scalars": {"x": [True]}}, "type bool"),
        ({"scalars": {"x": [1j]}}, "type complex128"),
        ({"scalars": {"x": ["1"]}}, "type <U1"),
        ({"scalars": {"x": [None]}}, "type object"),
        ({"scalars": {"x": np.array(["2020-01-01"], "M8[D]")}}, "type datetime64"),
        ({"scalars": {"x": [2**53 + 1]}}, "integer 9007199254740993, which float64 would round"),
        ({"scalars": {"x": np.array([0, 2**64 - 1], np.uint64)}}, "integer 18446744073709551615"),
        ({"scalars": {"x": np.ma.array([1.0], mask=[True])}}, "masked"),
        ({"scalars": {"": [1.0]}}, "empty name"),
        ({"p4s": {"k": P4}, "scalars": {"k_px": np.zeros(3)}}, "'k_px' occurs twice"),
        ({"scalars": {"weight": [1.0]}, "weights": [1.0]}, "'weight' occurs twice"),
        ({"scalars": {"x": [1.0]}, "weights": [True]}, "weights has the type bool"),
        ({"scalars": {"x": [1.0]}, "weights": [[1.0]]}, r"weights has the shape \(1, 1\)"),
    ],
)
def test_bad_arrays_are_refused(arguments: dict[str, Any], message: str) -> None:
    """Conventions 1.8: shape, length, type and name clashes, at once and by name."""
    with pytest.raises(DataError, match=message):
        Dataset.from_arrays(**arguments)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_weights_are_refused_at_once(bad: float) -> None:
    with pytest.raises(DataError, match=r"event 2 \(row 2 of the arrays\) is") as caught:
        Dataset.from_arrays(scalars={"x": np.zeros(4)}, weights=[1.0, 1.0, bad, np.nan])
    assert (caught.value.column, caught.value.event, caught.value.row) == ("weight", 2, 2)
    assert np.array_equal(caught.value.value, bad, equal_nan=True)


def test_no_events_are_legal() -> None:
    """T-43: n = 0."""
    data = Dataset.from_arrays({"k": np.zeros((0, 4))}, {"x": []}, weights=[])
    assert (data.n_events, data.fragments, data.sum_weights()) == (0, (), 0.0)
    assert data.column("x").shape == data.weights().shape == (0,)
    assert list(data.batches(["x"])) == []
    assert data.with_weights([]).n_events == 0


def test_arrays_come_in_pieces_that_ship_only_their_rows() -> None:
    n = 150_000
    data = Dataset.from_arrays(scalars={"x": np.arange(n), "y": np.ones(n)}, weights=np.ones(n))
    assert [f.rows for f in data.fragments] == [65536, 65536, 150_000 - 2 * 65536]
    assert [f.offset for f in data.fragments] == [0, 65536, 131072]
    small = data.fragments[1].cut(100, 110)
    shipped = pickle.dumps(small)
    assert len(shipped) < 10 * 3 * 8 + 1000
    (batch,) = pickle.loads(shipped).read(["y", "x"], 100)
    assert batch.values.tolist() == [[1.0] * 10, list(range(65636, 65646))]
    assert len(pickle.dumps(data.with_weights(np.ones(n)).fragments[1].cut(100, 110))) < 1500
