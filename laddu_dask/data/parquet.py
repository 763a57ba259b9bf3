"""Opening Parquet files as one data set, by their footers alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from laddu_dask.data.dataset import Dataset
from laddu_dask.data.footer import Footer, is_number, read_footer
from laddu_dask.data.parquet_fragment import ParquetFragment
from laddu_dask.data.paths import PathLike, find_files, short_names
from laddu_dask.data.schema import Schema
from laddu_dask.errors import DataError

__all__ = ["read_parquet"]

_DEFAULT_WEIGHT = "weight"
_FOOTER_THREADS = 8
_TABLE_ROWS = 20


def read_parquet(
    source: PathLike | Iterable[PathLike],
    columns: Sequence[str] | None = None,
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
        to file.
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
    files = find_files(source)
    with ThreadPoolExecutor(min(_FOOTER_THREADS, len(files))) as pool:
        footers = list(pool.map(read_footer, files, short_names(files)))
    schema = _schema(footers[0], columns, weight)
    described = _describe(source, files)
    _refuse_mismatch(footers, schema, weight, columns is None, described)

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
    return Dataset(schema, tuple(fragments), described)


def _schema(footer: Footer, columns: Sequence[str] | None, weight: str | None) -> Schema:
    """What the first file offers."""
    path = footer.stamp.path
    kinds = dict(footer.types)
    numbers = tuple(name for name, kind in footer.types if is_number(kind))
    unusable = tuple((name, str(kind)) for name, kind in footer.types if not is_number(kind))
    if weight is not None and (weight in kinds or weight != _DEFAULT_WEIGHT):
        Schema(numbers, unusable=unusable).require([weight], wanted_by="weight=", source=path)
        numbers = tuple(name for name in numbers if name != weight)
    else:
        weight = None
    schema = Schema(numbers, weight, unusable)
    return schema if columns is None else schema.restricted(columns, source=path)


def _refuse_mismatch(
    footers: Sequence[Footer], schema: Schema, weight: str | None, everything: bool, source: str
) -> None:
    """All files must agree on which of the columns offered are numbers; widths may differ."""
    expected = dict(footers[0].types)
    offered = {*schema.columns, *(() if weight is None else (weight,))}
    rows = []
    for footer in footers[1:]:
        found = dict(footer.types)
        names = dict.fromkeys((*expected, *found)) if everything else dict.fromkeys(offered)
        for name in names:
            if _is_number(expected, name) != _is_number(found, name):
                rows.append((footer.stamp.path, name, _kind(expected, name), _kind(found, name)))
    if not rows:
        return
    first = footers[0].stamp.path
    raise DataError(
        f"the files of {source} do not agree on their columns; {first} sets what is expected:\n"
        + _table([("file", "column", "expected", "found"), *rows[:_TABLE_ROWS]])
        + (f"\n  and {len(rows) - _TABLE_ROWS} more" if len(rows) > _TABLE_ROWS else "")
        + "\nMend or leave out these files, or name the columns that all files share: "
        "read_parquet(..., columns=[...]).",
        file=rows[0][0],
        column=rows[0][1],
        mismatches=tuple(rows),
    )


def _is_number(types: Mapping[str, Any], name: str) -> bool:
    return name in types and is_number(types[name])


def _kind(types: Mapping[str, Any], name: str) -> str:
    if name not in types:
        return "missing"
    return "number" if is_number(types[name]) else str(types[name])


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _describe(source: PathLike | Iterable[PathLike], files: Sequence[str]) -> str:
    if len(files) == 1:
        return files[0]
    if isinstance(source, (str, os.PathLike)):
        return f"{os.path.abspath(os.path.expanduser(source))} ({len(files)} files)"
    return f"{len(files)} files, {files[0]} to {files[-1]}"
