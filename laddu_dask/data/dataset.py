"""The data set that users hold: a schema and fragments, read when somebody asks."""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from laddu_dask.data.arrays import array_fragments
from laddu_dask.data.batches import BatchSource, UncountedBatches, piece_fragments
from laddu_dask.data.bins import column_bins
from laddu_dask.data.bootstrap import REPLICA_WEIGHT, UncountedReplica, replicas
from laddu_dask.data.checks import checked_batch_rows, digest, event_label, refuse_non_finite
from laddu_dask.data.column_report import ColumnReport
from laddu_dask.data.conditions import as_condition
from laddu_dask.data.counting import CountedOnce, Each, files_of, fingerprints_of, on_threads
from laddu_dask.data.declared import (
    checked_counts,
    checked_factory,
    checked_identity,
    checked_pieces,
    declared_schema,
)
from laddu_dask.data.fragment import Batch, Floats, Fragment
from laddu_dask.data.numbers import checked_weights
from laddu_dask.data.pieces import read_pieces
from laddu_dask.data.ranges import RangeSource, range_fragments
from laddu_dask.data.repack import repack
from laddu_dask.data.resampling import checked_fraction, checked_seed
from laddu_dask.data.reweighted import ASSIGNED_WEIGHT, Reweighted
from laddu_dask.data.sample import InSample
from laddu_dask.data.schema import Schema
from laddu_dask.data.selected import Selection, decoded_columns
from laddu_dask.errors import DataError

__all__ = ["DEFAULT_BATCH_ROWS", "Dataset"]

