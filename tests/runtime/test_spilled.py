"""Prepared events on disk: the same bits, no damaged number, no room left behind."""

from __future__ import annotations

import gc
import logging
import math
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.compiler import Assumptions
from laddu_dask.compiler.precision import Precision
from laddu_dask.errors import ExecutionError, MemoryBudgetError
from laddu_dask.kernels import get_backend
from laddu_dask.memory import MAX_BYTES, LeasePool, LocalRoom
from laddu_dask.runtime import spilled as spilled_module
from laddu_dask.runtime.local import LocalSession
from laddu_dask.runtime.partitions import partition_dataset
from laddu_dask.runtime.preparation import Chunk, Recipe
from laddu_dask.runtime.spill_file import DamagedFileError, SpillFile, write_chunks
from laddu_dask.runtime.spill_folder import disk_room, spill_folder
from laddu_dask.runtime.spilled import SpilledPartition
from laddu_dask.runtime.tiers import ResidentPartition, StreamingPartition, prepare

Array = NDArray[Any]
N = 5000


def room(host: int = MAX_BYTES, disk: int = MAX_BYTES) -> LocalRoom:
    return LocalRoom(LeasePool("host", host), LeasePool("disk", disk))


def recipe(precision: Precision = "f64", chunk: int = 1024, weighted: bool = True) -> Recipe:
    x, a = ld.scalar("x"), ld.parameter("a", initial=0.7)
    model = ld.Model((a * x + 1.0) ** 2 + a * x.sin())
    options = ld.Execution(precision=precision).kernel_options
    programs = model.grouped("linear", Assumptions(), options).programs
    return Recipe("data", programs, "cpu", chunk, weighted)


def events(weights: Array | None = None) -> ld.Dataset:
    return ld.Dataset.from_arrays(scalars={"x": np.linspace(0.5, 1.5, N)}, weights=weights)


def spilled(precision: Precision = "f64", weights: Array | None = None) -> SpilledPartition:
    (partition,) = partition_dataset(events(weights), 1)
    found = prepare(recipe(precision), partition, ["spilled"], room())
    assert isinstance(found, SpilledPartition)
    return found


def descriptor(partition: SpilledPartition) -> int:
    """Of the file, which has no name."""
    return partition.write()._file.fileno()


# the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("number", [np.float64, np.float32])
def test_chunks_come_back_as_they_were(vectors: bool, number: Any, tmp_path: Path) -> None:
    """Columns, weights, padding and positions; weights of one are not stored."""
    generator = np.random.default_rng(3)
    columns = [generator.normal(size=(3, n)).astype(number) for n in (2048, 1024, 64)]
    weights = [generator.normal(size=2048), np.ones(1024), np.concatenate([[2.0], np.zeros(63)])]
    written = [
        Chunk(100, 2048, columns[0], weights[0]),
        Chunk(2148, 1000, columns[1], weights[1]),
        Chunk(3148, 1, columns[2], weights[2]),
    ]
    file = write_chunks(iter(written), tmp_path, number, vectors=vectors)
    assert list(tmp_path.iterdir()) == []  # it has no name
    assert len(file) == 3
    assert file.bytes > sum(part.nbytes for part in columns[:2])
    for _ in range(2):
        found = list(file.chunks())
        assert [(c.first_event, c.events) for c in found] == [(100, 2048), (2148, 1000), (3148, 1)]
        for before, after in zip(written, found, strict=True):
            assert after.columns.dtype == number
            rows = after.columns
            if vectors:
                rows = rows.transpose(1, 0, 2).reshape(3, -1)
            assert (rows[:, : before.events] == before.columns[:, : before.events]).all()
        assert isinstance(found[0].weights, np.ndarray)
        assert found[0].weights[:2048].tolist() == weights[0].tolist()
        assert not found[0].weights[2048:].any()
        assert found[1].weights == 1.0
        assert isinstance(found[2].weights, np.ndarray)
        assert found[2].weights[0] == 2.0
        assert not found[2].weights[1:].any()
    assert [c.first_event for c in file.chunks(1, whole=False)] == [2148, 3148]


