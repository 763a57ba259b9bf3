"""Batches as the functions of users give them: mappings of arrays, or Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laddu_dask.data.numbers import checked_numbers
from laddu_dask.data.schema import Schema, p4_columns
from laddu_dask.errors import DataError, LadduError

__all__ = ["GivenBatch", "is_batch", "users_code"]


def is_batch(given: object) -> bool:
    """Whether this is one batch, rather than something to go through for batches."""
    return isinstance(given, Mapping | pa.Table | pa.RecordBatch)


@contextmanager
def users_code(where: str) -> Iterator[None]:
    """Whatever the code of a user raises becomes a DataError that says where.

    Except when memory ran out: then less is asked for at once.
    """
    try:
        yield
    except (LadduError, MemoryError):
        raise
    except Exception as error:
        raise DataError(
            f"{where}: the function that makes the batches failed with "
            f"{type(error).__name__}: {error}"
        ) from error


@dataclass(frozen=True)
class GivenBatch:
    """A batch with exactly the columns of a schema; no value has been looked at.

    Parameters
    ----------
    columns
        Column -> what was given for it.
    rows
        Number of rows.
    where, first
        Name what the batch is of in errors, ``toys, piece 3``, and the row of it that is the first.
    """

    columns: Mapping[str, Any]
    rows: int
    where: str
    first: int

    @classmethod
    def of(cls, given: object, schema: Schema, where: str, first: int) -> GivenBatch:
        """Check names and lengths of what a function gave.

        An entry of shape (n, 4) that is called like a four-momentum stands for its columns in the
        order (E, px, py, pz).

        Raises
        ------
        DataError
            It is no batch; a column is missing, unknown, or of another length.
        """
        if isinstance(given, pa.Table | pa.RecordBatch):
            columns = dict(zip(given.schema.names, given.columns, strict=True))
            if len(columns) < len(given.columns):
                raise DataError(f"{where}: an Arrow table has a column name twice")
        elif isinstance(given, Mapping):
            columns = _without_p4s(given, schema, where)
        else:
            raise DataError(
                f"{where}: a batch is a mapping of column names to arrays, or a pyarrow Table or "
                f"RecordBatch, not a {type(given).__name__}"
                + ("; write dict(frame)" if hasattr(given, "columns") else "")
            )
        expected = (*schema.columns, *(() if schema.weight is None else (schema.weight,)))
        missing = [name for name in expected if name not in columns]
        extra = [name for name in columns if name not in expected]
        if missing or extra:
            raise DataError(
                f"{where}: a batch must have the columns {', '.join(expected)}"
                + (f"; {', '.join(map(repr, missing))} missing" if missing else "")
                + (f"; {', '.join(map(repr, extra))} not declared" if extra else ""),
                column=(missing or extra)[0],
                columns=tuple(missing or extra),
            )
        lengths = {name: _length(columns[name], name, where) for name in expected}
        rows = next(iter(lengths.values()))
        if any(length != rows for length in lengths.values()):
            table = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
            raise DataError(
                f"{where}: all columns of a batch must be equally long, but {table}",
                lengths=lengths,
            )
        return cls(columns, rows, where, first)

    def numbers(self, names: Sequence[str], start: int, stop: int) -> list[NDArray[Any]]:
        """Rows [start, stop) of some columns, as floats of at most 64 bits.

        Raises
        ------
        DataError
            A type that is no real number, an integer that float64 would round, a null.
        """
        return [self._numbers(name, start, stop) for name in names]

    def _numbers(self, name: str, start: int, stop: int) -> NDArray[Any]:
        given = self.columns[name][start:stop]
        what = f"{self.where}: column {name!r}"
        if isinstance(given, pa.Array | pa.ChunkedArray):
            if given.null_count:
                row = self.first + start + int(np.argmax(np.asarray(given.is_null())))
                raise DataError(
                    f"{what} is null at row {row}; NaN marks a missing value, or drop the event",
                    column=name,
                    row=row,
                )
            given = np.asarray(given)
        try:
            return checked_numbers(given, what, name, shape="(n,)")
        except DataError as error:
            if "position" not in error.context:
                raise
            row = self.first + start + int(error.position)
            raise DataError(f"{error} (row {row})", **{**error.context, "row": row}) from None


def _without_p4s(given: Mapping[Any, Any], schema: Schema, where: str) -> dict[str, Any]:
    """The entries, four-momenta taken apart."""
    columns: dict[str, Any] = {}
    for name, values in given.items():
        parts = {name: values}
        if name not in schema and name in schema.p4s:
            array = np.asarray(values)
            if array.ndim != 2 or array.shape[1] != 4:
                raise DataError(
                    f"{where}: the four-momentum {name!r} has the shape {array.shape}; (n, 4) is "
                    "needed, columns E, px, py, pz",
                    column=name,
                    shape=array.shape,
                )
            parts = dict(zip(p4_columns(name), array.T, strict=True))
        for column, part in parts.items():
            if column in columns:
                raise DataError(
                    f"{where}: the column {column!r} is given twice, by itself and as a part of a "
                    "four-momentum",
                    column=column,
                )
            columns[column] = part
    return columns


def _length(values: Any, name: str, where: str) -> int:
    shape = (len(values),) if isinstance(values, pa.Array | pa.ChunkedArray) else np.shape(values)
    if len(shape) != 1:
        raise DataError(
            f"{where}: column {name!r} has the shape {shape}; (n,) is needed",
            column=name,
            shape=shape,
        )
    return int(shape[0])
