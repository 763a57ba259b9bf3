"""Going through fragments and asking conditions about their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from laddu_dask.data.conditions import Condition
from laddu_dask.data.fragment import Floats, Fragment
from laddu_dask.data.pieces import read_pieces
from laddu_dask.errors import DataError

__all__ = ["ROW", "Judged", "columns_of_conditions", "judge", "judge_numbers"]

ROW = "index of the event"
"""What a condition names as a column if it asks about the index of a row before the selection."""

Rows = NDArray[np.intp]


class Judged(NamedTuple):
    """Some consecutive rows and which of them pass.

    Parameters
    ----------
    start
        Row, among those of all fragments, of the first one here.
    columns
        What was read, each of shape (rows,), floats of any width.
    weights
        Shape (rows,), or None if every row has the weight one.
    kept
        Positions of the rows that pass, ascending.
    """

    start: int
    columns: Mapping[str, NDArray[Any]]
    weights: Floats | None
    kept: Rows


def columns_of_conditions(conditions: Iterable[Condition]) -> tuple[str, ...]:
    """The columns that they read, each once."""
    names = (name for item in conditions for name in item.columns if name != ROW)
    return tuple(dict.fromkeys(names))


def judge_numbers(base: Fragment, conditions: tuple[Condition, ...], batch_rows: int) -> int:
    """How many rows pass conditions that read no column; nothing is read."""
    count = 0
    for start in range(0, base.rows, batch_rows):
        rows = _indices([base], start, min(batch_rows, base.rows - start))
        for condition in conditions:
            rows = rows[condition.test(rows[np.newaxis]).holds]
        count += len(rows)
    return count


def _indices(bases: Sequence[Fragment], start: int, rows: int) -> Floats:
    """Indices of rows that begin `start` rows behind the first one; float64 holds them exactly."""
    first = bases[0].offset + start
    return np.arange(first, first + rows, dtype=np.float64)


def judge(
    bases: Sequence[Fragment],
    conditions: tuple[Condition, ...],
    columns: Sequence[str],
    batch_rows: int,
) -> Iterator[Judged]:
    """The rows of fragments, about `batch_rows` at a time, with what was asked of columns.

    The fragments follow one another in the data set.

    Raises
    ------
    DataError
        A condition is NaN: for the first row for which one is, whatever is read at once.
    """
    names = tuple(dict.fromkeys((*columns, *columns_of_conditions(conditions))))
    start = 0
    for piece in read_pieces(bases, names, batch_rows):
        found: dict[str, NDArray[Any]] = dict(zip(names, piece.columns, strict=True))
        found[ROW] = _indices(bases, start, piece.rows)
        kept: Rows = np.arange(piece.rows)
        unknown: tuple[int, Condition] | None = None
        for condition in conditions:
            values = np.empty((len(condition.columns), len(kept)))
            for row, name in zip(values, condition.columns, strict=True):
                row[:] = found[name] if len(kept) == piece.rows else found[name][kept]
            verdict = condition.test(values)
            if verdict.unknown.any():
                position = int(kept[np.argmax(verdict.unknown)])
                if unknown is None or position < unknown[0]:
                    unknown = position, condition
            kept = kept[verdict.holds]
        if unknown is not None:
            yield Judged(start, found, piece.weights, kept[kept < unknown[0]])
            raise _undecided(bases, start + unknown[0], unknown[1])
        yield Judged(start, found, piece.weights, kept)
        start += piece.rows


def _undecided(bases: Sequence[Fragment], row: int, condition: Condition) -> DataError:
    ends = accumulate(base.rows for base in bases)
    base, end = next((base, end) for base, end in zip(bases, ends, strict=True) if row < end)
    own = row - (end - base.rows)
    place = base.locate(own)
    where = "" if base.file is None else f", file {base.file}"
    return DataError(
        f"whether {condition.text} is not decided at row {place} of {base.label}{where} (event "
        f"{base.offset + own} before the selection): a value that it depends on is NaN. Repair or "
        "drop the event, or let the condition say what should happen to it.",
        file=base.file,
        event=base.offset + own,
        row=place,
    )
