"""Damaged, cut and changed files: always one clear error, never a wrong or partial answer."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laddu_dask.data import ParquetFragment, read_parquet
from laddu_dask.errors import DataError
from laddu_dask.runtime.shrinking import ran_out

N = 300


def contents(seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table({"x": random.random(N), "y": random.random(N), "weight": np.ones(N)})


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of three row groups with a checksum on every page."""
    path = tmp_path_factory.mktemp("good") / "good.parquet"
    pq.write_table(contents(), path, row_group_size=100, write_page_checksum=True)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.parquet"


@pytest.mark.parametrize("keep", [1, 4, 11, 100, 0.3, 0.7, -200, -9, -8, -4, -1])
def test_a_file_cut_short_is_refused_when_opened(good: bytes, path: Path, keep: float) -> None:
    length = int(keep * len(good)) if isinstance(keep, float) else int(keep)
    path.write_bytes(good[:length])
    with pytest.raises(DataError, match=r"data\.parquet cannot be read as a Parquet file") as error:
        read_parquet(path)
    assert error.value.file == str(path)


def test_an_empty_file_is_refused(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"data\.parquet is empty \(0 bytes\)"):
        read_parquet(path)


def test_another_kind_of_file_is_refused(path: Path) -> None:
    path.write_text("x,y\n1,2\n" * 10)
    with pytest.raises(DataError, match=r"data\.parquet cannot be read as a Parquet file"):
        read_parquet(path)


def test_one_bad_file_of_a_directory_is_named(good: bytes, tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"run{number}.parquet").write_bytes(good)
    (tmp_path / "run3.parquet").write_bytes(good[:-50])
    with pytest.raises(DataError, match=r"run3\.parquet cannot be read"):
        read_parquet(tmp_path)


def test_a_damaged_page_names_file_row_group_and_column(good: bytes, path: Path) -> None:
    """Row groups before the damage read; the damaged one never yields its rows."""
    path.write_bytes(good)
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(1)
    damaged = bytearray(good)
    damaged[chunk.dictionary_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(damaged)
    data = read_parquet(path)
    batches = list(data.fragments[0].read(["x", "y"], 30))
    assert sum(len(batch.weights) for batch in batches) == 100
    with pytest.raises(DataError, match=r"decoded in row group 1, column 'y'") as caught:
        list(data.fragments[1].read(["x", "y"], 30))
    assert caught.value.file == str(path)
    assert (caught.value.row_group, caught.value.column) == (1, "y")
    undamaged = list(data.fragments[1].read(["x"], 30))
    assert sum(len(batch.weights) for batch in undamaged) == 100


# Derandomised: a footer has no checksum, so one flip in many thousands could go unnoticed.
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    flips=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3
    ),
    footer_only=st.booleans(),
)
def test_flipped_bytes_never_pass_for_data(
    flips: list[tuple[float, int]], footer_only: bool, good: bytes, path: Path
) -> None:
    """With page checksums any reading either raises DataError or yields the true values."""
    damaged = bytearray(good)
    begin = len(good) - 8 - int.from_bytes(good[-8:-4], "little") if footer_only else 0
    for place, mask in flips:
        damaged[begin + int(place * (len(good) - begin))] ^= mask
    path.write_bytes(damaged)
    try:
        data = read_parquet(path, columns=["x", "y"])
        answer = (data.column("x").tobytes(), data.column("y").tobytes())
    except DataError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert answer == tuple(contents()[name].to_numpy().tobytes() for name in ("x", "y"))
    assert not refusal or "data.parquet" in refusal


def test_a_file_of_another_size_is_not_read(path: Path) -> None:
    pq.write_table(contents(), path)
    data = read_parquet(path)
    pq.write_table(contents().slice(0, 200), path)
    with pytest.raises(DataError, match=r"data\.parquet is not the file it was .* bytes") as caught:
        data.column("x")
    assert caught.value.file == str(path)


