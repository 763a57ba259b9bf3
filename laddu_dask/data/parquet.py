"""Opening Parquet files as one data set, by their footers alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from laddu_dask.data.agreement import NUMBER, describe, first_schema, refuse_mismatch
from laddu_dask.data.column_report import report_columns
from laddu_dask.data.dataset import Dataset
from laddu_dask.data.footer import is_number, read_footer
from laddu_dask.data.mapped import ColumnMap, checked_map, mapped, stored_names
from laddu_dask.data.parquet_fragment import ParquetFragment
from laddu_dask.data.paths import PathLike, find_files, short_names

__all__ = ["read_parquet"]

_FOOTER_THREADS = 8


def read_parquet(
    source: PathLike | Iterable[PathLike],
    columns: Sequence[str] | ColumnMap | None = None,
    weight: str | None = "weight",
) -> Dataset:
    """Open Parquet files as one data set, without reading any events.

    Four-momenta are stored as the columns `<name>_e`, `<name>_px`, `<name>_py`, `<name>_pz`;
    every other numeric column is a scalar. float16/32/64 and integers of any width are read as
    float64; column order does not matter. A NaN is passed on, a null is refused when its column
    is needed.

    Parameters
    ----------
    source
        File, directory (every ``*.parquet`` below it), glob pattern, or a list of these.
        Directories and globs are sorted; a list keeps its order.
    columns
        Columns or four-momenta to offer; None offers all. Columns left out may differ from file
        to file. Or a map of our names to those of the files; see `ColumnMap` and `StoredColumn`.
    weight
        Column of event weights. The default name may be missing, then every event has the weight
        one; any other name must exist. None gives the weight one to every event even if the
        files have weights.

    Returns
    -------
    Dataset
        One fragment for each row group that has rows, in file order.

    Raises
    ------
    DataError
        Nothing found, a file that is not Parquet or is damaged, files that disagree about a
        column, a missing column, or a weight that is not a number.
    """
    if isinstance(columns, Mapping):
        plan = checked_map(columns)
        return mapped(read_parquet(source, stored_names(plan), weight), plan)
    files = find_files(source)
    with ThreadPoolExecutor(min(_FOOTER_THREADS, len(files))) as pool:
        footers = list(pool.map(read_footer, files, short_names(files)))
    offers = [
        (
            footer.stamp.path,
            {name: NUMBER if is_number(kind) else str(kind) for name, kind in footer.types},
        )
        for footer in footers
    ]
    schema = first_schema(offers[0], columns, weight)
    described = describe(source, files)
    everything = columns is None
    refuse_mismatch(
        offers, schema, weight, everything=everything, source=described, reader="read_parquet"
    )

    fragments: list[ParquetFragment] = []
    offset = 0
    for footer in footers:
        source_row = 0
        for number, rows in enumerate(footer.group_rows):
            if rows:
                fragments.append(
                    ParquetFragment(
                        footer.stamp, number, rows, source_row, 0, rows, offset, schema.weight
                    )
                )
            source_row += rows
            offset += rows
    stored = [{name: str(kind) for name, kind in footer.types} for footer in footers]
    report = report_columns(stored, offers[0][1], schema)
    return Dataset(schema, tuple(fragments), described, report)
