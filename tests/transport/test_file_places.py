"""Files that not every worker can see: the same path means another folder in each process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from local_clusters import two_worker_processes

import laddu_dask as ld

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not os.path.isdir("/proc/self/cwd"), reason="needs Linux' /proc"),
]

# Functions below run on workers, which cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Whatever the working directory of a process is.
HERE = "/proc/self/cwd"
FILES = {"a": 3000, "b": 2500, "c": 4000}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with two_worker_processes() as cluster, Client(cluster, set_as_default=False) as connected:
        yield connected


@pytest.fixture
def folders(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The folders of the client, which has all files, and of the workers, which have none."""
    random = np.random.default_rng(4)
    places = {name: tmp_path / name for name in ("client", "first", "second")}
    for place in places.values():
        place.mkdir()
    for name, rows in FILES.items():
        table = pa.table({"x": random.random(rows), "keep": random.random(rows)})
        pq.write_table(table, places["client"] / f"{name}.parquet", row_group_size=900)
    monkeypatch.chdir(places["client"])
    client.wait_for_workers(2, timeout=120)
    for worker, place in zip(sorted(client.ncores()), ("first", "second"), strict=True):
        client.run(os.chdir, str(places[place]), workers=[worker])
    return places


def show(folders: dict[str, Path], **files: str) -> None:
    """Make files visible: ``first="ab"``. A link has the size and time of the file itself."""
    for place, names in files.items():
        for name in names:
            os.link(folders["client"] / f"{name}.parquet", folders[place] / f"{name}.parquet")


def rate() -> ld.Model:
    return ld.Model(1.0 + ld.parameter("a", initial=0.5) * ld.scalar("x"))


def dataset(select: bool = False) -> ld.Dataset:
    data = ld.read_parquet([f"{HERE}/{name}.parquet" for name in FILES])
    return data.select(ld.scalar("keep") < 0.9) if select else data


def objective(execution: ld.Execution, select: bool = False) -> tuple[float, tuple[float, ...]]:
    """Value and gradient, and the partitions of each worker."""
    mc = ld.Dataset.from_ranges(squares, ["x"], rows=2000, identity="squares")
    term = ld.NLL(rate(), data=dataset(select), accepted_mc=mc)
    with ld.Likelihood([term], execution) as likelihood:
        value, gradient = likelihood.value_and_gradient()
        return value, tuple(gradient.tolist())


def squares(start: int, stop: int) -> dict[str, Any]:
    return {"x": (np.arange(start, stop) / 2000.0) ** 2}


@pytest.mark.parametrize("storage", ["resident", "streaming"])
@pytest.mark.parametrize("select", [False, True])
def test_files_on_the_disks_of_single_machines(
    client: Client, folders: dict[str, Path], storage: Any, select: bool
) -> None:
    """Tiles lie across the ends of files: a few rows travel, and bits stay what they are."""
    show(folders, first="ac", second="b")
    execution = ld.Execution(cluster=client, partitioning="file_groups", storage=storage)
    expected = objective(ld.Execution(threads=1, partitions=1), select)
    assert objective(execution, select) == expected


@pytest.mark.parametrize("policy", ["contiguous", "rows", "file_groups"])
def test_one_worker_sees_everything(client: Client, folders: dict[str, Path], policy: Any) -> None:
    """The other one is given what needs no file, and nothing that it would fail on."""
    show(folders, second="abc")
    execution = ld.Execution(cluster=client, partitioning=policy, partitions=5)
    assert objective(execution) == objective(ld.Execution(threads=1, partitions=1))


def test_a_file_that_no_worker_sees(client: Client, folders: dict[str, Path]) -> None:
    """Refused before anything is read, naming the file and who was asked."""
    show(folders, first="a", second="ac")
    workers = sorted(client.ncores())
    with pytest.raises(ld.DataError, match="none of the 2 workers can read .*b.parquet") as caught:
        objective(ld.Execution(cluster=client, partitioning="file_groups"))
    assert caught.value.file == f"{HERE}/b.parquet"
    assert caught.value.workers == tuple(workers)
    assert all(worker in str(caught.value) for worker in workers)


def test_a_copy_of_another_time_is_another_file(client: Client, folders: dict[str, Path]) -> None:
    """T-58: a worker with an old copy does not work on it."""
    show(folders, first="abc", second="ac")
    old = folders["second"] / "b.parquet"
    old.write_bytes((folders["client"] / "b.parquet").read_bytes())
    os.utime(old, ns=(0, 0))
    execution = ld.Execution(cluster=client, partitioning="rows", partitions=4)
    assert objective(execution) == objective(ld.Execution(threads=1, partitions=1))


def test_values_event_by_event(client: Client, folders: dict[str, Path]) -> None:
    """No tiles there: each piece is worked on where its file is, and nothing travels."""
    show(folders, first="ac", second="b")
    execution = ld.Execution(cluster=client, partitions=2)
    for select in (False, True):
        found = rate().evaluate(dataset(select), execution=execution)
        assert found.tobytes() == rate().evaluate(dataset(select)).tobytes()


def test_one_pass_by_tasks(client: Client, folders: dict[str, Path]) -> None:
    """Sums that are made once, and integrals that are separated."""
    show(folders, first="ac", second="b")
    execution = ld.Execution(cluster=client, partitioning="file_groups")
    shape = ld.Model(ld.parameter("a", initial=0.5) * ld.scalar("x"))
    data = ld.Dataset.from_ranges(squares, ["x"], rows=2000, identity="squares").select(
        ld.scalar("x") > 0.0
    )

    def value(execution: ld.Execution) -> float:
        term = ld.NLL(shape, data=data, accepted_mc=dataset())
        with ld.Likelihood([term], execution) as likelihood:
            return likelihood.value()

    assert value(execution) == value(ld.Execution(threads=1, partitions=1))
    assert shape.reduce(dataset(), execution=execution) == shape.reduce(dataset())


def test_cuts_inside_files_that_lie_apart(client: Client, folders: dict[str, Path]) -> None:
    """More rows than those of a tile do not travel; the message says what to do."""
    show(folders, first="ac", second="b")
    with pytest.raises(ld.DataError, match="partitioning='file_groups'"):
        objective(ld.Execution(cluster=client, partitions=2))


def test_files_are_written_where_the_source_can_be_read(
    client: Client, folders: dict[str, Path], tmp_path: Path
) -> None:
    """Rows of a tile across files travel; the events keep their order."""
    show(folders, first="ac", second="b")
    apart = ld.Execution(cluster=client, partitioning="file_groups", backend="interpreter")
    here = ld.Execution(partitions=1, backend="interpreter")
    written = rate().write(dataset(select=True), tmp_path / "out", execution=apart)
    expected = rate().evaluate(dataset(select=True), execution=here, real=True)
    np.testing.assert_array_equal(written.column("value"), expected)
