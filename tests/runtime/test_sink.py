"""Event-wise results written to Parquet: order, bits, weights, and no half folders."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client

import laddu_dask as ld
from laddu_dask.data import ArrayFragment, Batch
from laddu_dask.errors import DataError, ExpressionError, OutputError, ParameterError
from laddu_dask.runtime import sink

# However the tests are imported, workers get the classes of this file with the work.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

X = ld.scalar("x")
A = ld.parameter("a", initial=0.5)
N = 5000


def events(n: int = N, *, weighted: bool = True) -> ld.Dataset:
    rng = np.random.default_rng(12)
    x, weights = rng.normal(size=n), rng.normal(size=n)
    return ld.Dataset.from_arrays(scalars={"x": x}, weights=weights if weighted else None)


@pytest.fixture(
    params=[
        pytest.param("here", id="here"),
        pytest.param("cluster", id="cluster", marks=pytest.mark.cluster),
    ]
)
def execution(request: pytest.FixtureRequest) -> ld.Execution:
    """Five files, by two threads or by a cluster."""
    where: Client | None = None
    if request.param == "cluster":
        where = request.getfixturevalue("client")
    return ld.Execution(cluster=where, threads=2, partitions=5, backend="interpreter")


def test_events_come_back_in_order(execution: ld.Execution, tmp_path: Path) -> None:
    """EV-01, BL-04: values, copied columns and weights have the bits of an evaluation."""
    data = events()
    quantities = {
        "intensity": (A * X).exp(),
        "amplitude": A * X + 1j,
        "copy": X,
        "pair": ld.vector([X, 2 * A]),
    }
    written = ld.write_parquet(quantities, data, tmp_path / "out", {"a": 0.25}, execution)
    expected = ld.evaluate(quantities, data, {"a": 0.25}, execution)
    again = ld.read_parquet(tmp_path / "out")
    for found in (written, again):
        assert found.n_events == N
        np.testing.assert_array_equal(found.column("intensity"), expected["intensity"])
        np.testing.assert_array_equal(found.column("amplitude_re"), expected["amplitude"].real)
        np.testing.assert_array_equal(found.column("amplitude_im"), np.ones(N))
        np.testing.assert_array_equal(found.column("copy"), data.column("x"))
        np.testing.assert_array_equal(found.column("pair_1"), np.full(N, 0.5))
        np.testing.assert_array_equal(found.weights(), data.weights())
    assert os.listdir(tmp_path) == ["out"]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    files = manifest["files"]
    assert [file["name"] for file in files] == [f"part-{k:06d}.parquet" for k in range(5)]
    assert sorted(os.listdir(tmp_path / "out")) == [
        "manifest.json",
        *(file["name"] for file in files),
    ]
    assert [file["first_event"] for file in files] == [0, 1024, 2048, 3072, 4096]
    assert sum(file["events"] for file in files) == manifest["events"] == N
    assert manifest["parameters"] == {"a": 0.25}
    assert manifest["weight"] == "weight"
    assert manifest["columns"] == [
        "intensity", "amplitude_re", "amplitude_im", "copy", "pair_0", "pair_1",
    ]  # fmt: skip
    for file in files:
        metadata = pq.read_metadata(tmp_path / "out" / file["name"])
        assert metadata.num_rows == file["events"]


def test_a_model_writes_its_value(tmp_path: Path) -> None:
    """Without weights there is no such column; without events there is an empty file."""
    model = ld.Model(ld.complex(X, A))
    written = model.write(events(weighted=False), tmp_path / "out", [3.0])
    assert written.schema.columns == ("value_re", "value_im")
    assert not written.schema.has_weight
    np.testing.assert_array_equal(written.column("value_im"), np.full(N, 3.0))
    empty = ld.Model(X * A).write(events(0), tmp_path / "empty", name="product")
    assert (empty.n_events, empty.schema.columns) == (0, ("product",))


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    """And only what was written by the same function."""
    model, data = ld.Model(X * A), events(3)
    folder = tmp_path / "out"
    model.write(data, folder, [1.0])
    with pytest.raises(OutputError, match="exists and is left as it is"):
        model.write(data, folder, [2.0])
    np.testing.assert_array_equal(ld.read_parquet(folder).column("value"), data.column("x"))
    model.write(events(5), folder, [2.0], ld.Execution(partitions=1), overwrite=True)
    assert ld.read_parquet(folder).n_events == 5
    # A folder may be read while its successor is written.
    twice = ld.Model(2 * ld.scalar("value"))
    twice.write(ld.read_parquet(folder), folder, overwrite=True)
    assert ld.read_parquet(folder).column("value")[0] == 4 * events(5).column("x")[0]
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    with pytest.raises(OutputError, match="not a folder that write_parquet made"):
        model.write(data, other, overwrite=True)
    with pytest.raises(OutputError, match="create it first"):
        model.write(data, tmp_path / "nowhere" / "out")
    assert sorted(os.listdir(tmp_path)) == ["mine", "out"]
    assert os.listdir(other) == ["thesis.tex"]


def test_names_that_clash(tmp_path: Path) -> None:
    data = events(3)
    with pytest.raises(ExpressionError, match="'z_re' would be written twice"):
        ld.write_parquet({"z": X * 1j, "z_re": X}, data, tmp_path / "out")
    with pytest.raises(ExpressionError, match="'weight' would be written twice"):
        ld.write_parquet({"weight": X}, data, tmp_path / "out")
    for name in ("", "a/b", "/", 3):
        with pytest.raises(ExpressionError, match=f"{name!r} cannot be the name of a column"):
            ld.write_parquet({name: X}, data, tmp_path / "out")
    with pytest.raises(ExpressionError, match="'' cannot be the name of a column"):
        ld.Model(X * A).write(data, tmp_path / "out", name="")
    with pytest.raises(ExpressionError, match="no quantity"):
        ld.write_parquet({}, data, tmp_path / "out")
    with pytest.raises(ParameterError):
        ld.Model(X * A).write(data, tmp_path / "out", [1.0, 2.0])
    with pytest.raises(DataError, match="'y'"):
        ld.Model(ld.scalar("y")).write(data, tmp_path / "out")
    assert os.listdir(tmp_path) == []


class Trouble(ArrayFragment):
    """Fails, or kills its process once, where it is told to."""

    folder: Path
    fails_at: int = -1
    kills_at: int = -1

    @classmethod
    def of(cls, dataset: ld.Dataset, **orders: Any) -> ld.Dataset:
        (piece,) = dataset.fragments
        assert isinstance(piece, ArrayFragment)
        return ld.Dataset(dataset.schema, (cls._made(piece, orders),), "trouble")

    @classmethod
    def _made(cls, piece: ArrayFragment, orders: Any) -> Trouble:
        made = cls(piece.columns, piece.values, piece.weights, piece.offset)
        made.__dict__.update(orders)
        return made

    def cut(self, start: int, stop: int) -> Trouble:
        kept = {k: v for k, v in self.__dict__.items() if k in ("folder", "fails_at", "kills_at")}
        return self._made(super().cut(start, stop), kept)

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        if self.fails_at >= 0 and self.offset >= self.fails_at:
            raise DataError(f"damaged at {self.offset}", event=self.offset)
        if self.offset == self.kills_at:
            mine = self.folder / f"pid-{os.getpid()}"
            mine.touch()
            try:
                os.link(mine, self.folder / "victim")
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        yield from super().read(columns, batch_rows)


def test_a_failure_leaves_nothing(execution: ld.Execution, tmp_path: Path) -> None:
    """BL-05, CO-05: the error of the first event; no file, no folder, the older one as it was."""
    model = ld.Model(X * A)
    model.write(events(7), tmp_path / "out")
    bad = Trouble.of(events(), fails_at=2048)
    with pytest.raises(DataError, match="damaged at 2048") as caught:
        model.write(bad, tmp_path / "new", execution=execution)
    assert caught.value.event == 2048
    with pytest.raises(DataError, match="damaged at 2048"):
        model.write(bad, tmp_path / "out", execution=execution, overwrite=True)
    assert os.listdir(tmp_path) == ["out"]
    assert ld.read_parquet(tmp_path / "out").n_events == 7


@pytest.mark.cluster
def test_a_killed_worker_loses_nothing(mortal_client: Client, tmp_path: Path) -> None:
    """EV-05: its partitions are written by others, each once."""
    data = Trouble.of(events(), kills_at=3072, folder=tmp_path)
    spread = ld.Execution(cluster=mortal_client, partitions=5, backend="interpreter")
    written = ld.Model(X * A).write(data, tmp_path / "out", [1.0], spread)
    assert (tmp_path / "victim").exists()
    np.testing.assert_array_equal(written.column("value"), events().column("x"))
    assert len(os.listdir(tmp_path / "out")) == 6


def _put_notes(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")


def _put_plots(folder: Path) -> None:
    (folder / "plots").mkdir()
    (folder / "plots" / "fit.pdf").write_text("mine")


def _put_link(folder: Path) -> None:
    name = folder / "part-000000.parquet"
    name.unlink()
    name.symlink_to(folder.parent)


def _other_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"name": "app"}')


def _no_json(folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b"\xff{")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_put_notes, r"notes\.txt in it was not written"),
        (_put_plots, "plots in it was not written"),
        (_put_link, "part-000000.parquet in it was not written"),
        (_other_manifest, "its manifest.json is not one of write_parquet"),
        (_no_json, "its manifest.json is not one of write_parquet"),
    ],
)
def test_what_others_put_there_is_not_replaced(change: Any, told: str, tmp_path: Path) -> None:
    """EV-05: only a folder with nothing but files of this function may go."""
    model, folder = ld.Model(X * A), tmp_path / "out"
    model.write(events(3), folder, [1.0])
    change(folder)
    before = sorted(folder.rglob("*"))
    with pytest.raises(OutputError, match=told):
        model.write(events(5), folder, [1.0], overwrite=True)
    assert sorted(folder.rglob("*")) == before
    assert os.listdir(tmp_path) == ["out"]


def test_what_appears_while_events_are_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was free, or all of this function, only in the beginning."""
    model, folder = ld.Model(X * A), tmp_path / "out"
    real = sink._write_all

    def slowly(*given: Any) -> list[int]:
        folder.mkdir(exist_ok=True)
        _put_notes(folder)
        return real(*given)

    monkeypatch.setattr(sink, "_write_all", slowly)
    with pytest.raises(OutputError, match="exists and is left as it is"):
        model.write(events(3), folder, [1.0])
    assert os.listdir(tmp_path) == ["out"]
    assert os.listdir(folder) == ["notes.txt"]
    (folder / "notes.txt").unlink()
    folder.rmdir()
    monkeypatch.undo()
    model.write(events(3), folder, [1.0])
    monkeypatch.setattr(sink, "_write_all", slowly)
    with pytest.raises(OutputError, match=r"notes\.txt in it was not written"):
        model.write(events(5), folder, [1.0], overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"
    assert ld.read_parquet(folder / "part-000000.parquet").n_events == 3


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_an_interrupt_while_the_folder_is_replaced(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before or after either change of a name: one of the two folders is there, whole."""
    model, folder = ld.Model(X * A), tmp_path / "out"
    model.write(events(3), folder, [1.0])
    real, steps = os.rename, iter(range(8))

    def interrupted(source: Path, goal: Path) -> None:
        if next(steps) == at:
            raise KeyboardInterrupt
        real(source, goal)
        if next(steps) == at:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.write(events(5), folder, [1.0], overwrite=True)
    assert os.listdir(tmp_path) == ["out"]
    assert ld.read_parquet(folder).n_events == (5 if at == 3 else 3)