DEFAULT_BATCH_ROWS = 65536


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Events with named columns and weights; immutable, picklable, read lazily and repeatably.

    Users get one from `read_parquet`, `Dataset.from_arrays`, `Dataset.from_batches` or
    `Dataset.from_ranges`.

    Parameters
    ----------
    schema
        What the columns are.
    parts
        The rows in order; their offsets must follow one another from zero. Or rows that have to be
        counted before that can be said.
    source
        Where the events come from, in words.
    report
        What became of every column of the files: which are read, under what name, converted or
        left out. Print it for a table. None if the events come from no file.
    """

    schema: Schema
    parts: tuple[Fragment, ...] | CountedOnce
    source: str
    report: ColumnReport | None = None

    def __post_init__(self) -> None:
        if isinstance(self.parts, CountedOnce):
            return
        expected = 0
        for fragment in self.parts:
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

    @classmethod
    def from_batches(
        cls,
        factory: Callable[[int], Any],
        columns: Sequence[str] = (),
        *,
        p4s: Sequence[str] = (),
        weight: str | None = None,
        rows: int | Sequence[int] | None,
        pieces: int | None = None,
        identity: str,
        name: str = "generated events",
    ) -> Dataset:
        """Data set of events that a function gives piece by piece.

        Parameters
        ----------
        factory
            Called with the number of a piece, 0, 1, ...: gives a batch, or something to go through
            for batches, such as a generator. A batch is a mapping of column names to arrays of
            shape (n,), with shape (n, 4) in the order (E, px, py, pz) for a four-momentum, or a
            pyarrow Table or RecordBatch. It is called again in every pass, in any thread or
            process and in any order, and must give the same rows each time.
        columns
            Columns of every batch that are scalars, or single components.
        p4s
            Four-momenta of every batch; the columns of `k` are `k_e`, `k_px`, `k_py`, `k_pz`.
        weight
            Column of event weights; None gives every event the weight one.
        rows
            Rows of each piece, or of the only one; a piece of none is never asked for, and an empty
            list means no events. None if they are not known: then every piece is gone through once
            more to count them, when they are first needed.
        pieces
            Number of pieces, needed if `rows` is None. A piece is read from its beginning by
            whoever needs a part of it, so that many short pieces are better than a long one.
        identity
            Text that changes whenever the events change: part of the fingerprint.
        name
            What to call the source in messages.

        Raises
        ------
        DataError
            Nothing to call, no column, a name used twice, no number of pieces, no identity. While
            reading: too few or too many rows, missing or undeclared columns, values that are no
            numbers, a weight that is not finite.
        """
        source = BatchSource(
            checked_factory(factory, "the number of a piece"),
            declared_schema(columns, p4s, weight),
            checked_identity(identity),
            name,
        )
        counts = None if rows is None else checked_counts(rows)
        if counts is None:
            uncounted = UncountedBatches(source, checked_pieces(pieces))
            return cls(source.schema, CountedOnce(uncounted), name)
        if pieces not in (None, len(counts)):
            raise DataError(f"rows= is about {len(counts)} pieces, pieces= says {pieces}")
        return cls(source.schema, piece_fragments(source, counts), name)

    @classmethod
    def from_ranges(
        cls,
        factory: Callable[[int, int], Any],
        columns: Sequence[str] = (),
        *,
        p4s: Sequence[str] = (),
        weight: str | None = None,
        rows: int,
        identity: str,
        name: str = "generated events",
    ) -> Dataset:
        """Data set of events that a function gives for any range of rows.

        So a sample of any size needs neither a file nor memory: what is wanted of it is made where
        it is wanted. `laddu_dask.data.row_uniforms` gives random numbers that belong to a row.

        Parameters
        ----------
        factory
            Called with `start` and `stop`: gives one batch of the rows [start, stop). A row must be
            the same in whatever range it is asked for.
        columns, p4s, weight, identity, name
            As for `from_batches`.
        rows
            Number of rows.

        Raises
        ------
        DataError
            As `from_batches` does.
        """
        source = RangeSource(
            checked_factory(factory, "the first row and the row behind the last"),
            declared_schema(columns, p4s, weight),
            checked_identity(identity),
            name,
        )
        (count,) = checked_counts(rows)
        return cls(source.schema, range_fragments(source, count), name)

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The rows in order. Counts them, on threads of this process, if that is still to do."""
        parts = self.parts
        return parts.fragments(on_threads) if isinstance(parts, CountedOnce) else parts

    @property
    def is_counted(self) -> bool:
        """Whether the number of events is known."""
        return not isinstance(self.parts, CountedOnce) or self.parts.found is not None

    def count(self, each: Each = on_threads) -> int:
        """Number of events; `each` does the jobs if they have to be counted first."""
        if isinstance(self.parts, CountedOnce):
            self.parts.fragments(each)
        return self.n_events

    @cached_property
    def n_events(self) -> int:
        return sum(fragment.rows for fragment in self.fragments)

    def select(self, condition: object) -> Dataset:
        """The events for which a condition holds; nothing is read now.

        How many they are is counted once, when it is first needed: the columns of the condition are
        read then, and in every pass beside those of the model. What is counted is remembered by
        this object and its copies.

        Parameters
        ----------
        condition
            A comparison of expressions of event columns, or several with ``&``, ``|``, ``~``:
            ``ld.scalar("mass") < 1.2``. Parameters must be fixed.

        Returns
        -------
        Dataset
            Events are numbered anew; errors also name their row in the file.

        Raises
        ------
        DataError
            No condition, or one that reads a column that does not exist. While reading: an event
            for which it is NaN whether the condition holds.
        """
        test = as_condition(condition)
        self.require(test.columns, wanted_by=f"the selection {test.text}")
        selection = Selection(self.parts, (test,))
        if isinstance(self.parts, CountedOnce) and isinstance(self.parts.uncounted, Selection):
            # One after the other over the same rows: one pass counts them all.
            before = self.parts.uncounted
            selection = Selection(before.base, (*before.conditions, test))
        source = f"{self.source} where {test.text}"
        return Dataset(self.schema, CountedOnce(selection), source, self.report)

    def bin_by(self, column: str, edges: Sequence[float]) -> tuple[Dataset, ...]:
        """The events of each bin of a column, as `select` gives them; nothing is read now.

        Parameters
        ----------
        column
            Physical column name.
        edges
            At least two, each above the one before. A value on an edge belongs to the bin above
            it, one on the last edge to the last bin; what lies outside all edges is in none.

        Raises
        ------
        DataError
            Edges that do not increase, or no such column. While reading: a value that is NaN.
        """
        return tuple(self.select(item) for item in column_bins(column, edges))

    def subsample(self, fraction: float, seed: int) -> Dataset:
        """A random part of the events; nothing is read now.

        Whether an event belongs to it depends on the seed and on its index in this data set alone,
        so the sample is the same however events are cut; and one of a smaller fraction with the
        same seed is a part of it.

        Parameters
        ----------
        fraction
            The probability of each event, from 0 to 1.
        seed
            An integer from 0 to 2**64 - 1.

        Raises
        ------
        DataError
            Another fraction or seed.
        """
        sample = InSample(checked_fraction(fraction), checked_seed(seed))
        source = f"{self.source}, {sample.text}"
        parts = CountedOnce(Selection(self.parts, (sample,)))
        return Dataset(self.schema, parts, source, self.report)

    def bootstrap(self, seed: int) -> Dataset:
        """A replica whose weights count how often each event was drawn; nothing is read now.

        Every weight is multiplied by a Poisson number of mean one, which depends on the seed and on
        the index of the event in this data set alone: the replica is the same however events are
        cut. Events that were not drawn stay, with weight zero, so that indices are those of before.

        Parameters
        ----------
        seed
            An integer from 0 to 2**64 - 1.

        Raises
        ------
        DataError
            Another seed. While reading: a weight that exceeds the largest float64 in the replica.

        Notes
        -----
        The Poisson bootstrap (N. Chamandy et al., "Estimating uncertainty for massive data
        streams", 2012). The number of events fluctuates, as in an extended likelihood.
        """
        chosen, column = checked_seed(seed), self.schema.weight or REPLICA_WEIGHT
        parts: tuple[Fragment, ...] | CountedOnce
        if isinstance(self.parts, CountedOnce):
            parts = CountedOnce(UncountedReplica(self.parts, chosen, column))
        else:
            parts = replicas(self.parts, chosen, column)
        schema = replace(self.schema, weight=column)
        return Dataset(schema, parts, f"{self.source}, replica {chosen}", self.report)

    @cached_property
    def fingerprint(self) -> str:
        """Identity of the content: equal for the same files in the same state, or equal arrays."""
        schema = self.schema
        return digest(
            *("dataset", *schema.columns, "weight", schema.weight),
            *fingerprints_of(self.parts),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """Absolute paths of the files that the events lie in, each once, in order."""
        return files_of(self.parts)

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
        pieces = read_pieces(self.fragments, columns, size)
        return repack(
            ((piece.columns, piece.every_weight()) for piece in pieces),
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
        return Dataset(schema, tuple(fragments), self.source, self.report)

    def source_bytes_per_event(self, columns: Sequence[str]) -> int:
        """Bytes of one decoded event with these columns: float64 each, and the weight if any."""
        return 8 * (self.decoded_columns(columns) + self.schema.has_weight)

    def decoded_columns(self, columns: Sequence[str]) -> int:
        """How many columns are decoded to read these: a selection needs its own in addition."""
        return max((len(decoded_columns(part, columns)) for part in self.fragments[:1]), default=0)

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
        events, pieces = "not yet counted events", ""
        if self.is_counted:
            events = _count(self.n_events, "event")
            pieces = f", {_count(len(self.fragments), 'fragment')}"
        columns = f"{_count(len(self.schema.columns), 'column')} ({self.schema.describe()})"
        return f"<Dataset of {events} from {self.source}: {columns}{pieces}>"

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "laddu_dask.Dataset", self.fingerprint


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
