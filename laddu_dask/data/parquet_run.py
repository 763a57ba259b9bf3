"""Consecutive rows of a Parquet file, across its row groups.

The usual way decodes all row groups in one go. It does not ask where something irregular is: from
there on, fragment after fragment is read, and the one at fault says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laddu_dask.data.checks import widen_integers
from laddu_dask.data.footer import PARQUET_ERRORS, check_unchanged, open_parquet
from laddu_dask.data.pieces import Piece, RawPiece
from laddu_dask.errors import DataError

if TYPE_CHECKING:
    from laddu_dask.data.parquet_fragment import ParquetFragment

__all__ = ["read_parquet_run"]


class _IrregularError(Exception):
    """A value or a number of rows that only a single fragment can say more about."""


@dataclass(frozen=True)
class _Request:
    """What is read of which fragments, each of which continues the one before."""

    run: Sequence[ParquetFragment]
    columns: tuple[str, ...]
    batch_rows: int

    def one_by_one(self, start: int, stop: int | None = None) -> Iterator[Piece]:
        """The rows [start, stop), fragment after fragment; to the end if there is no `stop`."""
        first = 0
        for fragment in self.run:
            last = first + fragment.rows
            low, high = max(first, start), last if stop is None else min(last, stop)
            if low < high:
                part = fragment.cut(low - first, high - first)
                for values, weights in part.pieces(self.columns, self.batch_rows):
                    yield Piece(len(weights), values, weights)
            first = last


@dataclass(frozen=True)
class _Record:
    """Rows as Arrow has decoded them; see `laddu_dask.data.pieces.RawPiece`.

    To make arrays of them and to check the weights takes a tenth of the time to decode them. It is
    left to who uses them, as who reads may be the one that others wait for.
    """

    request: _Request
    start: int
    record: pa.RecordBatch

    @property
    def rows(self) -> int:
        return int(self.record.num_rows)

    def cut(self, start: int, stop: int) -> _Record:
        """The rows [start, stop)."""
        if start == 0 and stop == self.rows:
            return self
        part = self.record.slice(start, stop - start)
        return _Record(self.request, self.start + start, part)

    def decoded(self) -> Iterator[Piece]:
        """The rows as arrays, from single fragments if there is something wrong with them."""
        try:
            piece = _piece(self.record, self.request.columns, self.request.run[0].weight)
        except (_IrregularError, *PARQUET_ERRORS):
            piece = None
        if piece is None:
            yield from self.request.one_by_one(self.start, self.start + self.rows)
        else:
            yield piece


def read_parquet_run(
    run: Sequence[ParquetFragment], columns: Sequence[str], batch_rows: int
) -> Iterator[RawPiece]:
    """The rows of fragments each of which continues the one before."""
    request = _Request(run, tuple(columns), batch_rows)
    done, smooth = 0, True
    try:
        for record in _in_one_go(request):
            yield record
            done += record.rows
    except (DataError, _IrregularError, *PARQUET_ERRORS):
        smooth = False
    if not smooth:
        yield from request.one_by_one(done)


def _in_one_go(request: _Request) -> Iterator[_Record]:
    run, first = request.run, request.run[0]
    weight = () if first.weight is None else (first.weight,)
    needed = tuple(dict.fromkeys((*request.columns, *weight)))
    total = left = sum(fragment.rows for fragment in run)
    if not total:
        return
    ends = iter([fragment.group_source_row + fragment.group_rows for fragment in run])
    row, checked, skip = first.group_source_row, 0, first.first
    check_unchanged(first.stamp)
    with pa.OSFile(first.stamp.path) as source, open_parquet(first.stamp, source) as parquet:
        first.check_footer(parquet, needed)
        records = parquet.iter_batches(
            batch_size=request.batch_rows,
            row_groups=sorted({fragment.row_group for fragment in run}),
            columns=list(needed),
            use_threads=False,
        )
        for record in records:
            row += record.num_rows
            if row >= checked:  # where a row group has ended
                check_unchanged(first.stamp)
                checked = next((end for end in ends if end > row), row)
            dropped = min(skip, record.num_rows)
            skip -= dropped
            used = min(record.num_rows - dropped, left)
            if used:
                yield _Record(request, total - left - dropped, record).cut(dropped, dropped + used)
                left -= used
            if not left:
                break
    check_unchanged(first.stamp)
    if left:
        raise _IrregularError


def _piece(record: pa.RecordBatch, columns: Sequence[str], weight: str | None) -> Piece:
    names = record.schema.names
    found = {name: _plain(column) for name, column in zip(names, record.columns, strict=True)}
    weights = None
    if weight is not None:
        weights = found[weight].astype(np.float64, copy=False)
        if not _all_finite(weights):
            raise _IrregularError
    return Piece(record.num_rows, [found[name] for name in columns], weights)


def _plain(column: pa.Array) -> NDArray[Any]:
    """Floats of their own width; integers become float64. Anything else is irregular."""
    if column.null_count:
        raise _IrregularError
    if pa.types.is_floating(column.type) and len(column):
        # pyarrow's own conversion imports pandas where that is installed, which takes a second.
        start, dtype = column.offset, np.dtype(column.type.to_pandas_dtype())
        return np.frombuffer(column.buffers()[1], dtype)[start : start + len(column)]
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values if values.dtype.kind == "f" else widen_integers(values)


def _all_finite(numbers: NDArray[Any]) -> bool:
    """A finite sum says so without an array of answers; any other sum may have overflowed."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduce(numbers)
    return bool(np.isfinite(total) or np.isfinite(numbers).all())