def damaged(file: SpillFile, position: int) -> None:
    """Turn a bit and pretend that nothing was written."""
    number = file._file.fileno()
    before = os.fstat(number)
    (byte,) = os.pread(number, 1, position)
    os.pwrite(number, bytes([byte ^ 4]), position)
    os.utime(number, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_every_byte_of_a_chunk_counts(tmp_path: Path) -> None:
    """A bit that turned anywhere in a message is noticed or changes nothing that is read."""
    chunk = Chunk(7, 8, np.arange(8.0)[np.newaxis], np.arange(8.0) + 2)
    size = write_chunks(iter([chunk]), tmp_path, np.float64, vectors=False)._places[0]
    noticed = 0
    for position in range(size.start, size.stop):
        file = write_chunks(iter([chunk]), tmp_path, np.float64, vectors=False)
        damaged(file, position)
        try:
            (found,) = file.chunks()
        except DamagedFileError:
            noticed += 1
            continue
        assert isinstance(found.weights, np.ndarray)
        assert found.columns[0, :8].tolist() == list(range(8))
        assert found.weights[:8].tolist() == [float(i + 2) for i in range(8)]
    assert noticed > 2 * 8 * 8


# partitions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["f64", "f32"])
@pytest.mark.parametrize("weights", [None, np.linspace(-1.0, 2.0, N)])
@pytest.mark.parametrize("chunk_events", [1024, 5000])
def test_bits_do_not_depend_on_storage(
    precision: Any, weights: Array | None, chunk_events: int
) -> None:
    """Value, gradient, curvature and many points; AX rows on storage."""
    x, a, b = ld.scalar("x"), ld.parameter("a", initial=0.7), ld.parameter("b", initial=0.2)
    model = ld.Model((a * x + 1.0) ** 2 + b * x.sin() + 3)
    data = events(None if weights is None else abs(weights))
    term = ld.NLL(model, data=data, accepted_mc=events(None if weights is None else weights + 1))
    found = []
    for storage in ("resident", "spilled", "streaming"):
        options: Any = {"storage": storage, "precision": precision, "normalization": "general"}
        execution = ld.Execution(threads=2, partitions=3, chunk_events=chunk_events, **options)
        with ld.Likelihood([term], execution) as likelihood:
            value, gradient = likelihood.value_and_gradient([0.6, 0.3])
            many = likelihood.value_many([[0.6, 0.3], [0.5, 0.1]])
            hessian = likelihood.hessian([0.6, 0.3])
            assert {d.strategy for d in likelihood.plan().decisions} == {storage}
        found.append((value.hex(), gradient.tobytes(), many.tobytes(), hessian.tobytes()))
    assert found[0] == found[1] == found[2]


def numbers(partition: Any) -> list[list[float]]:
    """Columns of all events, by rows."""
    found = []
    for chunk in partition.chunks():
        rows = chunk.columns
        if rows.ndim == 3:
            rows = rows.transpose(1, 0, 2).reshape(rows.shape[1], -1)
        found.append(rows[:, : chunk.events])
    return np.concatenate(found, axis=1).tolist()


def test_a_cut_file_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    """Reading behind the end of a mapped file would kill the process."""
    partition = spilled()
    expected = numbers(partition)
    os.ftruncate(descriptor(partition), 100)
    with caplog.at_level(logging.WARNING):
        assert numbers(partition) == expected
    assert "data, events 0 and following: the file is damaged and made again" in caplog.text
    assert numbers(partition) == expected


def test_a_file_cut_during_a_pass_is_made_again() -> None:
    """The chunks that came before are not given twice."""
    partition = spilled(weights=np.linspace(1, 2, N))
    expected = numbers(partition)
    total = partition.weight_sum(get_backend("cpu"))
    chunks = partition.chunks()
    first = [next(chunks), next(chunks)]
    os.ftruncate(descriptor(partition), 30_000)
    seen = [chunk.first_event for chunk in first] + [chunk.first_event for chunk in chunks]
    assert seen == [0, 1024, 2048, 3072, 4096]
    assert numbers(partition) == expected
    assert partition.weight_sum(get_backend("cpu")) == total
    assert total.round() == [math.fsum(np.linspace(1, 2, N))]


def test_a_disk_that_damages_everything_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what, where and the cure."""
    made = write_chunks

    def bad(*arguments: Any, **options: Any) -> SpillFile:
        file = made(*arguments, **options)
        damaged(file, file._places[1].stop - 9)
        return file

    monkeypatch.setattr(spilled_module, "write_chunks", bad)
    with pytest.raises(ExecutionError, match="were damaged 3 times") as caught:
        numbers(spilled())
    assert caught.value.option == "storage"
    assert "data, events 0" in str(caught.value)
    assert "TMPDIR" in str(caught.value)


def test_a_moved_partition_is_prepared_where_it_comes_to() -> None:
    """Dask moves a recipe, not a file; what it accounts for is small."""
    partition = spilled()
    moved = pickle.loads(pickle.dumps(partition))
    assert moved.disk_bytes == 0
    assert numbers(moved) == numbers(partition)
    assert moved.disk_bytes == partition.disk_bytes > 8 * N
    assert sys.getsizeof(partition) < 1000


def open_files() -> int:
    """Open files without a name."""
    places = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(
        os.readlink(place).endswith("(deleted)") for place in places if os.path.lexists(place)
    )


def test_nothing_is_left_behind() -> None:
    """File, room on disk, and mapping go with the partition."""
    gc.collect()
    before = open_files()
    (events_,) = partition_dataset(events(), 1)
    disk = LeasePool("disk", 10**9)
    for _ in range(3):
        partition = prepare(recipe(), events_, ["spilled"], LocalRoom(LeasePool("h", 0), disk))
        assert disk.reserved == recipe().kept_bytes(N)
        assert open_files() == before + 1
        assert partition.weight_sum(get_backend("cpu")).round() == [N]
        del partition
        gc.collect()
        assert disk.reserved == 0
        assert open_files() == before


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    """kill -9 in the middle: the file has no name, so nothing has to be cleaned up."""
    program = """
        import os, signal
        import numpy as np, laddu_dask as ld
        data = ld.Dataset.from_arrays(scalars={"x": np.linspace(0.5, 1.5, 100_000)})
        model = ld.Model((ld.parameter("a", initial=0.7) * ld.scalar("x") + 1.0) ** 2)
        term = ld.NLL(model, data=data, accepted_mc=data)
        likelihood = ld.Likelihood([term], ld.Execution(storage="spilled", backend="interpreter",
            normalization="general"))
        likelihood.value()
        numbers = [entry.name for entry in os.scandir("/proc/self/fd")]
        places = [f"/proc/self/fd/{number}" for number in numbers]
        files = [os.readlink(place) for place in places if os.path.lexists(place)]
        print(sum("(deleted)" in name for name in files), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == -9
    assert int(done.stdout) >= 2
    assert list(tmp_path.iterdir()) == []


# room ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "disk", "kind"),
    [
        (MAX_BYTES, MAX_BYTES, ResidentPartition),
        (100, MAX_BYTES, SpilledPartition),
        (100, 100, StreamingPartition),
    ],
)
def test_a_partition_goes_to_the_first_tier_with_room(host: int, disk: int, kind: type) -> None:
    """`fastest` falls from memory to disk to streaming, partition by partition."""
    (partition,) = partition_dataset(events(), 1)
    tiers: Any = ("resident", "spilled", "streaming")
    assert type(prepare(recipe(), partition, tiers, room(host, disk))) is kind


def test_no_room_at_all() -> None:
    """Refused with the bytes requested and remaining, before anything is read."""
    (partition,) = partition_dataset(events(), 1)
    for tier in ("resident", "spilled"):
        with pytest.raises(MemoryBudgetError) as caught:
            prepare(recipe(), partition, [tier], room(1000, 1000))
        assert caught.value.requested == recipe().kept_bytes(N)
        assert caught.value.remaining == 1000


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of a few pages."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_full_disk(full_disk: Path) -> None:
    """An error that names the folder and cures; nothing of the file stays."""
    generator = np.random.default_rng(0)
    chunks = [Chunk(n, 1024, generator.normal(size=(3, 1024)), 1.0) for n in range(20)]
    with pytest.raises(MemoryBudgetError, match="is full") as caught:
        write_chunks(iter(chunks), full_disk, np.float64, vectors=False)
    assert str(full_disk) in str(caught.value)
    assert caught.value.resource == "disk"
    assert os.statvfs(full_disk).f_bfree * os.statvfs(full_disk).f_bsize > 50_000
    assert disk_room(full_disk) == 0  # it lies in memory


@pytest.fixture
def few_files() -> Iterator[None]:
    """Next to the limit of open files; a file can just be made."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = os.open(os.devnull, os.O_RDONLY)
    os.close(taken)
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 2, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
def test_too_many_open_files(tmp_path: Path) -> None:
    """`spilled` says what to do; `fastest` streams, for which files can still be opened."""
    (partition,) = partition_dataset(events(), 1)
    with pytest.raises(
        MemoryBudgetError, match="may have .* open files; raise the limit"
    ) as caught:
        prepare(recipe(), partition, ["spilled"], room())
    assert caught.value.resource == "open files"
    assert "fewer partitions" in str(caught.value)
    found = prepare(recipe(), partition, ["spilled", "streaming"], room())
    assert isinstance(found, StreamingPartition)
    with (tmp_path / "x").open("w"):
        assert sum(chunk.events for chunk in found.chunks()) == N
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 2, hard))  # not even made
    with pytest.raises(MemoryBudgetError, match="raise the limit"):
        write_chunks(iter(()), tmp_path, np.float64, vectors=False)


def test_where_events_are_spilled_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder for temporary files; a folder in memory has no room."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert spill_folder() == tmp_path
    assert disk_room(tmp_path) > 0
    assert disk_room(Path("/dev/shm")) == 0


def refusal(memory: ld.MemoryPlan | None = None) -> MemoryBudgetError:
    """What a likelihood of spilled events says when there is no room on the disk."""
    model = ld.Model((ld.parameter("a", initial=0.7) * ld.scalar("x") + 1.0) ** 2)
    execution = ld.Execution(storage="spilled", normalization="general", memory=memory)
    likelihood = ld.Likelihood([ld.NLL(model, data=events(), accepted_mc=events())], execution)
    with pytest.raises(MemoryBudgetError) as caught:
        likelihood.plan()
    assert caught.value.resource == "disk"
    assert "bytes (" in str(caught.value)
    assert " on disk, " in str(caught.value)
    return caught.value


def test_a_folder_in_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`spilled` where nothing can be spilled to: the folder, why, and what to set."""
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    error = refusal()
    assert error.remaining == 0
    assert "the folder /dev/shm lies in memory" in str(error)
    assert "set TMPDIR to a folder on a disk, or choose" in str(error)
    assert "MemoryPlan" not in str(error)


def test_a_small_disk_and_a_small_budget(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A larger budget is advised where it would help, and nowhere else."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    error = refusal(ld.MemoryPlan(disk=1))
    assert f"the disk of the folder {tmp_path} has " in str(error)
    assert "raise MemoryPlan(disk=...)" in str(error)
    monkeypatch.setattr("laddu_dask.runtime.capacity.disk_room", lambda _: 2000)
    error = refusal()
    assert f"the disk of the folder {tmp_path} has 2000 bytes (2.0 KiB) free" in str(error)
    assert "set TMPDIR to a folder on a disk with more room" in str(error)
    assert "MemoryPlan" not in str(error)


def test_half_resident_half_on_disk(tmp_path: Path) -> None:
    """Memory for some partitions, disk for some, and the rest read again; the same bits."""
    path = tmp_path / "events.parquet"
    x = np.random.default_rng(1).uniform(0.5, 1.5, 400_000)
    pq.write_table(pa.table({"x": x}), path)
    data = ld.read_parquet(path)
    a = ld.parameter("a", initial=0.7)
    model = ld.Model((a * ld.scalar("x") + 1.0) ** 2 + a * ld.scalar("x").sin())

    def evaluated(memory: Any) -> tuple[Any, list[str]]:
        execution = ld.Execution(memory=memory, normalization="general", threads=2)
        term = ld.NLL(model, data=data, accepted_mc=data)
        with ld.Likelihood([term], execution) as likelihood:
            value, gradient = likelihood.value_and_gradient()
            session = likelihood._reducer.reducer._session
            assert isinstance(session, LocalSession)
            kinds = [type(prepared.partition).__name__ for prepared in session._prepared]
        return (value.hex(), gradient.tobytes()), kinds

    expected, kinds = evaluated(None)
    assert set(kinds) == {"ResidentPartition"}
    found, kinds = evaluated(ld.MemoryPlan("5 MiB", disk="2 MiB"))
    assert found == expected
    assert set(kinds) == {"ResidentPartition", "SpilledPartition", "StreamingPartition"}
