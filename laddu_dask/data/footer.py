"""What the client learns of a Parquet file before any data are read: its footer.

The footer lists the columns, their types and the number of rows of each row group, and stands at
the end of the file, so a file that was cut short is found before a fit starts. Damage inside the
data is found where they are decoded; if the writer stored page checksums, all of it. The format
has no checksum for the footer itself.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from laddu_dask.data.refusals import cure_of_refusal
from laddu_dask.errors import DataError

__all__ = [
    "PARQUET_ERRORS",
    "FileStamp",
    "Footer",
    "changed",
    "check_unchanged",
    "first_line",
    "is_number",
    "open_parquet",
    "read_footer",
]

BUFFER_BYTES = 1 << 17
"""Bytes read ahead per column; without a limit Arrow loads whole column chunks."""

_LISTED = 5

PARQUET_ERRORS = (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError)
"""What reading a damaged or unreadable Parquet file can raise."""


@dataclass(frozen=True)
class FileStamp:
    """Which file, in which state: what every fragment of it carries.

    Parameters
    ----------
    path
        Absolute path.
    name
        What to call it in messages.
    size, mtime_ns
        Bytes and modification time when the footer was read.
    rows
        Rows of the whole file.
    """

    path: str
    name: str
    size: int
    mtime_ns: int
    rows: int


@dataclass(frozen=True)
class Footer:
    """A file's state, the type of each column, and the rows of each row group."""

    stamp: FileStamp
    types: tuple[tuple[str, Any], ...]
    group_rows: tuple[int, ...]


def read_footer(path: str, name: str) -> Footer:
    """Read and check the footer of the file `path`.

    Raises
    ------
    DataError
        The file cannot be opened, is not Parquet, is cut short, or contradicts itself.
        Field: `file`.
    """
    try:
        state = os.stat(path)
        if state.st_size == 0:
            raise DataError(f"{path} is empty (0 bytes), not a Parquet file", file=path)
        with pa.OSFile(path) as source, pq.ParquetFile(source, pre_buffer=False) as parquet:
            metadata = parquet.metadata
            fields = tuple((field.name, field.type) for field in parquet.schema_arrow)
            stamp = FileStamp(path, name, state.st_size, state.st_mtime_ns, int(metadata.num_rows))
            group_rows = _checked_groups(stamp, metadata)
            _refuse_duplicates(path, [name for name, _ in fields])
    except PARQUET_ERRORS as error:
        cure = cure_of_refusal(error) or (
            "It may be cut short, damaged, or of another kind; copy or write it again."
        )
        raise DataError(
            f"{path} cannot be read as a Parquet file: {first_line(error)}. {cure}",
            file=path,
        ) from error
    return Footer(stamp, fields, group_rows)


def check_unchanged(stamp: FileStamp) -> None:
    """DataError unless the file on this machine is the one whose footer the client read."""
    try:
        state = os.stat(stamp.path)
    except OSError as error:
        raise DataError(
            f"{stamp.path} cannot be found on the machine {socket.gethostname()}: "
            f"{error.strerror}. Every worker must see the files under the paths that the client "
            "used.",
            file=stamp.path,
        ) from error
    if state.st_size != stamp.size:
        change = f"it has {state.st_size} bytes, then it had {stamp.size}"
    elif state.st_mtime_ns != stamp.mtime_ns:
        change = (
            f"modified at {state.st_mtime_ns} ns, then {stamp.mtime_ns} ns since 1970; copies on "
            "other machines must keep the modification time"
        )
    else:
        return
    raise changed(stamp, change)


def changed(stamp: FileStamp, change: str) -> DataError:
    """The error for a file that differs, by `change`, from its stamp."""
    return DataError(
        f"{stamp.path} is not the file it was when the data set was opened ({change}). "
        "Open the data set again.",
        file=stamp.path,
    )


def open_parquet(stamp: FileStamp, source: pa.OSFile) -> pq.ParquetFile:
    """A reader whose memory does not grow with the size of a row group."""
    return pq.ParquetFile(
        source,
        metadata=_metadata(stamp),
        pre_buffer=False,
        buffer_size=BUFFER_BYTES,
        page_checksum_verification=True,
    )


def is_number(kind: Any) -> bool:
    """Whether a column of this Arrow type can be an event input: any float, any integer."""
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


# A streaming pass opens a file once per fragment; its footer, long in a file of many row groups,
# is parsed once. The stamp is the key, so a changed file never finds the footer of the old one.
@lru_cache(maxsize=4)
def _metadata(stamp: FileStamp) -> pq.FileMetaData:
    return pq.read_metadata(stamp.path)


# The footer also says where each column lies, but pyarrow cannot be asked: on a damaged footer
# RowGroupMetaData.column() ends the process (an uncaught C++ exception), whereas decoding raises.
def _checked_groups(stamp: FileStamp, metadata: pq.FileMetaData) -> tuple[int, ...]:
    rows = tuple(
        int(metadata.row_group(number).num_rows) for number in range(metadata.num_row_groups)
    )
    if any(count < 0 for count in rows) or sum(rows) != stamp.rows:
        raise DataError(
            f"{stamp.path} contradicts itself: its footer promises {stamp.rows} rows, its row "
            f"groups {', '.join(map(str, rows[:_LISTED]))}{' ...' if len(rows) > _LISTED else ''} "
            f"are {sum(rows)}. The file is damaged; copy or write it again.",
            file=stamp.path,
        )
    return rows


def _refuse_duplicates(path: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise DataError(
                f"{path} has two columns called {name!r}; rename one of them",
                file=path,
                column=name,
            )


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
