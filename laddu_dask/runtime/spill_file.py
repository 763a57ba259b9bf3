"""Prepared chunks on disk: an Arrow file without a name, written once and mapped chunk by chunk.

Only the process that made the file can read it, since it never has a name: no other model, process
or version can take it for its own, and the system frees the room on disk when the process ends,
however it ends. Only one chunk is mapped at a time, so neither the address space nor the resident
memory grows with the file, whatever a limit counts; the pages stay in the page cache, which
the system takes back when memory is short.

Each row of the file is a chunk: its first event, its number of events, its columns and weights as
flat lists, and a checksum of both.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import tempfile
import weakref
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laddu_dask.data.refusals import OUT_OF_FILES, open_files_cure
from laddu_dask.errors import MemoryBudgetError
from laddu_dask.kernels import column_layout
from laddu_dask.runtime.preparation import Chunk

Array = npt.NDArray[np.float64]
#: Errors that say that there is no room on the disk.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: One in so many of the files that a process may open is not for spilled events.
_FREE_FILES = 4
#: Chunks of so many bytes together are mapped at once, or a single one.
_WINDOW_BYTES = 4 << 20
#: What Arrow raises when a message is not what it was.
_UNREADABLE = (pa.ArrowException, OSError, ValueError)


class DamagedFileError(Exception):
    """The file is not what was written; whoever holds it writes it again."""


class _Place(NamedTuple):
    """Where the message of a chunk lies, in bytes."""

    start: int
    stop: int


@dataclass(frozen=True)
class _State:
    """What changes when somebody writes to the file or cuts it."""

    size: int
    modified: int

    @classmethod
    def of(cls, file: BinaryIO) -> _State:
        found = os.fstat(file.fileno())
        return cls(found.st_size, found.st_mtime_ns)


class _Stretch(NamedTuple):
    """Where numbers lie in the file."""

    start: int
    length: int
    kind: np.dtype[Any]


class _Parts(NamedTuple):
    """What is known of a chunk once its message has been read."""

    first_event: int
    events: int
    shape: tuple[int, ...]
    columns: _Stretch
    weights: _Stretch


class _Window(NamedTuple):
    """A mapped piece of the file, and where it begins."""

    pages: mmap.mmap
    start: int

    def numbers(self, where: _Stretch) -> npt.NDArray[Any]:
        """The numbers there; nothing is copied."""
        if not where.length:
            return np.empty(0, where.kind)
        return np.frombuffer(self.pages, where.kind, where.length, where.start - self.start)

    def stretch(self, values: pa.Array) -> _Stretch:
        """Where the values that were found in a message of this window lie."""
        kind = np.dtype(values.type.to_pandas_dtype())
        if not len(values):
            return _Stretch(0, 0, kind)
        begun = np.frombuffer(self.pages, np.uint8, 1).ctypes.data
        start = values.buffers()[1].address - begun + values.offset * kind.itemsize
        return _Stretch(self.start + start, len(values), kind)


class SpillFile:
    """Chunks of prepared events on disk; see `write_chunks`.

    Reading is safe in several threads at once. The room on disk is given back when the object is
    gone and nobody uses a chunk of it any more.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema, places: Sequence[_Place]) -> None:
        self._file = file
        self._schema = schema
        self._places = tuple(places)
        self._state = _State.of(file)
        self._parts: dict[int, _Parts] = {}
        weakref.finalize(self, file.close)

    def __len__(self) -> int:
        """Number of chunks."""
        return len(self._places)

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return self._state.size

    def chunks(self, first: int = 0, *, whole: bool = True) -> Iterator[Chunk]:
        """The chunks from number `first` on, valid as long as the caller holds on to them.

        Parameters
        ----------
        first
            Number of the first one.
        whole
            Whether everything in a chunk will be read: then all pages are mapped at once, and the
            next chunk is asked for meanwhile.

        Raises
        ------
        DamagedFileError
            The file was changed, cut, or does not have its checksum.
        """
        while first < len(self._places):
            stop = self._window_end(first)
            if whole and stop < len(self._places):
                start, end = self._places[stop].start, self._places[self._window_end(stop) - 1].stop
                os.posix_fadvise(self._file.fileno(), start, end - start, os.POSIX_FADV_WILLNEED)
            window = None
            for number in range(first, stop):
                if _State.of(self._file) != self._state:  # reading behind its end would be fatal
                    raise DamagedFileError("the size or the time of its last change is another one")
                if window is None:
                    window = self._map(first, stop, whole=whole)
                yield self._chunk(number, window)
            first = stop

    def _window_end(self, first: int) -> int:
        """The chunks from `first` up to this one are mapped together."""
        most = self._places[first].start + _WINDOW_BYTES
        return max(bisect_right(self._places, most, key=lambda place: place.stop), first + 1)

    def _map(self, first: int, stop: int, *, whole: bool) -> _Window:
        start = self._places[first].start
        start -= start % mmap.ALLOCATIONGRANULARITY
        populate = mmap.MAP_POPULATE if whole else 0
        pages = mmap.mmap(
            self._file.fileno(),
            self._places[stop - 1].stop - start,
            flags=mmap.MAP_SHARED | populate,
            prot=mmap.PROT_READ,
            offset=start,
        )
        return _Window(pages, start)

    def _chunk(self, number: int, window: _Window) -> Chunk:
        found = self._parts.get(number)
        if found is None:
            found = self._parts[number] = self._first_look(number, window)
        columns, weights = window.numbers(found.columns), window.numbers(found.weights)
        return Chunk(
            found.first_event,
            found.events,
            columns.reshape(found.shape),
            weights if len(weights) else 1.0,
        )

    def _first_look(self, number: int, window: _Window) -> _Parts:
        """Read the message, check the numbers in it, and remember where they are.

        Once: what goes wrong between memory and disk does so until then.
        """
        place = self._places[number]
        message = pa.py_buffer(window.pages).slice(
            place.start - window.start, place.stop - place.start
        )
        try:
            record = pa.ipc.read_record_batch(message, self._schema)
            record.validate()
            columns, weights = (record.column(name).values for name in ("columns", "weights"))
            first_event, events, checksum, shape = (
                record.column(name)[0].as_py()
                for name in ("first_event", "events", "checksum", "shape")
            )
            found = _Parts(
                first_event,
                events,
                tuple(shape),
                window.stretch(columns),
                window.stretch(weights),
            )
            own = window.numbers(found.columns).reshape(found.shape).reshape(-1)
            right = checksum == _checksum(own, window.numbers(found.weights))
        except _UNREADABLE as error:
            raise DamagedFileError(f"chunk {number} cannot be read: {error}") from error
        if not right:
            raise DamagedFileError(f"chunk {number} does not have its checksum")
        return found


