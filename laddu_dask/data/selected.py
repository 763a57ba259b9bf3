"""The rows of a fragment for which conditions hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from laddu_dask.data.batches import BatchFragment, BatchSource
from laddu_dask.data.bootstrap import Replica
from laddu_dask.data.checks import checked_batch_rows, checked_cut, digest
from laddu_dask.data.conditions import Condition
from laddu_dask.data.counting import CountedOnce, Each, Job, files_of, fingerprints_of
from laddu_dask.data.fragment import Batch, Fragment
from laddu_dask.data.judged import columns_of_conditions, judge, judge_numbers
from laddu_dask.data.pieces import Consecutive, Piece, is_in_memory
from laddu_dask.data.ranges import RangeFragment, RangeSource
from laddu_dask.data.repack import repack
from laddu_dask.data.reweighted import Reweighted
from laddu_dask.data.wrapping import Wrapping
from laddu_dask.errors import DataError

if TYPE_CHECKING:
    from laddu_dask.data.footer import FileStamp

__all__ = ["SELECTION_ROWS", "SelectedFragment", "Selection", "decoded_columns", "function_of"]

SELECTION_ROWS = 1 << 14
"""Rows that are judged at once when they are counted."""

FEWEST_ROWS = 1 << 10
"""Rows that are judged at once at least: to find one event may take looking at a million."""


@dataclass(frozen=True, eq=False)
class SelectedFragment(Wrapping):
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
        for item in judge([self.base], self.conditions, (), SELECTION_ROWS):
            if wanted < len(item.kept):
                return self.base.locate(item.start + int(item.kept[wanted]))
            wanted -= len(item.kept)
        raise _changed([self], self.first + row - wanted)

    def cut(self, start: int, stop: int) -> SelectedFragment:
        start, stop = checked_cut(self, start, stop)
        return replace(
            self, first=self.first + start, rows=stop - start, offset=self.offset + start
        )

    def unweighted(self) -> SelectedFragment:
        return replace(self, base=self.base.unweighted())

    @property
    def in_memory(self) -> bool:
        return is_in_memory(self.base)

    def continues(self, previous: Fragment) -> bool:
        """Whether these rows follow those of `previous` in the same source."""
        return (
            isinstance(previous, SelectedFragment)
            and self.first == 0
            and previous.first + previous.rows == previous.passing
            and previous.base.offset + previous.base.rows == self.base.offset
            and isinstance(self.base, Consecutive)
            and self.base.continues(previous.base)
            and self.conditions == previous.conditions
        )

    def read_run(
        self, run: Sequence[Fragment], columns: Sequence[str], batch_rows: int
    ) -> Iterator[Piece]:
        """See `laddu_dask.data.pieces.Consecutive`."""
        own = [fragment for fragment in run if isinstance(fragment, SelectedFragment)]
        return _selected(own, columns, checked_batch_rows(batch_rows))

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        """Read the base from its beginning; what is not meant is dropped."""
        size = checked_batch_rows(batch_rows)
        pieces = _selected([self], columns, size)
        return repack(
            ((piece.columns, piece.every_weight()) for piece in pieces),
            total=self.rows,
            n_columns=len(columns),
            batch_rows=size,
        )


def _selected(
    run: Sequence[SelectedFragment], columns: Sequence[str], batch_rows: int
) -> Iterator[Piece]:
    """Rows of fragments each of which continues the one before.

    Whoever reaches the end of the selection checks that nothing follows.
    """
    last = run[-1]
    passing = sum(fragment.passing for fragment in run)
    start, stop = run[0].first, passing - last.passing + last.first + last.rows
    row = 0
    bases = [fragment.base for fragment in run]
    for item in judge(bases, last.conditions, columns, max(batch_rows, FEWEST_ROWS)):
        count = len(item.kept)
        if row + count > passing:
            raise _changed(run, row + count)
        meant = item.kept[max(start - row, 0) : max(stop - row, 0)]
        if len(meant):
            weights = None if item.weights is None else item.weights[meant]
            yield Piece(len(meant), [item.columns[name][meant] for name in columns], weights)
        row += count
        if row >= stop and stop < passing:
            return
    if row < passing:
        raise _changed(run, row)


def _changed(run: Sequence[SelectedFragment], found: int) -> DataError:
    first, last = run[0], run[-1]
    label = first.label if len(run) == 1 else f"{first.label} to {last.label}"
    return DataError(
        f"{found} rows of {label} pass the selection where "
        f"{sum(fragment.passing for fragment in run)} passed when they were counted; the source "
        "changed while it was in use, open it again",
        file=first.file,
    )


def _count(base: Fragment, conditions: tuple[Condition, ...]) -> int:
    if not columns_of_conditions(conditions):
        return judge_numbers(base, conditions, SELECTION_ROWS)
    return sum(len(item.kept) for item in judge([base], conditions, (), SELECTION_ROWS))


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
    while isinstance(fragment, SelectedFragment | Reweighted | Replica):
        fragment = fragment.base
    return fragment.source if isinstance(fragment, BatchFragment | RangeFragment) else None


def decoded_columns(fragment: Fragment, columns: Iterable[str]) -> tuple[str, ...]:
    """The columns that are decoded when some are read: those of conditions come in addition."""
    names = dict.fromkeys(columns)
    while isinstance(fragment, SelectedFragment | Reweighted | Replica):
        if isinstance(fragment, SelectedFragment):
            names.update(dict.fromkeys(columns_of_conditions(fragment.conditions)))
        fragment = fragment.base
    return tuple(names)
