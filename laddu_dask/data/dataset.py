"""The data set that users hold: a schema and fragments, read when somebody asks."""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike

from laddu_dask.data.arrays import array_fragments, checked_weights
from laddu_dask.data.checks import checked_batch_rows, digest, event_label, refuse_non_finite
from laddu_dask.data.fragment import Batch, Floats, Fragment
from laddu_dask.data.repack import repack
from laddu_dask.data.reweighted import ASSIGNED_WEIGHT, Reweighted
from laddu_dask.data.schema import Schema
from laddu_dask.errors import DataError

__all__ = ["DEFAULT_BATCH_ROWS", "Dataset"]

DEFAULT_BATCH_ROWS = 65536


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Events with named columns and weights; immutable, picklable, read lazily and repeatably.

    Users get one from `read_parquet` or `Dataset.from_arrays`.

    Parameters
    ----------
    schema
        What the columns are.
    fragments
        The rows in order; their offsets must follow one another from zero.
    source
        Where the events come from, in words.
    """

    schema: Schema
    fragments: tuple[Fragment, ...]
    source: str

    def __post_init__(self) -> None:
        expected = 0
        for fragment in self.fragments:
            if fragment.offset != expected:
                raise DataError(
                    f"the fragment {fragment.label} starts at event {fragment.offset}, but "
                    f"{expected} events come before it"
                )
            expected += fragment.rows

    @classmethod
    def from_arrays(
        cls,
        p4s: Mapping[str, ArrayLike] | None = None,
        scalars: Mapping[str, ArrayLike] | None = None,
        weights: ArrayLike | None = None,
    ) -> Dataset:
        """Data set of a copy of arrays.

        Parameters
        ----------
        p4s
            Four-momenta by name, each of shape (n, 4) in the order (E, px, py, pz). The columns
            of `k` are `k_e`, `k_px`, `k_py`, `k_pz`.
        scalars
            Other event inputs by name, each of shape (n,).
        weights
            Event weights of shape (n,), finite; None gives every event the weight one.

        Raises
        ------
        DataError
            Wrong shape, length or type, a name used twice, a weight that is not finite. Floats
            of at most 64 bits and integers are accepted; NaN is, outside weights.
        """
        schema, fragments = array_fragments(p4s, scalars, weights)
        return cls(schema, fragments, "arrays")

    @cached_property
    def n_events(self) -> int:
        return sum(fragment.rows for fragment in self.fragments)

    @cached_property
    def fingerprint(self) -> str:
        """Identity of the content: equal for the same files in the same state, or equal arrays."""
        schema = self.schema
        return digest(
            *("dataset", *schema.columns, "weight", schema.weight),
            *(fragment.fingerprint for fragment in self.fragments),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """Absolute paths of the files that the events lie in, each once, in order."""
        paths = (fragment.file for fragment in self.fragments)
        return tuple(dict.fromkeys(path for path in paths if path is not None))

    def require(self, columns: Iterable[str], *, wanted_by: str) -> None:
        """Check that all `columns` can be read.

        Parameters
        ----------
        columns
            Physical column names.
        wanted_by
            Who needs them, for the message: ``likelihood term 'signal'``.

        Raises
        ------
        DataError
            Names every missing column and four-momentum, near misses, the source and what it
            offers. Fields: `file`, `column`, `columns`, `wanted_by`.
        """
        try:
            self.schema.require(columns, wanted_by=wanted_by, source=self.source)
        except DataError as error:
            file = self.files[0] if self.files else None
            raise DataError(str(error), **{**error.context, "file": file}) from None

    def batches(
        self, columns: Sequence[str], batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """All events in order, `batch_rows` at a time whatever the fragments are.

        `Batch.start` is the index in the data set. Rows decoded before an error are delivered
        before it is raised.
        """
        size = checked_batch_rows(batch_rows)
        self.require(columns, wanted_by="reading")
        pieces = (
            (batch.values, batch.weights)
            for fragment in self.fragments
            for batch in fragment.read(columns, size)
        )
        return repack(
            ((list(values), weights) for values, weights in pieces),
            total=self.n_events,
            n_columns=len(columns),
            batch_rows=size,
        )

    def column(self, name: str) -> Floats:
        """All values of one column: float64, shape (n_events,), in this process."""
        values = np.empty(self.n_events)
        for batch in self.batches([name]):
            values[batch.start : batch.start + len(batch.weights)] = batch.values[0]
        return values

    def weights(self) -> Floats:
        """All event weights: float64, shape (n_events,), in this process."""
        weights = np.empty(self.n_events)
        for batch in self.batches([]):
            weights[batch.start : batch.start + len(batch.weights)] = batch.weights
        return weights

    def sum_weights(self) -> float:
        """Sum of the event weights, correctly rounded, so independent of how the rows lie.

        The number of events if there are no weights. Read once, then remembered.
        """
        return self._sum_weights

    @cached_property
    def _sum_weights(self) -> float:
        if not self.schema.has_weight:
            return float(self.n_events)
        batches = self.batches([])
        try:
            return math.fsum(chain.from_iterable(batch.weights.tolist() for batch in batches))
        except OverflowError as error:
            raise DataError(
                f"the sum of the weights of {self.source} exceeds the largest float64; scale the "
                "weights down"
            ) from error

    def with_weights(self, weights: ArrayLike) -> Dataset:
        """The same events with other weights.

        Parameters
        ----------
        weights
            Shape (n_events,), finite, in the order of the events; copied.

        Raises
        ------
        DataError
            Wrong length, shape or type, or a weight that is not finite.
        """
        array = checked_weights(weights, what="weights", column=ASSIGNED_WEIGHT)
        if len(array) != self.n_events:
            raise DataError(
                f"{len(array)} weights were given for the {self.n_events} events of {self.source}",
                column=ASSIGNED_WEIGHT,
            )
        fragments = []
        for fragment in self.fragments:
            piece = array[fragment.offset : fragment.offset + fragment.rows]
            refuse_non_finite(piece, fragment=fragment, column=ASSIGNED_WEIGHT, first=0)
            fragments.append(Reweighted(fragment.unweighted(), piece))
        schema = replace(self.schema, weight=ASSIGNED_WEIGHT)
        return Dataset(schema, tuple(fragments), self.source)

    def source_bytes_per_event(self, columns: Sequence[str]) -> int:
        """Bytes of one decoded event with these columns: float64 each, and the weight if any."""
        return 8 * (len(columns) + self.schema.has_weight)

    @cached_property
    def _offsets(self) -> list[int]:
        return [fragment.offset for fragment in self.fragments]

    def row_label(self, event: int) -> str:
        """Where an event lies, for error messages.

        ``event 12034 (row 34 of run2.parquet, row group 1)``: the index in the data set, then
        the row of the file. DataError if there is no such event.
        """
        index = operator.index(event)
        if not 0 <= index < self.n_events:
            raise DataError(f"there is no event {index}; {self.source} has {self.n_events} events")
        fragment = self.fragments[bisect_right(self._offsets, index) - 1]
        return event_label(fragment, index - fragment.offset)

    def __repr__(self) -> str:
        n_columns, n_fragments = len(self.schema.columns), len(self.fragments)
        return (
            f"<Dataset of {_count(self.n_events, 'event')} from {self.source}: "
            f"{_count(n_columns, 'column')} ({self.schema.describe()}), "
            f"{_count(n_fragments, 'fragment')}>"
        )

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "laddu_dask.Dataset", self.fingerprint


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
