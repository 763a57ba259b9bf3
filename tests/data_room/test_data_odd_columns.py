"""Parquet columns of unusual types: made float64 exactly, or refused with file and type."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laddu_dask.data import read_parquet
from laddu_dask.errors import DataError

EXACT = {
    "float16": pa.array(np.array([0.1, -2.5], np.float16)),
    "float32": pa.array(np.array([0.1, -2.5], np.float32)),
    "dictionary of doubles": pa.array([0.1, -2.5]).dictionary_encode(),
    "int8": pa.array([-128, 127], pa.int8()),
    "uint64": pa.array([0, 2**53], pa.uint64()),
}
REFUSED = {
    "bool": pa.array([True, False]),
    "decimal128(3, 2)": pa.array([Decimal("1.50"), Decimal("2.00")]),
    "decimal256(40, 0)": pa.array([Decimal(1), Decimal(2)], pa.decimal256(40, 0)),
    "dictionary<values=string": pa.array(["a", "b"]).dictionary_encode(),
    "string": pa.array(["1.0", "2.0"]),
    "large_string": pa.array(["1.0", "2.0"], pa.large_string()),
    "binary": pa.array([b"1", b"2"]),
    "struct<": pa.array([{"a": 1.0}, {"a": 2.0}]),
    "list<": pa.array([[1.0], [2.0]]),
    "fixed_size_list<": pa.array([[1.0], [2.0]], pa.list_(pa.float64(), 1)),
    "null": pa.nulls(2),
    "timestamp[ns]": pa.array([1, 2], pa.timestamp("ns")),
    "duration[s]": pa.array([1, 2], pa.duration("s")),
}


def write(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("role", ["column", "weight"])
def test_converted_exactly(kind: str, role: str, tmp_path: Path) -> None:
    """Each value is the stored one, also as a weight (integer weights are weights)."""
    data = read_parquet(write(tmp_path / "a.parquet", c=EXACT[kind], x=[1.0, 2.0]), weight=None)
    found = data.column("c")
    if role == "weight":
        found = read_parquet(tmp_path / "a.parquet", weight="c").weights()
    assert found.dtype == np.float64
    assert found.tolist() == EXACT[kind].to_pylist()


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_by_type(kind: str, tmp_path: Path) -> None:
    """File, column and type, as a column, as a weight and in a list of columns; never ignored."""
    path = write(tmp_path / "a.parquet", c=REFUSED[kind], x=[1.0, 2.0])
    data = read_parquet(path)
    assert data.column("x").tolist() == [1.0, 2.0]
    assert data.report is not None
    assert [use.stored for use in data.report.ignored] == ["c"]
    for attempt in (
        lambda: data.column("c"),
        lambda: read_parquet(path, columns=["c"]),
        lambda: read_parquet(path, weight="c"),
        lambda: read_parquet(path, columns={"mass": "c"}),
    ):
        with pytest.raises(DataError) as error:
            attempt()
        assert f"column 'c' has type {kind}" in str(error.value)
        assert str(path) in str(error.value)


@pytest.mark.parametrize("kind", EXACT)
def test_nulls_are_never_numbers(kind: str, tmp_path: Path) -> None:
    values = pa.array([*EXACT[kind].to_pylist(), None], EXACT[kind].type)
    path = write(tmp_path / "a.parquet", c=values)
    with pytest.raises(DataError, match=r"column 'c' of .*a\.parquet is null at event 2 \(row 2"):
        read_parquet(path).column("c")


@pytest.mark.parametrize("kind", EXACT)
def test_types_may_differ_in_a_glob_if_all_are_numbers(kind: str, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", c=[0.25])
    write(tmp_path / "b.parquet", c=EXACT[kind])
    found = read_parquet(tmp_path / "*.parquet").column("c")
    assert found.tolist() == [0.25, *EXACT[kind].to_pylist()]
    write(tmp_path / "c.parquet", c=REFUSED["decimal128(3, 2)"])
    with pytest.raises(DataError, match=r"c\.parquet +c +number +decimal128\(3, 2\)"):
        read_parquet(tmp_path / "*.parquet")
