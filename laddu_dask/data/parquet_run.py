"""Consecutive rows of a Parquet file, across its row groups.

The usual way decodes all row groups in one go. It does not ask where something irregular is: from
there on, fragment after fragment is read, and the one at fault says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laddu_dask.data.checks import widen_integers
from laddu_dask.data.footer import PARQUET_ERRORS, check_unchanged, open_parquet
from laddu_dask.data.pieces import Piece
from laddu_dask.errors import DataError

if TYPE_CHECKING:
    from laddu_dask.data.parquet_fragment import ParquetFragment

__all__ = ["read_parquet_run"]


class _IrregularError(Exception):
    """A value or a number of rows that only a single fragment can say more about."""


def read_parquet_run(
    run: Sequence[ParquetFragment], columns: Sequence[str], batch_rows: int
) -> Iterator[Piece]:
    """The rows of fragments each of which continues the one before."""
    done, smooth = 0, True
    try:
        for piece in _in_one_go(run, columns, batch_rows):
            yield piece
            done += piece.rows
    except (DataError, _IrregularError, *PARQUET_ERRORS):
        smooth = False
    if not smooth:
        yield from _one_by_one(run, columns, batch_rows, done)


def _in_one_go(
    run: Sequence[ParquetFragment], columns: Sequence[str], batch_rows: int
) -> Iterator[Piece]:
    first = run[0]
    weight = () if first.weight is None else (first.weight,)
    needed = tuple(dict.fromkeys((*columns, *weight)))
    skip, left = first.first, sum(fragment.rows for fragment in run)
    if not left:
        return
    ends = iter([fragment.group_source_row + fragment.group_rows for fragment in run])
    row, checked = first.group_source_row, 0
    check_unchanged(first.stamp)
    with pa.OSFile(first.stamp.path) as source, open_parquet(first.stamp, source) as parquet:
        first.check_footer(parquet, needed)
        records = parquet.iter_batches(
            batch_size=batch_rows,
            row_groups=sorted({fragment.row_group for fragment in run}),
            columns=list(needed),
            use_threads=False,
        )
        for record in records:
            row += record.num_rows
            if row >= checked:  # where a row group has ended
                check_unchanged(first.stamp)
                checked = next((end for end in ends if end > row), row)
            if skip:
                begin = min(skip, record.num_rows)
                skip -= begin
                record = record.slice(begin)
            if record.num_rows > left:
                record = record.slice(0, left)
            if record.num_rows:
                yield _piece(record, columns, first.weight)
                left -= record.num_rows
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
        if not np.isfinite(weights).all():
            raise _IrregularError
    return Piece(record.num_rows, [found[name] for name in columns], weights)


def _plain(column: pa.Array) -> NDArray[Any]:
    """Floats of their own width; integers become float64. See `ParquetFragment.numbers`."""
    if column.null_count:
        raise _IrregularError
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values if values.dtype.kind == "f" else widen_integers(values)


def _one_by_one(
    run: Sequence[ParquetFragment], columns: Sequence[str], batch_rows: int, done: int
) -> Iterator[Piece]:
    """The rows from `done` on."""
    for fragment in run:
        skipped = min(done, fragment.rows)
        done -= skipped
        if skipped < fragment.rows:
            for values, weights in fragment.cut(skipped, fragment.rows).pieces(columns, batch_rows):
                yield Piece(len(weights), values, weights)
