"""Fragments of one file are read in one go, and nothing shows of it but the time it takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import laddu_dask.data.parquet_run as run_module
from laddu_dask.data import Dataset, Fragment, read_parquet
from laddu_dask.data.pieces import Piece, read_pieces
from laddu_dask.errors import DataError

COLUMNS = ["x", "y", "k"]
Opened = list[str]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Files that were opened to read several fragments in one go."""
    names: Opened = []
    real: Callable[..., Any] = run_module.open_parquet

    def counted(stamp: Any, source: Any) -> Any:
        names.append(stamp.name)
        return real(stamp, source)

    monkeypatch.setattr(run_module, "open_parquet", counted)
    return names


def table(rows: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "x": random.random(rows),
            "y": random.random(rows).astype(np.float32),
            "k": random.integers(-5, 5, rows),
            "weight": random.random(rows),
        }
    )


def write(path: Path, rows: int, groups: Sequence[int], seed: int = 0) -> pa.Table:
    """A file with row groups of given sizes, some of them empty."""
    whole = table(rows, seed)
    with pq.ParquetWriter(path, whole.schema, write_page_checksum=True) as writer:
        start = 0
        for size in groups:
            writer.write_table(whole.slice(start, size), row_group_size=max(size, 1))
            start += size
    return whole


def gathered(pieces: Iterator[Piece]) -> list[bytes]:
    """The columns of all pieces, and the weights, as bytes of doubles."""
    parts = [
        [*(np.asarray(c, dtype=float) for c in piece.columns), piece.every_weight()]
        for piece in pieces
    ]
    return [np.concatenate(column).tobytes() for column in zip(*parts, strict=True)]


def expected(whole: pa.Table) -> list[bytes]:
    return [whole[name].to_numpy().astype(float).tobytes() for name in (*COLUMNS, "weight")]


