"""What a data set says of itself, and other weights for the same events."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.base import tokenize

from laddu_dask.data import ArrayFragment, Dataset, Schema, read_parquet
from laddu_dask.errors import DataError

SAMPLES = Path(__file__).parents[1] / "data"


def test_repr() -> None:
    data = read_parquet(SAMPLES / "bdata.parquet")
    assert repr(data) == (
        f"<Dataset of 400 events from {SAMPLES}/bdata.parquet: 23 columns (four-momenta beam, "
        "target, recoil, ks1, ks2; scalars pol, ang, u0; weight 'weight'), 1 fragment>"
    )
    assert repr(Dataset.from_arrays(scalars={"x": [1.0]})) == (
        "<Dataset of 1 event from arrays: 1 column (scalars x; unit weights), 1 fragment>"
    )
    two = read_parquet(SAMPLES / "*data.parquet")
    assert repr(two).startswith(f"<Dataset of 1,000 events from {SAMPLES}/*data.parquet (2 files):")


def test_row_labels() -> None:
    """An error can say where an event is, in the data set and in its file."""
    data = read_parquet([SAMPLES / "data.parquet", SAMPLES / "mc.parquet"])
    assert data.row_label(0) == "event 0 (row 0 of data.parquet, row group 0)"
    assert data.row_label(599) == "event 599 (row 599 of data.parquet, row group 0)"
    assert data.row_label(600) == "event 600 (row 0 of mc.parquet, row group 0)"
    assert data.row_label(1734) == "event 1734 (row 1134 of mc.parquet, row group 1)"
    for event in (-1, 5600):
        with pytest.raises(DataError, match=f"no event {event}"):
            data.row_label(event)


def test_identity_follows_the_content() -> None:
    """DA-11: the identity keys caches and Dask tokens."""
    path = SAMPLES / "data.parquet"
    data = read_parquet(path)
    assert data.fingerprint == read_parquet(path).fingerprint
    assert pickle.loads(pickle.dumps(data)).fingerprint == data.fingerprint
    assert tokenize(data) == tokenize(read_parquet(path))
    assert data.__dask_tokenize__() == ("laddu_dask.Dataset", data.fingerprint)
    x = np.arange(5.0)
    different = [
        data,
        read_parquet(path, weight=None),
        read_parquet(path, columns=["u0"]),
        data.with_weights(np.ones(600)),
        data.with_weights(np.full(600, 2.0)),
        Dataset.from_arrays(scalars={"x": x}),
        Dataset.from_arrays(scalars={"y": x}),
        Dataset.from_arrays(scalars={"x": x}, weights=np.ones(5)),
        Dataset.from_arrays(scalars={"x": x + 1}),
    ]
    assert len({item.fingerprint for item in different}) == len(different)
    assert (
        Dataset.from_arrays(scalars={"x": x}).fingerprint
        == Dataset.from_arrays(scalars={"x": x.copy()}).fingerprint
    )


def test_pickled_data_sets_read_the_same() -> None:
    data = read_parquet(SAMPLES / "data.parquet")
    again = pickle.loads(pickle.dumps(data))
    assert again.column("u0").tobytes() == data.column("u0").tobytes()
    assert len(pickle.dumps(data)) < 5000


def test_other_weights() -> None:
    data = read_parquet(SAMPLES / "mc.parquet")
    weights = np.linspace(-1.0, 1.0, 5000)
    other = data.with_weights(weights)
    weights_before = weights.copy()
    weights[:] = 0.0
    assert other.weights().tobytes() == weights_before.tobytes()
    assert other.column("u0").tobytes() == data.column("u0").tobytes()
    assert other.schema.columns == data.schema.columns
    assert other.schema.has_weight
    assert other.row_label(1234) == data.row_label(1234)
    assert data.sum_weights() == pytest.approx(4463.7738602495165, rel=1e-14)
    twice = other.with_weights(np.full(5000, 2))
    assert twice.sum_weights() == 10_000.0
    small = pickle.dumps(other.fragments[3].cut(10, 20))
    assert len(small) < 1000
    (batch,) = pickle.loads(small).read(["u0"], 100)
    assert batch.weights.tobytes() == weights_before[3010:3020].tobytes()
    (plain,) = other.fragments[3].unweighted().cut(10, 20).read(["u0"], 100)
    assert plain.values.tobytes() == batch.values.tobytes()
    assert plain.weights.tolist() == [1.0] * 10


def test_bad_other_weights() -> None:
    data = read_parquet(SAMPLES / "mc.parquet")
    with pytest.raises(DataError, match=r"4999 weights were given for the 5000 events"):
        data.with_weights(np.ones(4999))
    with pytest.raises(DataError, match=r"weights has the shape \(5000, 1\)"):
        data.with_weights(np.ones((5000, 1)))
    bad = np.ones(5000)
    bad[1234] = np.inf
    with pytest.raises(DataError, match=r"event 1234 \(row 1234 of mc\.parquet, row group 1\)"):
        data.with_weights(bad)


def test_sum_of_weights_is_correctly_rounded() -> None:
    """DA-12: as if summed exactly, so the order and the cuts cannot matter."""
    weights = np.array([1e16, 1.0, -1e16, 1e-3] * 50_000)
    data = Dataset.from_arrays(scalars={"x": np.zeros(200_000)}, weights=weights)
    assert data.sum_weights() == 50_050.0
    huge = Dataset.from_arrays(scalars={"x": [0.0, 0.0]}, weights=[1.7e308, 1.7e308])
    with pytest.raises(DataError, match="exceeds the largest float64"):
        huge.sum_weights()


def test_bytes_per_event() -> None:
    """AX-49, MP-07: one four-momentum, two scalars and a weight are 56 bytes; without it 48."""
    columns = ["k_e", "k_px", "k_py", "k_pz", "x", "y"]
    arrays: dict[str, Any] = {"p4s": {"k": np.zeros((1, 4))}, "scalars": {"x": [0.0], "y": [0.0]}}
    assert Dataset.from_arrays(**arrays, weights=[1.0]).source_bytes_per_event(columns) == 56
    assert Dataset.from_arrays(**arrays).source_bytes_per_event(columns) == 48


def test_fragments_must_follow_one_another() -> None:
    values = np.zeros((1, 2))
    pieces = (ArrayFragment(("x",), values, None, 0), ArrayFragment(("x",), values, None, 3))
    with pytest.raises(DataError, match="starts at event 3, but 2 events come before it"):
        Dataset(Schema(("x",)), pieces, "arrays")


def test_columns_of_a_data_set_are_checked() -> None:
    data = Dataset.from_arrays(scalars={"x": [1.0]})
    with pytest.raises(DataError, match=r"needs columns that arrays does not offer") as caught:
        data.column("y")
    assert caught.value.file is None
