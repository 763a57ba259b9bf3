"""An append-only file of checksummed records that is whole whenever its writer dies.

    magic, 16 random bytes
    frame: mark, number, length, payload, digest of all of these and the random bytes
    frame ...

The file comes into being with its first frame, in one step. Each record is handed to the system in
one piece as soon as it exists, so it survives a killed process; once in a second it is forced to
disk, so a power cut costs a second at most. What a death in the middle of a record leaves behind
is recognised as the end of the file. Damage with good records behind it is not taken for that.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

from laddu_dask.errors import DataError, OutputError
from laddu_dask.fit.output import write_whole

MAGIC = b"laddu-dask fit checkpoint, version 1\n"
_SALT = 16
_MARK = b"\nLDJ"
_HEAD = struct.Struct("<4sQQ")
_DIGEST = 16
SYNC_SECONDS = 1.0
# What file systems that know no locks say when asked for one.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class Contents(NamedTuple):
    """What a journal holds.

    Attributes
    ----------
    records
        Payloads in order.
    ends
        Bytes of the file up to the end of each record.
    salt
        The random bytes of the file.
    lost
        Bytes of an unfinished record at the end.
    """

    records: list[bytes]
    ends: list[int]
    salt: bytes
    lost: int


def read_journal(path: Path) -> Contents:
    """Read every complete record; a rest that is no record is the trace of a death in writing it.

    Raises
    ------
    DataError
        The file cannot be read, is no journal, or is damaged before its end.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"cannot read the checkpoint {path}: {error.strerror or error}", file=str(path)
        ) from error
    begin = len(MAGIC) + _SALT
    if not content.startswith(MAGIC):
        raise DataError(f"{path} is not a checkpoint of a fit", file=str(path))
    salt = content[len(MAGIC) : begin]
    records: list[bytes] = []
    ends: list[int] = []
    position = begin
    while (payload := _frame_at(content, position, len(records), salt)) is not None:
        records.append(payload)
        position += _HEAD.size + len(payload) + _DIGEST
        ends.append(position)
    if not records or _goes_on(content, position, len(records), salt):
        raise DataError(
            f"the checkpoint {path} is damaged at byte {position} of {len(content)}, behind "
            f"{max(len(records) - 1, 0)} good records; it cannot be trusted. Begin the fit anew, "
            "or use a copy of the file",
            file=str(path),
            byte=position,
        )
    return Contents(records, ends, salt, len(content) - position)


def _frame_at(content: bytes, position: int, number: int, salt: bytes) -> bytes | None:
    """The payload of the frame with this number that begins here; None when there is none."""
    behind = position + _HEAD.size
    if behind > len(content):
        return None
    mark, found, length = _HEAD.unpack_from(content, position)
    stop = behind + length
    if mark != _MARK or found != number or stop + _DIGEST > len(content):
        return None
    digest = _digest(salt, content[position:stop])
    return content[behind:stop] if content[stop : stop + _DIGEST] == digest else None


def _goes_on(content: bytes, position: int, number: int, salt: bytes) -> bool:
    """Whether a later record is whole, so that the one missing here was damaged."""
    while (position := content.find(_MARK, position + 1)) >= 0:
        if position + _HEAD.size <= len(content):
            later = _HEAD.unpack_from(content, position)[1]
            if later > number and _frame_at(content, position, later, salt) is not None:
                return True
    return False


def _digest(salt: bytes, frame: bytes) -> bytes:
    return blake2b(frame, digest_size=_DIGEST, key=salt).digest()


def _frame(number: int, payload: bytes, salt: bytes) -> bytes:
    frame = _HEAD.pack(_MARK, number, len(payload)) + payload
    return frame + _digest(salt, frame)


def create_journal(path: Path, records: list[bytes]) -> None:
    """Create a journal with some records, whole or not at all.

    Raises
    ------
    OutputError
        There is something at `path`, or it cannot be written.
    """
    salt = os.urandom(_SALT)
    frames = [_frame(number, payload, salt) for number, payload in enumerate(records)]
    write_whole(path, b"".join([MAGIC, salt, *frames]))


class Journal:
    """A journal open for appending; no other process may have it open.

    Parameters
    ----------
    path
        An existing journal. A trace of an unfinished record at its end is removed.

    Attributes
    ----------
    records
        Payloads of the records found.

    Raises
    ------
    DataError
        As `read_journal`.
    OutputError
        It cannot be written, or a running process is writing it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._named("open"):
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        _open.add(self)
        try:
            self._lock()
            found = read_journal(path)
            self.records = found.records
            self._ends = found.ends
            self._salt = found.salt
            if found.lost:
                self.keep(len(found.records))
        except BaseException:
            self._let_go()
            raise
        self._synced = time.monotonic()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(
                f"the checkpoint {self.path} is in use by a fit that is running; wait for it, or "
                "choose another file",
                file=str(self.path),
            ) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise OutputError(
                    f"cannot lock {self.path}: {error.strerror}", file=str(self.path)
                ) from error

    def append(self, payload: bytes) -> None:
        """Add a record.

        Raises
        ------
        OutputError
            The system refuses to write; the records before stay good. Or the journal belongs to
            the process that this one was forked from.
        """
        if self._file < 0:
            raise OutputError(
                f"the checkpoint {self.path} is not open in this process: it was closed, or it is "
                "that of the process from which this one was forked; use another file here",
                file=str(self.path),
            )
        frame = memoryview(_frame(len(self._ends), payload, self._salt))
        end = self._ends[-1] + len(frame)
        with self._named("write"):
            try:
                while frame:
                    frame = frame[os.write(self._file, frame) :]
            except OSError:
                os.ftruncate(self._file, self._ends[-1])
                raise
            if time.monotonic() - self._synced > SYNC_SECONDS:
                os.fsync(self._file)
                self._synced = time.monotonic()
        self._ends.append(end)

    def keep(self, records: int) -> None:
        """Remove all but the first records."""
        with self._named("shorten"):
            os.ftruncate(self._file, self._ends[records - 1])
            os.fsync(self._file)
        del self._ends[records:]

    def close(self) -> None:
        """Force everything to disk and let go."""
        if self._file >= 0:
            try:
                with self._named("write"):
                    os.fsync(self._file)
            finally:
                self._let_go()

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @contextlib.contextmanager
    def _named(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"cannot {what} the checkpoint {self.path}: {error.strerror or error}",
                file=str(self.path),
            ) from error


#: Those that may be open in this process.
_open: WeakSet[Journal] = WeakSet()


def _let_go_of_all() -> None:
    """In a fork: a lock on a file is held until every process has closed it."""
    for journal in list(_open):
        journal._let_go()


os.register_at_fork(after_in_child=_let_go_of_all)