def test_a_file_rewritten_with_the_same_size_is_not_read(path: Path) -> None:
    options = {"compression": "none", "use_dictionary": False}
    pq.write_table(contents(0), path, **options)
    size = path.stat().st_size
    data = read_parquet(path)
    pq.write_table(contents(1), path, **options)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000_000))
    assert path.stat().st_size == size
    with pytest.raises(DataError, match="modified at"):
        data.column("x")
    assert read_parquet(path).fingerprint != data.fingerprint


def test_a_file_that_changes_while_it_is_read(path: Path) -> None:
    """The last batch may have come, but the read does not end well."""
    pq.write_table(contents(), path, row_group_size=N)
    data = read_parquet(path)
    batches = data.fragments[0].read(["x"], 100)
    assert len(next(batches).weights) == 100
    os.utime(path, ns=(0, 0))
    with pytest.raises(DataError, match="is not the file it was"):
        list(batches)


def test_a_row_group_with_fewer_rows_than_promised(path: Path) -> None:
    """Rows are never lost in silence: what was promised by the footer must come."""
    pq.write_table(contents(), path, row_group_size=100)
    fragment = read_parquet(path).fragments[1]
    assert isinstance(fragment, ParquetFragment)
    promising = replace(fragment, group_rows=150, rows=150)
    with pytest.raises(DataError, match="row group 1: 100 rows where 150 are promised"):
        list(promising.read(["x"], 40))


def test_a_file_with_another_number_of_rows(path: Path) -> None:
    pq.write_table(contents(), path, row_group_size=100)
    fragment = read_parquet(path).fragments[1]
    assert isinstance(fragment, ParquetFragment)
    other = replace(fragment, stamp=replace(fragment.stamp, rows=299))
    with pytest.raises(DataError, match="it has 300 rows, then it had 299"):
        list(other.read(["x"], 40))


def test_exhausted_memory_is_not_taken_for_damage_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(contents(), path)
    data = read_parquet(path)

    def exhausted(*_: object) -> None:
        raise pa.lib.ArrowMemoryError("malloc of size 64 failed")

    for module in ("parquet_fragment", "parquet_run"):
        monkeypatch.setattr(f"laddu_dask.data.{module}.open_parquet", exhausted)
    with pytest.raises(DataError, match=r"malloc of size 64 failed\. Memory is exhausted, or"):
        data.column("x")


@pytest.fixture
def few_files() -> Iterator[None]:
    """So few open files are allowed that none can be opened any more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = os.open(os.devnull, os.O_RDONLY)
    os.close(taken)  # the lowest number that is free
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("opened", [False, True])
def test_too_many_open_files_are_no_damage(
    path: Path, opened: bool, request: pytest.FixtureRequest
) -> None:
    """The file is as it was; the limit and the cure are named."""
    pq.write_table(contents(), path)
    data = read_parquet(path)
    request.getfixturevalue("few_files")
    with pytest.raises(DataError, match=r"Too many open files\..*file is not at fault") as caught:
        data.column("x") if opened else read_parquet(path)
    assert "`ulimit -n`" in str(caught.value)
    assert "fewer partitions" in str(caught.value)
    assert "damaged" not in str(caught.value)
    assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.EIO, "try again, look for errors in the log"),
        (errno.EACCES, "change the permissions"),
        (errno.EPERM, "change the permissions"),
        (errno.ENFILE, "close other programs"),
        (errno.ESTALE, "mount it again"),
        (errno.ENOMEM, "Memory is exhausted"),
        (errno.ENXIO, "the file need not be damaged"),
    ],
)
def test_what_the_system_refuses_has_its_own_cure(
    number: int, cure: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what Arrow finds wrong in the bytes is called damage."""
    pq.write_table(contents(), path)
    data = read_parquet(path)

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    for module in ("parquet_fragment", "parquet_run"):
        monkeypatch.setattr(f"laddu_dask.data.{module}.open_parquet", refused)
    with pytest.raises(DataError, match=cure) as caught:
        data.column("x")
    assert os.strerror(number) in str(caught.value)
    assert "copy or write it again" not in str(caught.value)
    assert ran_out(caught.value) == (number == errno.ENOMEM)
