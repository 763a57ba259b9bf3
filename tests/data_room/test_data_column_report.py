"""Every column that is left out, converted or scaled is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from root_files import write

import laddu_dask as ld
from laddu_dask.data import ColumnReport


def report_of(data: ld.Dataset) -> ColumnReport:
    assert data.report is not None
    return data.report


def test_parquet_columns(tmp_path: Path) -> None:
    columns = {"x": [1.0], "i": [1], "s": ["a"], "b": [True], "weight": [2]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    narrow = {**columns, "x": np.ones(1, np.float32)}
    pq.write_table(pa.table(narrow), tmp_path / "b.parquet")
    report = report_of(ld.read_parquet(tmp_path))
    assert str(report).splitlines() == [
        "column  type             becomes",
        "x       double or float  read as x, made float64",
        "i       int64            read as i, made float64",
        "s       string           not a number, refused if needed",
        "b       bool             not a number, refused if needed",
        "weight  int64            event weight, made float64",
    ]
    assert [use.stored for use in report.ignored] == ["s", "b"]
    assert [use.stored for use in report.converted] == ["x", "i", "weight"]
    some = ld.read_parquet(tmp_path / "a.parquet", ["x"], weight=None)
    assert [use.use for use in report_of(some).columns] == [
        "column",
        "left out",
        "no number",
        "no number",
        "left out",
    ]
    assert report_of(some.select(ld.scalar("x") > 0).with_weights([1.0])) == some.report


def test_columns_that_only_some_files_have(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1.0], "y": [1.0]}), tmp_path / "b.parquet")
    _, y = report_of(ld.read_parquet(tmp_path, ["x"])).columns
    assert (y.stored, y.types, y.use) == ("y", ("missing", "double"), "left out")


def test_maps_of_root_columns(tmp_path: Path) -> None:
    columns = {"p": np.ones((4, 2)), "m": np.ones(4, np.float32), "w": np.ones(4)}
    path = write(tmp_path / "a.root", columns)
    plan = {"one": "p[1]", "two": ld.StoredColumn("p[1]", 1e-3), "mass": "m"}
    report = report_of(ld.read_root(path, columns=plan, weight="w"))
    assert str(report).splitlines()[1:] == [
        "p[0]    double[2]  left out",
        "p[1]    double[2]  read as one and two (times 0.001), made float64",
        "m       float      read as mass, made float64",
        "w       double     event weight",
    ]


def test_events_of_no_file_have_no_report() -> None:
    assert ld.Dataset.from_arrays(scalars={"x": [1.0]}).report is None
