"""Events that a function gives for any range of rows: generated samples of any size, no file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from laddu_dask.data.checks import checked_batch_rows, checked_cut, digest, refuse_non_finite
from laddu_dask.data.fragment import Batch
from laddu_dask.data.given import GivenBatch, users_code
from laddu_dask.data.schema import Schema
from laddu_dask.errors import DataError

__all__ = ["RANGE_ROWS", "RangeFragment", "RangeSource", "range_fragments"]

RANGE_ROWS = 1 << 17
"""Rows of a fragment: so many that 10**8 rows have few fragments; any range can be cut out."""


@dataclass(frozen=True)
class RangeSource:
    """A function that gives rows by their numbers, and what they must look like.

    Parameters
    ----------
    factory
        Called with `start` and `stop`; gives one batch of the rows [start, stop). A row must not
        depend on the range that it is asked in.
    schema
        Columns of each batch, the weight among them.
    identity
        Tells contents apart in fingerprints: other events, other text.
    name
        What a person calls the source.
    """

    factory: Callable[[int, int], Any]
    schema: Schema
    identity: str
    name: str

    def batch(self, start: int, stop: int) -> GivenBatch:
        """The rows [start, stop), their names and lengths checked.

        Raises
        ------
        DataError
            The function raised something, or gave anything but so many rows of the schema.
        """
        where = f"{self.name}, rows {start} to {stop}"
        with users_code(where):
            batch = GivenBatch.of(self.factory(start, stop), self.schema, where, start)
        if batch.rows != stop - start:
            raise DataError(
                f"{where}: the function gave {batch.rows} rows where {stop - start} were asked for",
                rows=batch.rows,
            )
        return batch


@dataclass(frozen=True)
class RangeFragment:
    """The rows [start, start + rows) of a source that can be asked for any.

    Parameters
    ----------
    source
        What gives the rows.
    weight
        Column of the weights, or None for unit weights.
    start, rows
        Which rows, by the numbers that the function knows them by.
    offset
        Index in the whole data set of the first row.
    """

    source: RangeSource
    weight: str | None
    start: int
    rows: int
    offset: int

    @property
    def label(self) -> str:
        return self.source.name

    @property
    def file(self) -> None:
        return None

    @property
    def stamp(self) -> None:
        return None

    @property
    def fingerprint(self) -> str:
        schema = self.source.schema
        return digest(
            *("ranges", self.source.identity, *schema.columns, "weight", self.weight),
            *(self.start, self.rows),
        )

    def locate(self, row: int) -> int:
        return self.start + row

    def cut(self, start: int, stop: int) -> RangeFragment:
        start, stop = checked_cut(self, start, stop)
        return replace(
            self, start=self.start + start, rows=stop - start, offset=self.offset + start
        )

    def unweighted(self) -> RangeFragment:
        return replace(self, weight=None)

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        """Ask for `batch_rows` rows at a time; nothing is made that is not wanted."""
        size = checked_batch_rows(batch_rows)
        self.source.schema.require(columns, wanted_by="reading", source=self.source.name)
        return self._batches(tuple(columns), size)

    def _batches(self, columns: tuple[str, ...], size: int) -> Iterator[Batch]:
        for first in range(0, self.rows, size):
            count = min(size, self.rows - first)
            batch = self.source.batch(self.start + first, self.start + first + count)
            values = np.empty((len(columns), count))
            for row, column in zip(values, batch.numbers(columns, 0, count), strict=True):
                row[:] = column
            weights = np.ones(count)
            if self.weight is not None:
                (weights[:],) = batch.numbers([self.weight], 0, count)
                refuse_non_finite(weights, fragment=self, column=self.weight, first=first)
            yield Batch(first, values, weights)


def range_fragments(source: RangeSource, rows: int) -> tuple[RangeFragment, ...]:
    """The rows [0, rows) in fragments of at most `RANGE_ROWS`."""
    return tuple(
        RangeFragment(source, source.schema.weight, start, min(RANGE_ROWS, rows - start), start)
        for start in range(0, rows, RANGE_ROWS)
    )
