"""Arrow tables in memory, and whatever gives itself as one, as a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from laddu_dask.data.agreement import NUMBER, first_schema
from laddu_dask.data.arrays import array_fragments
from laddu_dask.data.column_report import report_columns
from laddu_dask.data.dataset import Dataset
from laddu_dask.data.footer import is_number
from laddu_dask.data.given import GivenBatch
from laddu_dask.data.mapped import ColumnMap, checked_map, mapped, stored_names
from laddu_dask.errors import DataError

__all__ = ["from_arrow"]

_WHERE = "the table"


def from_arrow(
    table: object,
    columns: Sequence[str] | ColumnMap | None = None,
    weight: str | None = "weight",
) -> Dataset:
    """Data set of a copy of a table in memory, by the rules of `read_parquet`.

    Four-momenta are the columns `<name>_e`, `<name>_px`, `<name>_py`, `<name>_pz`; every other
    numeric column is a scalar. float16/32/64 and integers become float64; what is no number is no
    column, and `Dataset.report` lists it.

    Parameters
    ----------
    table
        A pyarrow Table or RecordBatch, or anything with ``__arrow_c_stream__``, as the data frames
        of pandas (2.2 or newer) and polars have it.
    columns
        Columns or four-momenta to offer; None offers all. Or a map of our names to those of the
        table; see `ColumnMap` and `StoredColumn`.
    weight
        Column of event weights. The default name may be missing, then every event has the weight
        one; any other name must exist. None gives the weight one to every event.

    Raises
    ------
    DataError
        No table; a name that occurs twice; a missing column, or one that is no number; a null or an
        integer that float64 would round in a column that is offered; a weight that is not finite.
    """
    if isinstance(columns, Mapping):
        plan = checked_map(columns)
        return mapped(from_arrow(table, stored_names(plan), weight), plan)
    held = _as_table(table)
    stored = {field.name: str(field.type) for field in held.schema}
    if len(stored) < held.num_columns:
        names = held.column_names
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataError(
            f"{_WHERE} has {', '.join(map(repr, twice))} more than once; rename or drop columns",
            column=twice[0],
        )
    types = {f.name: NUMBER if is_number(f.type) else str(f.type) for f in held.schema}
    schema = first_schema((_WHERE, types), columns, weight)
    weights = () if schema.weight is None else (schema.weight,)
    batch = GivenBatch.of(held.select([*schema.columns, *weights]), schema, _WHERE, 0)
    scalars = dict(zip(schema.columns, batch.numbers(schema.columns, 0, batch.rows), strict=True))
    own = batch.numbers(weights, 0, batch.rows)
    _, fragments = array_fragments(None, scalars, own[0] if own else None)
    return Dataset(schema, fragments, "an Arrow table", report_columns([stored], types, schema))


def _as_table(given: object) -> pa.Table:
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        return given
    if hasattr(given, "__arrow_c_stream__"):
        return pa.table(given)
    raise DataError(
        f"from_arrow needs a pyarrow Table or RecordBatch, or a data frame with "
        f"__arrow_c_stream__, not a {type(given).__name__}; Dataset.from_arrays takes NumPy arrays"
    )
