"""Rows of one row group of a Parquet file, decoded in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from laddu_dask.data.checks import (
    checked_batch_rows,
    checked_cut,
    digest,
    event_label,
    refuse_non_finite,
    widen_integers,
)
from laddu_dask.data.footer import (
    PARQUET_ERRORS,
    FileStamp,
    changed,
    check_unchanged,
    first_line,
    is_number,
    open_parquet,
)
from laddu_dask.data.fragment import Batch, Floats, Fragment
from laddu_dask.data.parquet_run import read_parquet_run
from laddu_dask.data.pieces import RawPiece
from laddu_dask.data.refusals import cure_of_refusal
from laddu_dask.data.repack import repack
from laddu_dask.data.schema import Schema
from laddu_dask.errors import DataError

__all__ = ["ParquetFragment"]

_DAMAGED = "The file is damaged; copy or write it again."
_FULL_OR_DAMAGED = "Memory is exhausted, or the file is damaged and asks for too much of it."


@dataclass(frozen=True)
class ParquetFragment:
    """Consecutive rows of one row group.

    Parameters
    ----------
    stamp
        The file and its state when it was opened.
    row_group, group_rows, group_source_row
        Number of the row group, its rows, and the row of the file that its first row is.
    first, rows
        The rows [first, first + rows) of the row group are meant.
    offset
        Index in the whole data set of the first row.
    weight
        Column of the weights, or None for unit weights.
    """

    stamp: FileStamp
    row_group: int
    group_rows: int
    group_source_row: int
    first: int
    rows: int
    offset: int
    weight: str | None

    @property
    def label(self) -> str:
        return f"{self.stamp.name}, row group {self.row_group}"

    @property
    def file(self) -> str:
        return self.stamp.path

    @property
    def fingerprint(self) -> str:
        stamp = self.stamp
        return digest(
            *("parquet", stamp.path, stamp.size, stamp.mtime_ns, self.row_group),
            *(self.first, self.rows, self.weight),
        )

    def locate(self, row: int) -> int:
        return self.group_source_row + self.first + row

    def cut(self, start: int, stop: int) -> ParquetFragment:
        start, stop = checked_cut(self, start, stop)
        return replace(
            self, first=self.first + start, rows=stop - start, offset=self.offset + start
        )

    def unweighted(self) -> ParquetFragment:
        return replace(self, weight=None)

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        """Decode the rows, holding about two batches at a time however long the row group is.

        Parquet has no random access to rows: a fragment that begins inside its row group decodes
        and drops what comes before, and stops decoding at its own end.
        """
        size = checked_batch_rows(batch_rows)
        return repack(
            self.pieces(columns, size),
            total=self.rows,
            n_columns=len(columns),
            batch_rows=size,
        )

    def continues(self, previous: Fragment) -> bool:
        """Whether these rows follow those of `previous` in the same file."""
        return (
            isinstance(previous, ParquetFragment)
            and previous.locate(previous.rows) == self.locate(0)
            and previous.weight == self.weight
            and previous.stamp == self.stamp
        )

    def read_run(
        self, run: Sequence[Fragment], columns: Sequence[str], batch_rows: int
    ) -> Iterator[RawPiece]:
        """See `laddu_dask.data.pieces.Consecutive`."""
        fragments = [fragment for fragment in run if isinstance(fragment, ParquetFragment)]
        return read_parquet_run(fragments, columns, checked_batch_rows(batch_rows))

    def pieces(
        self, columns: Sequence[str], batch_rows: int
    ) -> Iterator[tuple[Sequence[NDArray[Any]], Floats]]:
        """The rows as they are decoded: columns and weights, which nobody may write to."""
        check_unchanged(self.stamp)
        weight = () if self.weight is None else (self.weight,)
        needed = tuple(dict.fromkeys((*columns, *weight)))
        row = 0
        for record in self._records(needed, batch_rows) if self.rows else ():
            decoded = {name: self._numbers(record, name, row) for name in needed}
            if self.weight is None:
                weights = np.ones(record.num_rows)
            else:
                weights = decoded[self.weight].astype(np.float64)
                refuse_non_finite(weights, fragment=self, column=self.weight, first=row)
            yield [decoded[name] for name in columns], weights
            row += record.num_rows
        check_unchanged(self.stamp)
        if row != self.rows:
            promised = f"{self.first + row} rows where {self.group_rows} are promised"
            raise self._undecodable(promised, _DAMAGED, None)

    def _records(self, needed: tuple[str, ...], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Decoded rows of this fragment, and of nothing else, with the needed columns."""
        try:
            with (
                pa.OSFile(self.stamp.path) as source,
                open_parquet(self.stamp, source) as parquet,
            ):
                self.check_footer(parquet, needed)
                yield from self._decode(parquet, needed, batch_rows)
        except PARQUET_ERRORS as error:
            check_unchanged(self.stamp)
            cure = cure_of_refusal(error)
            if cure is not None:
                raise self._undecodable(first_line(error), cure, None) from error
            culprit = self._culprit(needed, batch_rows)
            if isinstance(error, MemoryError):
                raise self._undecodable(first_line(error), _FULL_OR_DAMAGED, culprit) from error
            raise self._undecodable(first_line(error), _DAMAGED, culprit) from error

    def _decode(
        self, parquet: pq.ParquetFile, needed: tuple[str, ...], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        stop = self.first + self.rows
        row = 0
        for record in parquet.iter_batches(
            batch_size=min(batch_rows, self.group_rows),
            row_groups=[self.row_group],
            columns=list(needed),
            use_threads=False,
        ):
            begin = max(self.first - row, 0)
            end = min(stop - row, record.num_rows)
            if begin < end:
                yield record.slice(begin, end - begin)
            row += record.num_rows
            if row >= stop:
                return

    def check_footer(self, parquet: pq.ParquetFile, needed: tuple[str, ...]) -> None:
        """DataError unless an open file has the rows of the stamp and the needed columns."""
        metadata = parquet.metadata
        if metadata.num_rows != self.stamp.rows:
            raise changed(
                self.stamp, f"it has {metadata.num_rows} rows, then it had {self.stamp.rows}"
            )
        kinds = [(field.name, field.type) for field in parquet.schema_arrow]
        Schema(
            tuple(name for name, kind in kinds if is_number(kind)),
            unusable=tuple((name, str(kind)) for name, kind in kinds if not is_number(kind)),
        ).require(needed, wanted_by="reading", source=self.stamp.path)

    def _numbers(self, record: pa.RecordBatch, name: str, first: int) -> NDArray[Any]:
        """One decoded column as floats of its own width; integers become float64."""
        column = record.column(name)
        if column.null_count:
            row = first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise self._bad_value(
                name, row, None, "is null", "store NaN if a missing value is meant"
            )
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind == "f":
            return values
        try:
            return widen_integers(values)
        except OverflowError as error:
            value = int(values[error.args[0]])
            raise self._bad_value(
                name,
                first + error.args[0],
                value,
                f"is the integer {value}, which float64 would round",
                "subtract an offset",
            ) from error

    def _bad_value(self, column: str, row: int, value: object, what: str, cure: str) -> DataError:
        return DataError(
            f"column {column!r} of {self.stamp.path} {what} at {event_label(self, row)}; {cure} "
            "or drop the event",
            file=self.stamp.path,
            column=column,
            event=self.offset + row,
            row=self.locate(row),
            value=value,
        )

    def _undecodable(self, what: str, cure: str, column: str | None) -> DataError:
        where = "" if column is None else f", column {column!r}"
        return DataError(
            f"{self.stamp.path} cannot be decoded in row group {self.row_group}{where}: {what}. "
            + cure,
            file=self.stamp.path,
            row_group=self.row_group,
            column=column,
        )

    def _culprit(self, needed: tuple[str, ...], batch_rows: int) -> str | None:
        """Which column does not decode, for an error message; each is tried alone."""
        for name in needed:
            try:
                with (
                    pa.OSFile(self.stamp.path) as source,
                    open_parquet(self.stamp, source) as parquet,
                ):
                    for _ in self._decode(parquet, (name,), batch_rows):
                        pass
            except PARQUET_ERRORS:
                return name
        return None
