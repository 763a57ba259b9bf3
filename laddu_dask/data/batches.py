"""Events that a function gives piece by piece, such as a generator or a reader of other files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laddu_dask.data.checks import (
    checked_batch_rows,
    checked_cut,
    digest,
    refuse_non_finite,
)
from laddu_dask.data.counting import Each, Job
from laddu_dask.data.fragment import Batch, Floats
from laddu_dask.data.given import GivenBatch, is_batch, users_code
from laddu_dask.data.repack import repack
from laddu_dask.data.schema import Schema
from laddu_dask.errors import DataError

__all__ = ["BatchFragment", "BatchSource", "UncountedBatches", "piece_fragments"]


@dataclass(frozen=True)
class BatchSource:
    """A function that gives batches, and what they must look like.

    Parameters
    ----------
    factory
        Called with the number of a piece; gives one batch, or something to go through for batches.
        The same each time.
    schema
        Columns of each batch, the weight among them.
    identity
        Tells contents apart in fingerprints: other events, other text.
    name
        What a person calls the source.
    """

    factory: Callable[[int], Any]
    schema: Schema
    identity: str
    name: str

    def label(self, piece: int) -> str:
        """The name of a piece."""
        return f"{self.name}, piece {piece}"

    def batches(self, piece: int) -> Iterator[GivenBatch]:
        """Batches of a piece, their names and lengths checked.

        Raises
        ------
        DataError
            The function raised something, or gave something else than a batch of the schema.
        """
        where = self.label(piece)
        first = 0
        with users_code(where):
            given = self.factory(piece)
            for item in (given,) if is_batch(given) else given:
                batch = GivenBatch.of(item, self.schema, where, first)
                yield batch
                first += batch.rows

    def count(self, piece: int) -> int:
        """Rows of a piece, by going through it."""
        return sum(batch.rows for batch in self.batches(piece))


@dataclass(frozen=True)
class BatchFragment:
    """Consecutive rows of one piece.

    Parameters
    ----------
    source
        What gives the rows.
    weight
        Column of the weights, or None for unit weights.
    piece, piece_rows
        Number of the piece, and all of its rows.
    first, rows
        The rows [first, first + rows) of the piece are meant.
    offset
        Index in the whole data set of the first row.
    """

    source: BatchSource
    weight: str | None
    piece: int
    piece_rows: int
    first: int
    rows: int
    offset: int

    @property
    def label(self) -> str:
        return self.source.label(self.piece)

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
            *("batches", self.source.identity, *schema.columns, "weight", self.weight),
            *(self.piece, self.first, self.rows),
        )

    def locate(self, row: int) -> int:
        return self.first + row

    def cut(self, start: int, stop: int) -> BatchFragment:
        start, stop = checked_cut(self, start, stop)
        return replace(
            self, first=self.first + start, rows=stop - start, offset=self.offset + start
        )

    def unweighted(self) -> BatchFragment:
        return replace(self, weight=None)

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        """Go through the piece from its beginning, dropping rows that are not meant.

        A fragment that reaches the end of its piece sees that no batch comes after it.
        """
        size = checked_batch_rows(batch_rows)
        self.source.schema.require(columns, wanted_by="reading", source=self.source.name)
        return repack(
            self._pieces(tuple(columns)), total=self.rows, n_columns=len(columns), batch_rows=size
        )

    def _pieces(self, columns: tuple[str, ...]) -> Iterator[tuple[Sequence[NDArray[Any]], Floats]]:
        stop = self.first + self.rows
        row = 0
        for batch in self.source.batches(self.piece):
            if row + batch.rows > self.piece_rows:
                raise self._wrong_count(f"at least {row + batch.rows}")
            low, high = max(self.first - row, 0), min(stop - row, batch.rows)
            if low < high:
                yield self._decoded(batch, columns, low, high, row + low - self.first)
            row += batch.rows
            if row >= stop and stop < self.piece_rows:
                return
        if row < self.piece_rows:
            raise self._wrong_count(f"only {row}")

    def _decoded(
        self, batch: GivenBatch, columns: Sequence[str], low: int, high: int, first: int
    ) -> tuple[Sequence[NDArray[Any]], Floats]:
        if self.weight is None:
            return batch.numbers(columns, low, high), np.ones(high - low)
        *values, weights = batch.numbers([*columns, self.weight], low, high)
        wide = weights.astype(np.float64)
        refuse_non_finite(wide, fragment=self, column=self.weight, first=first)
        return values, wide

    def _wrong_count(self, found: str) -> DataError:
        return DataError(
            f"{self.label} has {found} rows where {self.piece_rows} were declared or counted; the "
            "function must give the same rows in every call, and rows= must be their number",
            piece=self.piece,
        )


def piece_fragments(source: BatchSource, rows: Sequence[int]) -> tuple[BatchFragment, ...]:
    """One fragment for each piece that has rows; `rows` has their numbers."""
    fragments, offset = [], 0
    for piece, count in enumerate(rows):
        if count:
            fragments.append(
                BatchFragment(source, source.schema.weight, piece, count, 0, count, offset)
            )
        offset += count
    return tuple(fragments)


@dataclass(frozen=True)
class UncountedBatches:
    """Pieces of unknown lengths; see `laddu_dask.data.counting.Uncounted`.

    Parameters
    ----------
    source
        What gives the rows.
    pieces
        Number of pieces.
    """

    source: BatchSource
    pieces: int

    @property
    def files(self) -> tuple[str, ...]:
        return ()

    @property
    def fingerprint(self) -> str:
        schema = self.source.schema
        return digest(
            *("uncounted", self.source.identity, *schema.columns, "weight", schema.weight),
            self.pieces,
        )

    def count(self, each: Each) -> tuple[BatchFragment, ...]:
        jobs = [Job(partial(self.source.count, piece)) for piece in range(self.pieces)]
        return piece_fragments(self.source, each(jobs))