def write_chunks(
    chunks: Iterable[Chunk], folder: Path, number: type, *, vectors: bool
) -> SpillFile:
    """Write prepared chunks to a new file.

    Parameters
    ----------
    chunks
        Prepared events, columns by rows; read once.
    folder
        Where the file is made.
    number
        Type of the columns.
    vectors
        Whether columns are laid out by vectors.

    Raises
    ------
    MemoryBudgetError
        The disk is full, or the process has, or would have, too many open files.
    """
    kind = pa.from_numpy_dtype(np.dtype(number))
    schema = pa.schema(
        [
            pa.field("first_event", pa.int64()),
            pa.field("events", pa.int64()),
            pa.field("checksum", pa.uint32()),
            pa.field("shape", pa.list_(pa.int64())),
            pa.field("columns", pa.large_list(kind)),
            pa.field("weights", pa.large_list(pa.float64())),
        ]
    )
    file: BinaryIO | None = None
    try:
        # The file outlives this function, and is closed with the object that holds it.
        file = cast(BinaryIO, tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 (see above)
        _leave_some_files(file)
        places = _written(chunks, file, schema, number, vectors=vectors)
    except BaseException as error:
        if file is not None:
            file.close()
        if isinstance(error, OSError) and error.errno in _FULL:
            raise MemoryBudgetError(
                f"the disk of {folder} is full ({error.strerror}); free some of it, set TMPDIR to "
                "a folder on a larger one, or choose storage='streaming'",
                resource="disk",
                requested=None,
                remaining=0,
            ) from error
        if isinstance(error, OSError) and error.errno in OUT_OF_FILES:
            raise MemoryBudgetError(
                f"prepared events cannot be written to {folder} ({error.strerror}): "
                f"{open_files_cure(error.errno)}, or choose storage='fastest' or 'streaming'",
                resource="open files",
                requested=1,
                remaining=0,
            ) from error
        raise
    return SpillFile(file, schema, places)


def _leave_some_files(file: BinaryIO) -> None:
    """OSError if a file is among the last that this process may open.

    It would stay open, and the source could not be read nor a message sent for want of another.
    The system gives the lowest number that is free, so the number tells how many are in use.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and file.fileno() >= most - most // _FREE_FILES:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _written(
    chunks: Iterable[Chunk], file: BinaryIO, schema: pa.Schema, number: type, *, vectors: bool
) -> list[_Place]:
    places = []
    with (
        os.fdopen(os.dup(file.fileno()), "wb") as own,  # the sink closes what it is given
        pa.PythonFile(own, "w") as sink,
        pa.ipc.new_file(sink, schema) as writer,
    ):
        # The schema goes ahead of the first batch, which shall not be a chunk.
        writer.write_batch(pa.RecordBatch.from_pylist([], schema))
        for chunk in chunks:
            start = sink.tell()
            writer.write_batch(_record(chunk, schema, number, vectors=vectors))
            places.append(_Place(start, sink.tell()))
    return places


def _record(chunk: Chunk, schema: pa.Schema, number: type, *, vectors: bool) -> pa.RecordBatch:
    columns = column_layout.empty_columns(
        len(chunk.columns), chunk.events, vectors=vectors, dtype=number
    )
    column_layout.put(columns, 0, chunk.columns, chunk.events)
    own: Array | float = chunk.weights
    weights = np.empty(0)
    if not isinstance(own, float) and not np.all(own[: chunk.events] == 1.0):
        weights = np.zeros(column_layout.capacity(columns))
        weights[: chunk.events] = own[: chunk.events]
    values = columns.reshape(-1)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([chunk.first_event], pa.int64()),
            pa.array([chunk.events], pa.int64()),
            pa.array([_checksum(values, weights)], pa.uint32()),
            pa.array([list(columns.shape)], pa.list_(pa.int64())),
            _list(values),
            _list(weights),
        ],
        schema=schema,
    )


def _list(values: npt.NDArray[np.generic]) -> pa.LargeListArray:
    """A list array with one list, that does not copy the numbers."""
    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), pa.array(values))


def _checksum(columns: npt.NDArray[np.generic], weights: Array) -> int:
    return zlib.crc32(weights.data.cast("B"), zlib.crc32(columns.data.cast("B")))
