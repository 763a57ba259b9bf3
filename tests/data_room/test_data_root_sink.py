"""Writing ROOT files: exact round trips, and the whole file or none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import laddu_dask as ld
from laddu_dask.errors import DataError, OutputError

SAMPLES = Path(__file__).parents[1] / "data"


def test_parquet_to_root_and_back_is_exact(tmp_path: Path) -> None:
    """Every column and the weights to the last bit; NaN and signed zeros too."""
    data = ld.read_parquet(SAMPLES / "data.parquet")
    copy = ld.write_root(data, tmp_path / "copy.root")
    assert os.listdir(tmp_path) == ["copy.root"]
    assert copy.schema.columns == data.schema.columns
    assert copy.weights().tobytes() == data.weights().tobytes()
    for name in data.schema.columns:
        assert copy.column(name).tobytes() == data.column(name).tobytes()
    odd = np.array([np.nan, -0.0, np.inf, 5e-324])
    events = ld.Dataset.from_arrays(scalars={"x": odd})
    assert ld.write_root(events, tmp_path / "odd.root").column("x").tobytes() == odd.tobytes()


def test_some_columns_of_a_selection(tmp_path: Path) -> None:
    beam = np.arange(40.0).reshape(10, 4)
    data = ld.Dataset.from_arrays({"beam": beam}, {"x": np.arange(10.0)}, np.arange(10.0))
    kept = data.select(ld.scalar("x") > 6.5).with_weights([1.0, 2.0, 3.0])
    copy = ld.write_root(kept, tmp_path / "a.root", ["beam"], tree="events")
    assert copy.schema.columns == ("beam_e", "beam_px", "beam_py", "beam_pz")
    assert (copy.column("beam_e").tolist(), copy.sum_weights()) == ([28.0, 32.0, 36.0], 6.0)
    none = data.select(ld.scalar("x") > 100.0)
    assert ld.write_root(none, tmp_path / "none.root").n_events == 0


def test_nothing_is_overwritten_unless_told(tmp_path: Path) -> None:
    data = ld.Dataset.from_arrays(scalars={"x": [1.0]})
    path = tmp_path / "a.root"
    path.write_text("precious")
    with pytest.raises(OutputError, match=r"a\.root exists; overwrite=True replaces it"):
        ld.write_root(data, path)
    assert path.read_text() == "precious"
    assert ld.write_root(data, path, overwrite=True).column("x").tolist() == [1.0]
    for place in (tmp_path, tmp_path / "no" / "a.root"):
        with pytest.raises(OutputError, match=r"name a file|cannot be written"):
            ld.write_root(data, place, overwrite=True)


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    """Rows before a bad one are not left behind, and an older file stays as it was."""

    def rows(start: int, stop: int) -> dict[str, np.ndarray]:
        if stop > 100_000:
            raise RuntimeError("no more")
        return {"x": np.zeros(stop - start)}

    data = ld.Dataset.from_ranges(rows, ["x"], rows=200_000, identity="breaks")
    with pytest.raises(DataError, match="no more"):
        ld.write_root(data, tmp_path / "a.root")
    assert os.listdir(tmp_path) == []
    (tmp_path / "a.root").write_text("older")
    with pytest.raises(DataError, match="no more"):
        ld.write_root(data, tmp_path / "a.root", overwrite=True)
    assert os.listdir(tmp_path) == ["a.root"]
    assert (tmp_path / "a.root").read_text() == "older"


def test_a_column_called_weight(tmp_path: Path) -> None:
    events = ld.Dataset.from_arrays(scalars={"weight": [2.0]})
    copy = ld.write_root(events, tmp_path / "a.root")
    assert (copy.column("weight").tolist(), copy.sum_weights()) == ([2.0], 1.0)
    with pytest.raises(DataError, match="a column called 'weight'"):
        ld.write_root(events.with_weights([3.0]), tmp_path / "b.root")


def test_a_killed_writer_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    """Only a hidden file of another ending, which no directory or pattern finds."""
    program = (
        "import os, sys\n"
        "import numpy as np\n"
        "import laddu_dask as ld\n"
        "def rows(start, stop):\n"
        "    if stop > 100_000:\n"
        "        os.kill(os.getpid(), 9)\n"
        "    return {'x': np.zeros(stop - start)}\n"
        "data = ld.Dataset.from_ranges(rows, ['x'], rows=200_000, identity='killed')\n"
        "ld.write_root(data, sys.argv[1])\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.root")]
    assert subprocess.run(command, timeout=100).returncode == -9
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".a.root.")
    assert left.endswith(".part")
    with pytest.raises(DataError, match=r"holds no \*\.root file"):
        ld.read_root(tmp_path)
