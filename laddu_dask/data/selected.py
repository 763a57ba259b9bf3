"""The rows of a fragment for which conditions hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from laddu_dask.data.batches import BatchFragment, BatchSource
from laddu_dask.data.checks import checked_batch_rows, checked_cut, digest
from laddu_dask.data.conditions import Condition
from laddu_dask.data.counting import CountedOnce, Each, Job, files_of, fingerprints_of
from laddu_dask.data.fragment import Batch, Floats, Fragment
from laddu_dask.data.ranges import RangeFragment, RangeSource
from laddu_dask.data.repack import repack
from laddu_dask.data.reweighted import Reweighted
from laddu_dask.errors import DataError

if TYPE_CHECKING:
    from laddu_dask.data.footer import FileStamp

__all__ = ["SELECTION_ROWS", "SelectedFragment", "Selection", "decoded_columns", "function_of"]

SELECTION_ROWS = 1 << 14
"""Rows that are judged at once when they are counted."""

FEWEST_ROWS = 1 << 10
"""Rows that are judged at once at least: to find one event may take looking at a million."""

_Rows = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class SelectedFragment:
    """Some of the rows of a fragment that pass all of several conditions.

    Parameters
    ----------
    base
        Gives the rows; never cut, so that what passes can be counted again.
    conditions
        One after the other: each is asked only about rows that passed those before it.
    passing
        Rows of `base` that pass.
    first, rows
        The rows [first, first + rows) of those are meant.
    offset
        Index in the selected data set of the first row.
    """

    base: Fragment
    conditions: tuple[Condition, ...]
    passing: int
    first: int
    rows: int
    offset: int

    @property
    def label(self) -> str:
        return self.base.label

    @property
    def file(self) -> str | None:
        return self.base.file

    @property
    def stamp(self) -> FileStamp | None:
        return self.base.stamp

    @property
    def fingerprint(self) -> str:
        return digest(
            *("selected", self.base.fingerprint, *(item.fingerprint for item in self.conditions)),
            *(self.first, self.rows),
        )

    def locate(self, row: int) -> int:
        """See `Fragment`; reads the columns of the conditions to find out."""
        wanted = self.first + row
        for batch, kept, _ in judged(self.base, self.conditions, (), SELECTION_ROWS):
            if wanted < len(kept):
                return self.base.locate(batch.start + int(kept[wanted]))
            wanted -= len(kept)
        raise self._changed(self.passing - 1 - wanted)

    def cut(self, start: int, stop: int) -> SelectedFragment:
        start, stop = checked_cut(self, start, stop)
        return replace(
            self, first=self.first + start, rows=stop - start, offset=self.offset + start
        )

    def unweighted(self) -> SelectedFragment:
        return replace(self, base=self.base.unweighted())

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        """Read the base from its beginning; what is not meant is dropped.

        A fragment that reaches the end of the selection checks that nothing follows.
        """
        size = checked_batch_rows(batch_rows)
        return repack(
            self._pieces(tuple(columns), size),
            total=self.rows,
            n_columns=len(columns),
            batch_rows=size,
        )

    def _pieces(
        self, columns: tuple[str, ...], batch_rows: int
    ) -> Iterator[tuple[Sequence[NDArray[Any]], Floats]]:
        stop = self.first + self.rows
        row = 0
        size = max(batch_rows, FEWEST_ROWS)
        for batch, kept, order in judged(self.base, self.conditions, columns, size):
            if row + len(kept) > self.passing:
                raise self._changed(row + len(kept))
            meant = kept[max(self.first - row, 0) : max(stop - row, 0)]
            if len(meant):
                yield [batch.values[order[name], meant] for name in columns], batch.weights[meant]
            row += len(kept)
            if row >= stop and stop < self.passing:
                return
        if row < self.passing:
            raise self._changed(row)

    def _changed(self, found: int) -> DataError:
        return DataError(
            f"{found} rows of {self.label} pass the selection where {self.passing} passed when "
            "they were counted; the source changed while it was in use, open it again",
            file=self.file,
        )


def columns_of_conditions(conditions: Iterable[Condition]) -> tuple[str, ...]:
    """The columns that they read, each once."""
    return tuple(dict.fromkeys(name for item in conditions for name in item.columns))


def judged(
    base: Fragment, conditions: tuple[Condition, ...], columns: Sequence[str], batch_rows: int
) -> Iterator[tuple[Batch, _Rows, dict[str, int]]]:
    """Batches of a fragment with the positions of rows that pass.

    Yields
    ------
    batch, kept, order
        A batch of the base; positions of rows in it, ascending; and the row of `batch.values` that
        each column is.

    Raises
    ------
    DataError
        A condition is NaN: for the first row for which one is, whatever the size of batches.
    """
    names = tuple(dict.fromkeys((*columns, *columns_of_conditions(conditions))))
    order = {name: row for row, name in enumerate(names)}
    for batch in base.read(names, batch_rows):
        kept: _Rows = np.arange(len(batch.weights))
        unknown: tuple[int, Condition] | None = None
        for condition in conditions:
            read = np.array([order[name] for name in condition.columns], dtype=np.intp)
            verdict = condition.test(batch.values[read[:, np.newaxis], kept])
            if verdict.unknown.any():
                position = int(kept[np.argmax(verdict.unknown)])
                if unknown is None or position < unknown[0]:
                    unknown = position, condition
            kept = kept[verdict.holds]
        if unknown is not None:
            yield batch, kept[kept < unknown[0]], order
            raise _undecided(base, batch.start + unknown[0], unknown[1])
        yield batch, kept, order


def _undecided(base: Fragment, row: int, condition: Condition) -> DataError:
    place = base.locate(row)
    where = "" if base.file is None else f", file {base.file}"
    return DataError(
        f"whether {condition.text} is not decided at row {place} of {base.label}{where} (event "
        f"{base.offset + row} before the selection): a value that it depends on is NaN. Repair or "
        "drop the event, or let the condition say what should happen to it.",
        file=base.file,
        event=base.offset + row,
        row=place,
    )


def _count(base: Fragment, conditions: tuple[Condition, ...]) -> int:
    return sum(len(kept) for _, kept, _ in judged(base, conditions, (), SELECTION_ROWS))


def selected_fragments(
    bases: Sequence[Fragment], conditions: tuple[Condition, ...], each: Each
) -> tuple[SelectedFragment, ...]:
    """What of some fragments passes, after counting it."""
    counts = each([Job(partial(_count, base, conditions), base.stamp) for base in bases])
    fragments, offset = [], 0
    for base, rows in zip(bases, counts, strict=True):
        if rows:
            fragments.append(SelectedFragment(base, conditions, rows, 0, rows, offset))
        offset += rows
    return tuple(fragments)


@dataclass(frozen=True, eq=False)
class Selection:
    """A selection that has not been counted; see `laddu_dask.data.counting.Uncounted`.

    Parameters
    ----------
    base
        What is selected from; it may itself have to be counted first.
    conditions
        One after the other.
    """

    base: tuple[Fragment, ...] | CountedOnce
    conditions: tuple[Condition, ...]

    @property
    def files(self) -> tuple[str, ...]:
        return files_of(self.base)

    @property
    def fingerprint(self) -> str:
        conditions = (condition.fingerprint for condition in self.conditions)
        return digest("selection", *conditions, "of", *fingerprints_of(self.base))

    def count(self, each: Each) -> tuple[SelectedFragment, ...]:
        base = self.base
        bases = base.fragments(each) if isinstance(base, CountedOnce) else base
        return selected_fragments(bases, self.conditions, each)


def function_of(fragment: Fragment) -> BatchSource | RangeSource | None:
    """The function that the rows of a fragment come from in the end, if it is one."""
    while isinstance(fragment, SelectedFragment | Reweighted):
        fragment = fragment.base
    return fragment.source if isinstance(fragment, BatchFragment | RangeFragment) else None


def decoded_columns(fragment: Fragment, columns: Iterable[str]) -> tuple[str, ...]:
    """The columns that are decoded when some are read: those of conditions come in addition."""
    names = dict.fromkeys(columns)
    while isinstance(fragment, SelectedFragment | Reweighted):
        if isinstance(fragment, SelectedFragment):
            names.update(dict.fromkeys(columns_of_conditions(fragment.conditions)))
        fragment = fragment.base
    return tuple(names)
