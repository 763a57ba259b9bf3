"""Opening Parquet files: what is found, what it must contain, what is refused."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laddu_dask.data import Batch, Dataset, ParquetFragment, read_parquet
from laddu_dask.errors import DataError
from laddu_dask.samples import ksks_photoproduction

SAMPLES = Path(__file__).parents[1] / "data"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(name: str, row_group_size: int = 100, **columns: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
        return path

    return _write


def test_conformance_sample() -> None:
    """Conformance case 4: the sum of the first 1000 weights; row groups as fragments."""
    data = read_parquet(SAMPLES / "mc.parquet")
    assert data.n_events == 5000
    assert data.schema.p4s == ("beam", "target", "recoil", "ks1", "ks2")
    assert data.schema.scalars == ("pol", "ang", "u0")
    assert [fragment.rows for fragment in data.fragments] == [1000] * 5
    first = next(data.batches(["u0"], 1000))
    assert first.weights.sum() == pytest.approx(893.4364334303145, rel=1e-14)
    assert first.values[0, 0] == pytest.approx(np.sqrt(2.0) - 1.0, rel=1e-12)


def test_sample_of_another_program() -> None:
    """Single precision, another column order, one row group."""
    data = read_parquet(ksks_photoproduction())
    assert data.n_events == 10_000
    assert data.schema.p4s == ("beam", "proton", "kshort1", "kshort2")
    assert data.schema.scalars == ("pol_magnitude", "pol_angle")
    assert data.schema.weight == "weight"
    raw = pq.read_table(ksks_photoproduction())
    for name in ("kshort1_e", "pol_angle"):
        assert data.column(name).tobytes() == raw[name].to_numpy().astype(np.float64).tobytes()
    assert data.weights().tobytes() == raw["weight"].to_numpy().astype(np.float64).tobytes()
    unit = read_parquet(ksks_photoproduction(), weight=None)
    assert unit.sum_weights() == 10_000.0
    assert "weight" in unit.schema.scalars


def test_globs_directories_and_lists(write: Write, tmp_path: Path) -> None:
    """Directories and globs sort, lists keep their order; Dask-side order is the file order."""
    for number, name in enumerate(["b.parquet", "a.parquet", "sub/c.parquet"]):
        write(name, x=[float(number)])
    (tmp_path / "notes.txt").write_text("not data")
    assert read_parquet(tmp_path).column("x").tolist() == [1.0, 0.0, 2.0]
    assert read_parquet(str(tmp_path / "*.parquet")).column("x").tolist() == [1.0, 0.0]
    assert read_parquet(tmp_path / "**" / "*.parquet").column("x").tolist() == [1.0, 0.0, 2.0]
    files: list[str | Path] = [tmp_path / "sub", tmp_path / "b.parquet", str(tmp_path / "a.*")]
    data = read_parquet(files)
    assert data.column("x").tolist() == [2.0, 0.0, 1.0]
    assert [fragment.offset for fragment in data.fragments] == [0, 1, 2]
    assert data.files == tuple(
        str(tmp_path / name) for name in ("sub/c.parquet", "b.parquet", "a.parquet")
    )


def test_a_name_with_pattern_characters_is_taken_literally(write: Write) -> None:
    assert read_parquet(write("run[1].parquet", x=[1.0])).n_events == 1


def test_relative_paths_survive_a_change_of_folder(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("a.parquet", x=[1.0])
    monkeypatch.chdir(tmp_path)
    data = read_parquet("a.parquet")
    monkeypatch.chdir("/")
    assert data.column("x").tolist() == [1.0]


def test_nothing_found(write: Write, tmp_path: Path) -> None:
    """Empty glob, missing path, folder without files, empty list."""
    write("run1.parquet", x=[1.0])
    (tmp_path / "void").mkdir()
    with pytest.raises(DataError, match=r"no file matches the pattern .*z\*\.parquet"):
        read_parquet(tmp_path / "z*.parquet")
    with pytest.raises(DataError, match=r"run2\.parquet; its directory holds run1\.parquet"):
        read_parquet(tmp_path / "run2.parquet")
    with pytest.raises(DataError, match=r"no/a\.parquet; .*no does not exist either"):
        read_parquet(tmp_path / "no" / "a.parquet")
    with pytest.raises(DataError, match=r"void holds no \*\.parquet file"):
        read_parquet(tmp_path / "void")
    with pytest.raises(DataError, match="list of files is empty"):
        read_parquet([])
    with pytest.raises(DataError, match=r"also matches the directory .*void"):
        read_parquet(tmp_path / "*")


def test_a_file_counts_once(write: Write, tmp_path: Path) -> None:
    path = write("a.parquet", x=[1.0])
    link = tmp_path / "b.parquet"
    link.symlink_to(path)
    for files in ([path, path], [path, tmp_path / "." / "a.parquet"], [path, link], tmp_path):
        with pytest.raises(DataError, match="listed twice"):
            read_parquet(files)


def test_equal_names_are_told_apart(write: Write, tmp_path: Path) -> None:
    write("run1/a.parquet", x=[1.0])
    write("run2/a.parquet", x=[1.0])
    write("run2/b.parquet", x=[1.0])
    data = read_parquet(tmp_path)
    assert data.row_label(1) == f"event 1 (row 0 of {tmp_path}/run2/a.parquet, row group 0)"
    assert data.row_label(2) == "event 2 (row 0 of b.parquet, row group 0)"


def test_widths_and_order_may_differ(write: Write, tmp_path: Path) -> None:
    write("a.parquet", x=np.array([0.5]), y=np.array([1.0]), weight=np.array([2.0]))
    write(
        "b.parquet",
        weight=np.array([3], np.int32),
        y=np.array([4], np.uint8),
        x=np.array([0.1], np.float32),
    )
    data = read_parquet(tmp_path)
    assert data.schema.columns == ("x", "y")
    assert data.column("x").tolist() == [0.5, 0.10000000149011612]
    assert data.column("y").tolist() == [1.0, 4.0]
    assert data.weights().tolist() == [2.0, 3.0]


def test_mismatch_is_found_before_reading(write: Write, tmp_path: Path) -> None:
    """One table of file, column, expected, found; columns= narrows what must agree."""
    write("a.parquet", x=[1.0], y=[1.0], note=["text"])
    b = write("b.parquet", x=[1.0], y=["1"], note=[b"bytes"])
    c = write("c.parquet", x=[1.0], z=[1.0])
    with pytest.raises(DataError) as caught:
        read_parquet(tmp_path)
    assert caught.value.mismatches == (
        (str(b), "y", "number", "string"),
        (str(c), "y", "number", "missing"),
        (str(c), "z", "missing", "number"),
    )
    lines = [line.split() for line in str(caught.value).splitlines()]
    assert lines[1] == ["file", "column", "expected", "found"]
    assert lines[2] == [str(b), "y", "number", "string"]
    assert read_parquet(tmp_path, columns=["x"]).column("x").tolist() == [1.0, 1.0, 1.0]


def test_long_mismatch_tables_are_cut(write: Write, tmp_path: Path) -> None:
    write("a.parquet", x=[1.0])
    write("b.parquet", **{f"c{number}": [1.0] for number in range(30)})
    with pytest.raises(DataError, match="and 11 more"):
        read_parquet(tmp_path)


@pytest.mark.parametrize("columns", [None, ["x"]])
def test_weighted_and_unweighted_files_do_not_mix(
    write: Write, tmp_path: Path, columns: list[str] | None
) -> None:
    """DA-02."""
    write("a.parquet", x=[1.0])
    write("b.parquet", x=[1.0], weight=[2.0])
    with pytest.raises(DataError, match=r"b\.parquet +weight +missing +number"):
        read_parquet(tmp_path, columns=columns)
    assert read_parquet(tmp_path, columns=["x"], weight=None).sum_weights() == 2.0


def test_naming_the_weight(write: Write) -> None:
    path = write("a.parquet", x=[1.0, 2.0], w=[3, 4], weight=[5.0, 6.0], text=["a", "b"])
    assert read_parquet(path).weights().tolist() == [5.0, 6.0]
    data = read_parquet(path, weight="w")
    assert data.weights().tolist() == [3.0, 4.0]
    assert data.schema.columns == ("x", "weight")
    assert read_parquet(path, weight=None).schema.columns == ("x", "w", "weight")
    with pytest.raises(DataError, match=r"weight= needs(.|\n)*column 'ww' \(did you mean 'w'"):
        read_parquet(path, weight="ww")
    with pytest.raises(DataError, match=r"column 'text' has type string"):
        read_parquet(path, weight="text")


def test_default_weight_of_a_wrong_type_is_not_ignored(write: Write) -> None:
    path = write("a.parquet", x=[1.0], weight=["1"])
    with pytest.raises(DataError, match="column 'weight' has type string"):
        read_parquet(path)


def test_columns_that_are_not_numbers_are_refused_when_needed(write: Write) -> None:
    """Strings, booleans, dates and lists are no event inputs, and the error says which type."""
    path = write("a.parquet", x=[1.0], s=["a"], b=[True], v=[[1.0]])
    data = read_parquet(path)
    assert data.schema.columns == ("x",)
    for name, kind in (("s", "string"), ("b", "bool"), ("v", "list")):
        with pytest.raises(DataError, match=f"column '{name}' has type {kind}") as caught:
            data.require([name], wanted_by="term 'a'")
        assert caught.value.file == str(path)
        with pytest.raises(DataError, match=f"column '{name}' has type {kind}"):
            list(data.fragments[0].read([name], 10))


def test_missing_column_names_the_file(write: Write) -> None:
    path = write("a.parquet", pol_angle=[1.0])
    data = read_parquet(path)
    data.require(["pol_angle"], wanted_by="term 'a'")
    with pytest.raises(DataError, match="did you mean 'pol_angle'") as caught:
        data.require(["pol_angel"], wanted_by="term 'a'")
    assert (caught.value.file, caught.value.column) == (str(path), "pol_angel")
    with pytest.raises(DataError, match=r"columns= needs(.|\n)*'z'"):
        read_parquet(path, columns=["z"])


def test_nulls_are_refused_where_needed(write: Write, tmp_path: Path) -> None:
    """A null names file, column and event; a NaN is a value and passes."""
    write("a.parquet", x=[1.0], y=[1.0])
    path = write("b.parquet", 2, x=[1.0, 2.0, 3.0, None], y=[1.0, np.nan, np.inf, 4.0])
    data = read_parquet(tmp_path)
    assert np.array_equal(data.column("y"), [1.0, 1.0, np.nan, np.inf, 4.0], equal_nan=True)
    with pytest.raises(DataError, match=r"event 4 \(row 3 of b\.parquet, row group 1\)") as caught:
        data.column("x")
    assert (caught.value.file, caught.value.column) == (str(path), "x")
    assert (caught.value.event, caught.value.row) == (4, 3)


def test_integers_are_never_rounded(write: Write) -> None:
    path = write("a.parquet", i=[1, -(2**53), 2**53 + 1])
    with pytest.raises(DataError, match="integer 9007199254740993, which float64 would round"):
        read_parquet(path).column("i")
    (batch,) = read_parquet(path).fragments[0].cut(0, 2).read(["i"], 10)
    assert batch.values.tolist() == [[1.0, -9007199254740992.0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_weights(write: Write, tmp_path: Path, bad: float) -> None:
    """File, column, event, row and value; rows before the bad batch are delivered (DA-07)."""
    write("a.parquet", 4, x=np.zeros(10), weight=np.ones(10))
    weights = np.ones(10)
    weights[6] = bad
    path = write("b.parquet", 4, x=np.arange(10.0), weight=weights)
    data = read_parquet(tmp_path)
    delivered: list[Batch] = []
    with pytest.raises(DataError, match=r"event 16 \(row 6 of b\.parquet, row group 1\)") as caught:
        delivered.extend(data.batches(["x"], 2))
    assert sum(len(batch.weights) for batch in delivered) == 16
    assert (caught.value.file, caught.value.column) == (str(path), "weight")
    assert (caught.value.event, caught.value.row) == (16, 6)
    assert np.array_equal(caught.value.value, bad, equal_nan=True)
    cut = data.fragments[4].cut(1, 4)
    with pytest.raises(DataError) as again:
        list(cut.read([], 100))
    assert (again.value.event, again.value.row) == (16, 6)
    assert read_parquet(tmp_path, weight=None).sum_weights() == 20.0


def test_files_without_rows(write: Write, tmp_path: Path) -> None:
    """T-43: an empty file adds no fragment; a data set of such files has no events."""
    write("a.parquet", x=np.zeros(0))
    assert read_parquet(tmp_path).n_events == 0
    assert read_parquet(tmp_path).column("x").shape == (0,)
    write("b.parquet", x=np.ones(3))
    data = read_parquet(tmp_path)
    assert data.n_events == 3
    assert [fragment.label for fragment in data.fragments] == ["b.parquet, row group 0"]


def test_duplicate_columns_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["x", "x"]), path)
    with pytest.raises(DataError, match=r"a\.parquet has two columns called 'x'"):
        read_parquet(path)


def test_names_with_dots_and_spaces(write: Write) -> None:
    path = write("a.parquet", **{"a.b": [1.0], "a": [2.0], "c d": [3.0]})
    (batch,) = read_parquet(path).fragments[0].read(["a.b", "c d", "a"], 10)
    assert batch.values.tolist() == [[1.0], [3.0], [2.0]]


def test_fragments_read_in_another_process(write: Write, tmp_path: Path) -> None:
    """DA-08: nothing is open in a pickle, and another process reads the same bits."""
    x = np.random.default_rng(1).normal(size=50)
    data = read_parquet(write("a.parquet", 20, x=x))
    shipped = tmp_path / "fragment.pickle"
    shipped.write_bytes(pickle.dumps(data.fragments[1].cut(3, 11)))
    code = (
        "import pickle, sys; f = pickle.load(open(sys.argv[1], 'rb'));"
        "print(''.join(b.values.tobytes().hex() for b in f.read(['x'], 3)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(shipped)], check=True, capture_output=True, text=True
    )
    assert answer.stdout.strip() == x[23:31].tobytes().hex()


def test_memory_of_a_big_row_group_stays_bounded(tmp_path: Path) -> None:
    """DA-13: one row group of 64 MB is read in batches through a few MB of Arrow memory."""
    n = 1_000_000
    random = np.random.default_rng(0)
    path = tmp_path / "big.parquet"
    pq.write_table(pa.table({f"c{k}": random.random(n) for k in range(8)}), path, row_group_size=n)
    (fragment,) = read_parquet(path).fragments
    assert isinstance(fragment, ParquetFragment)
    before = pa.total_allocated_bytes()
    most = rows = 0
    for batch in fragment.read([f"c{k}" for k in range(8)], 1000):
        rows += len(batch.weights)
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == n
    # Two pages of at most 1 MiB, a read buffer and a batch per column.
    assert most < 8 * 3 * 2**20
    assert pa.total_allocated_bytes() - before < 2**20


def test_unreadable_file(write: Write) -> None:
    path = write("a.parquet", x=[1.0])
    data: Dataset = read_parquet(path)
    os.remove(path)
    with pytest.raises(DataError, match=r"a\.parquet cannot be found on the machine") as caught:
        data.column("x")
    assert caught.value.file == str(path)


def test_opening_thousands_of_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each footer is read once, whatever is asked of the description; cuts travel in few bytes."""
    opened: list[object] = []

    class Counting(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
        def __init__(self, source: object, **options: object) -> None:
            opened.append(source)
            super().__init__(source, **options)

    rows = [5000, 1, 300]
    for number, count in enumerate(rows):
        table = pa.table({"x": np.arange(2.0 * count)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=2)
    monkeypatch.setattr("laddu_dask.data.footer.pq.ParquetFile", Counting)
    data = read_parquet(tmp_path)
    assert len(data.fragments) == sum(rows)
    assert data.n_events == 2 * sum(rows)
    assert data.row_label(10_003) == "event 10003 (row 1 of 2.parquet, row group 0)"
    assert data.fingerprint == pickle.loads(pickle.dumps(data)).fingerprint
    assert len(pickle.dumps(data.fragments)) < 100 * len(data.fragments)
    assert len(opened) == len(rows)
