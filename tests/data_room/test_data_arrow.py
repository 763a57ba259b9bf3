"""Arrow tables in memory, by the rules of Parquet files."""

from __future__ import annotations

import decimal
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import laddu_dask as ld
from laddu_dask.errors import DataError

N = 300


def table() -> pa.Table:
    rng = np.random.default_rng(11)
    return pa.table(
        {
            **{f"k_{part}": rng.normal(size=N) for part in ("e", "px", "py", "pz")},
            "mass": rng.uniform(1.0, 2.0, N).astype(np.float32),
            "half": rng.uniform(1.0, 2.0, N).astype(np.float16),
            "run": rng.integers(-9, 9, N).astype(np.int16),
            "name": ["a"] * N,
            "weight": rng.normal(size=N),
        }
    )


class Frame:
    """A data frame of some other library."""

    def __init__(self, held: pa.Table) -> None:
        self._held = held

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._held.__arrow_c_stream__(requested_schema)


def chunked(whole: pa.Table) -> pa.Table:
    return pa.concat_tables([whole.slice(0, 7), whole.slice(7, 0), whole.slice(7)])


@pytest.mark.parametrize(
    "given",
    [
        table,
        lambda: chunked(table()),
        lambda: table().combine_chunks().to_batches()[0],
        lambda: Frame(table()),
    ],
    ids=["table", "chunks", "batch", "frame"],
)
def test_the_same_events_as_from_a_file(tmp_path: Path, given: Any) -> None:
    """Columns, weights and sums have the same bits; so has a copy that was sent away."""
    pq.write_table(table(), tmp_path / "a.parquet", row_group_size=64)
    file = ld.read_parquet(tmp_path)
    data = pickle.loads(pickle.dumps(ld.from_arrow(given())))
    assert data.schema.columns == file.schema.columns
    for name in data.schema.columns:
        assert data.column(name).tobytes() == file.column(name).tobytes()
    assert data.weights().tobytes() == file.weights().tobytes()
    model = ld.Model((ld.parameter("a", initial=0.7) + ld.scalar("mass") * ld.scalar("run")) ** 2)
    values = set()
    for events in (data, file):
        positive = events.select(ld.scalar("mass") > 1.3).with_weights(np.ones(_passing()))
        with ld.Likelihood([ld.NLL(model, data=positive, accepted_mc=positive)]) as used:
            values.add(used.value().hex())
    assert len(values) == 1


def _passing() -> int:
    return int(np.sum(table()["mass"].to_numpy() > np.float64(1.3)))


def test_some_columns_under_other_names() -> None:
    made = ld.from_arrow(table(), {"m": ld.StoredColumn("mass", 1e3), "r": "run"}, weight=None)
    assert made.schema.columns == ("m", "r")
    expected = table()["mass"].to_numpy().astype(float) * 1e3
    assert made.column("m").tobytes() == expected.tobytes()
    assert made.sum_weights() == N
    only = ld.from_arrow(table(), ["k", "mass"])
    assert only.schema.columns == ("k_e", "k_px", "k_py", "k_pz", "mass")


def test_the_report_names_every_column() -> None:
    report = ld.from_arrow(table(), ["mass"]).report
    assert report is not None
    uses = {use.stored: use.use for use in report.columns}
    assert uses["mass"] == "column"
    assert uses["weight"] == "weight"
    assert uses["name"] == "no number"
    assert uses["run"] == "left out"
    assert [use.stored for use in report.converted] == ["mass"]


def test_a_copy_is_made() -> None:
    values = np.arange(3.0)
    data = ld.from_arrow(pa.table({"x": values}))
    values[:] = 7.0
    assert data.column("x").tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("given", "options", "text"),
    [
        ([1.0], {}, "not a list"),
        ({"x": [1.0]}, {}, "not a dict"),
        (pa.table([[1.0], [2.0]], names=["x", "x"]), {}, "'x' more than once"),
        (pa.table({"x": [1.0, None]}), {}, "column 'x' is null at row 1"),
        (pa.table({"x": [1, 2**53 + 1]}), {}, "9007199254740993"),
        (pa.table({"x": [1.0], "w": ["a"]}), {"weight": "w"}, "'w'"),
        (pa.table({"x": [1.0]}), {"weight": "w"}, "'w'"),
        (pa.table({"x": [1.0], "weight": [float("nan")]}), {}, "the weight of event 0"),
        (pa.table({"x": [1.0], "t": [True]}), {"columns": ["t"]}, "'t'"),
        (pa.table({"x": [1.0], "d": [decimal.Decimal("1.5")]}), {"columns": ["d"]}, "'d'"),
        (pa.table({"x": [1.0], "l": [[1.0]]}), {"columns": ["l"]}, "'l'"),
    ],
)
def test_what_is_refused(given: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        ld.from_arrow(given, **options)


def test_nulls_matter_only_where_they_are_offered() -> None:
    held = pa.table({"x": [1.0, 2.0], "y": [1.0, None]})
    assert ld.from_arrow(held, ["x"]).column("x").tolist() == [1.0, 2.0]
