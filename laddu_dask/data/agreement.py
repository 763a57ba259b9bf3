"""What the first file offers, and whether the others offer the same."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from laddu_dask.data.paths import PathLike
from laddu_dask.data.schema import Schema
from laddu_dask.errors import DataError

__all__ = ["NUMBER", "Offer", "describe", "first_schema", "refuse_mismatch"]

NUMBER = "number"
"""Type of a column that can be an event input, whatever its width."""

Offer = tuple[str, Mapping[str, str]]
"""A file with the type of each of its columns: `NUMBER`, or what else it is."""

_DEFAULT_WEIGHT = "weight"
_TABLE_ROWS = 20


def first_schema(offer: Offer, columns: Sequence[str] | None, weight: str | None) -> Schema:
    """The columns that are asked for, if the first file has them; DataError if it has not."""
    path, kinds = offer
    numbers = tuple(name for name, kind in kinds.items() if kind == NUMBER)
    unusable = tuple((name, kind) for name, kind in kinds.items() if kind != NUMBER)
    if weight is not None and (weight in kinds or weight != _DEFAULT_WEIGHT):
        Schema(numbers, unusable=unusable).require([weight], wanted_by="weight=", source=path)
        numbers = tuple(name for name in numbers if name != weight)
    else:
        weight = None
    schema = Schema(numbers, weight, unusable)
    return schema if columns is None else schema.restricted(columns, source=path)


def refuse_mismatch(
    offers: Sequence[Offer],
    schema: Schema,
    weight: str | None,
    *,
    everything: bool,
    source: str,
    reader: str,
) -> None:
    """All files must agree on which of the columns offered are numbers; widths may differ."""
    first, expected = offers[0]
    offered = {*schema.columns, *(() if weight is None else (weight,))}
    rows = []
    for path, found in offers[1:]:
        names = dict.fromkeys((*expected, *found)) if everything else dict.fromkeys(offered)
        for name in names:
            if (expected.get(name) == NUMBER) != (found.get(name) == NUMBER):
                kinds = expected.get(name, "missing"), found.get(name, "missing")
                rows.append((path, name, *kinds))
    if not rows:
        return
    raise DataError(
        f"the files of {source} do not agree on their columns; {first} sets what is expected:\n"
        + _table([("file", "column", "expected", "found"), *rows[:_TABLE_ROWS]])
        + (f"\n  and {len(rows) - _TABLE_ROWS} more" if len(rows) > _TABLE_ROWS else "")
        + "\nMend or leave out these files, or name the columns that all files share: "
        f"{reader}(..., columns=[...]).",
        file=rows[0][0],
        column=rows[0][1],
        mismatches=tuple(rows),
    )


def describe(source: PathLike | Iterable[PathLike], files: Sequence[str]) -> str:
    """What a person calls the files."""
    if len(files) == 1:
        return files[0]
    if isinstance(source, (str, os.PathLike)):
        return f"{os.path.abspath(os.path.expanduser(source))} ({len(files)} files)"
    return f"{len(files)} files, {files[0]} to {files[-1]}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