def test_three_thousand_row_groups_are_opened_once(tmp_path: Path, opened: Opened) -> None:
    """DA-07, DA-08: tiny row groups; every batch is full, and the file is opened once a pass."""
    whole = table(9000)
    pq.write_table(whole, tmp_path / "a.parquet", row_group_size=3)
    data = read_parquet(tmp_path)
    assert len(data.fragments) == 3000
    pieces = list(read_pieces(data.fragments, COLUMNS, 1000))
    assert [piece.rows for piece in pieces] == [1000] * 9
    assert gathered(iter(pieces)) == expected(whole)
    assert opened == ["a.parquet"]
    assert data.column("x").tobytes() == whole["x"].to_numpy().tobytes()
    assert opened == ["a.parquet"] * 2


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=6), min_size=1, max_size=3),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    batch_rows=st.integers(1, 50),
    reweighted=st.booleans(),
)
def test_runs_give_the_rows_of_their_fragments(
    sizes: list[list[int]],
    ends: tuple[float, float],
    batch_rows: int,
    reweighted: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Any row groups, files, and cuts within them; with weights of the file or of an array."""
    folder = tmp_path_factory.mktemp("runs")
    for number, groups in enumerate(sizes):
        write(folder / f"{number}.parquet", sum(groups), groups, seed=number)
    data = read_parquet(folder)
    if reweighted:
        data = data.with_weights(np.arange(float(data.n_events)))
    low, high = sorted(int(end * data.n_events) for end in ends)
    pieces: list[Fragment] = []
    for fragment in data.fragments:
        start = max(low - fragment.offset, 0)
        stop = min(high - fragment.offset, fragment.rows)
        if start < stop:
            pieces.append(fragment.cut(start, stop))
    one_by_one = [
        Piece(len(batch.weights), list(batch.values), batch.weights)
        for fragment in pieces
        for batch in fragment.read(COLUMNS, batch_rows)
    ]
    assert gathered(read_pieces(pieces, COLUMNS, batch_rows)) == gathered(iter(one_by_one))


def test_unweighted_events_have_no_weights(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 10, [4, 6])
    data = read_parquet(tmp_path, weight=None)
    assert [piece.weights for piece in read_pieces(data.fragments, ["x"], 100)] == [None]


@pytest.mark.filterwarnings("error")
def test_weights_whose_sum_overflows_are_numbers(tmp_path: Path) -> None:
    """Each is finite, and they are delivered in one go."""
    weights = np.tile([1.5e308, -1.0, 1.5e308], 10)
    pq.write_table(pa.table({"x": weights, "weight": weights}), tmp_path / "a.parquet")
    (piece,) = read_pieces(read_parquet(tmp_path).fragments, ["x"], 100)
    assert piece.weights is not None
    assert piece.weights.tobytes() == weights.tobytes()


def _null(whole: pa.Table) -> pa.Table:
    values = whole["x"].to_pylist()
    values[57] = None
    return whole.set_column(0, "x", pa.array(values))


def _weight(whole: pa.Table) -> pa.Table:
    weights = whole["weight"].to_numpy().copy()
    weights[57] = np.nan
    return whole.set_column(3, "weight", pa.array(weights))


def _integer(whole: pa.Table) -> pa.Table:
    numbers = whole["k"].to_numpy().copy()
    numbers[57] = 2**53 + 1
    return whole.set_column(2, "k", pa.array(numbers))


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (_null, r"column 'x' of .* is null at event 57 \(row 57 of a\.parquet, row group 5\)"),
        (_weight, r"the weight of event 57 \(row 57 of a\.parquet, row group 5\) is nan"),
        (_integer, r"column 'k' of .* integer 9007199254740993, .* event 57 \(row 57"),
    ],
    ids=["null", "weight", "integer"],
)
def test_a_bad_value_is_named_as_ever(
    tmp_path: Path, spoil: Callable[[pa.Table], pa.Table], text: str
) -> None:
    """DA-07: what comes before it is delivered; then event, row, file, column and value."""
    whole = spoil(table(100))
    pq.write_table(whole, tmp_path / "a.parquet", row_group_size=10)
    data = read_parquet(tmp_path)
    for batch_rows in (7, 25, 1000):
        pieces: list[Piece] = []
        with pytest.raises(DataError, match=text) as caught:
            pieces.extend(read_pieces(data.fragments, COLUMNS, batch_rows))
        assert (caught.value.event, caught.value.row) == (57, 57)
        rows = sum(piece.rows for piece in pieces)
        assert 50 <= rows <= 57
        assert gathered(iter(pieces))[0] == whole["x"].to_numpy()[:rows].astype(float).tobytes()


def test_damage_is_found_in_its_row_group(tmp_path: Path) -> None:
    """Row groups before it are delivered, and the error names row group and column."""
    path = tmp_path / "a.parquet"
    whole = write(path, 90, [30, 30, 30])
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(1)
    damaged = bytearray(path.read_bytes())
    damaged[chunk.dictionary_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(damaged)
    pieces: list[Piece] = []
    with pytest.raises(DataError, match=r"decoded in row group 1, column 'y'") as caught:
        pieces.extend(read_pieces(read_parquet(path).fragments, COLUMNS, 1000))
    assert (caught.value.row_group, caught.value.column) == (1, "y")
    assert sum(piece.rows for piece in pieces) == 30
    assert gathered(iter(pieces)) == expected(whole.slice(0, 30))


def test_a_change_in_the_middle_of_a_run_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, 3000, [10] * 300)
    pieces = read_pieces(read_parquet(path).fragments, ["x"], 100)
    assert next(pieces).rows == 100
    os.utime(path, ns=(0, 0))
    with pytest.raises(DataError, match="is not the file it was"):
        next(pieces)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 10, [5, 5])
    data: Dataset = read_parquet(tmp_path)
    with pytest.raises(DataError, match="'z'"):
        list(read_pieces(data.fragments, ["x", "z"], 100))
