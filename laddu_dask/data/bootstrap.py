"""A bootstrap replica: the same rows, with weights that count how often each was drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from laddu_dask.data.checks import checked_cut, digest, refuse_non_finite
from laddu_dask.data.counting import CountedOnce, Each, files_of, fingerprints_of
from laddu_dask.data.fragment import Batch, Floats, Fragment
from laddu_dask.data.pieces import Consecutive, Piece, read_pieces
from laddu_dask.data.resampling import poisson_counts
from laddu_dask.data.wrapping import SameRows

__all__ = ["REPLICA_WEIGHT", "Replica", "UncountedReplica", "replicas"]

REPLICA_WEIGHT = "weight (bootstrap)"
"""Name of the weights of a replica of events without weights, in schemas and errors."""


@dataclass(frozen=True, eq=False)
class Replica(SameRows):
    """A fragment whose weights are multiplied by Poisson numbers of mean one.

    Parameters
    ----------
    base
        Gives the rows and their weights. What is drawn for a row belongs to its index in the data
        set that the replica was made of, which the offset of the base tells.
    seed
        Chooses the replica.
    column
        Name of the weights in errors.
    """

    base: Fragment
    seed: int
    column: str

    @property
    def fingerprint(self) -> str:
        return digest("replica", self.seed, self.base.offset, self.base.fingerprint)

    def cut(self, start: int, stop: int) -> Replica:
        start, stop = checked_cut(self, start, stop)
        return Replica(self.base.cut(start, stop), self.seed, self.column)

    def unweighted(self) -> Fragment:
        return self.base.unweighted()

    def continues(self, previous: Fragment) -> bool:
        """Whether these rows follow those of `previous` in the same source and the same replica."""
        return (
            isinstance(previous, Replica)
            and previous.seed == self.seed
            and previous.offset + previous.rows == self.offset
            and isinstance(self.base, Consecutive)
            and self.base.continues(previous.base)
        )

    def read_run(
        self, run: Sequence[Fragment], columns: Sequence[str], batch_rows: int
    ) -> Iterator[Piece]:
        """See `laddu_dask.data.pieces.Consecutive`."""
        own = [fragment for fragment in run if isinstance(fragment, Replica)]
        first = done = 0
        for piece in read_pieces([fragment.base for fragment in own], columns, batch_rows):
            start = 0
            while start < piece.rows:
                while done - first == own[0].rows:
                    first = done
                    del own[0]
                stop = min(start + own[0].rows - (done - first), piece.rows)
                part = piece.cut(start, stop)
                yield part._replace(weights=own[0]._drawn(part.weights, done - first, part.rows))
                done += part.rows
                start = stop

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        for batch in self.base.read(columns, batch_rows):
            count = len(batch.weights)
            yield batch._replace(weights=self._drawn(batch.weights, batch.start, count))

    def _drawn(self, weights: Floats | None, first: int, count: int) -> Floats:
        """Weights of the rows [first, first + count) in the replica."""
        start = self.offset + first
        drawn = poisson_counts(self.seed, start, start + count)
        if weights is not None:
            with np.errstate(over="ignore"):
                drawn *= weights
            refuse_non_finite(drawn, fragment=self, column=self.column, first=first)
        return drawn


@dataclass(frozen=True, eq=False)
class UncountedReplica:
    """A replica of rows that have not been counted; see `laddu_dask.data.counting.Uncounted`."""

    base: CountedOnce
    seed: int
    column: str

    @property
    def files(self) -> tuple[str, ...]:
        return files_of(self.base)

    @property
    def fingerprint(self) -> str:
        return digest("uncounted replica", self.seed, *fingerprints_of(self.base))

    def count(self, each: Each) -> tuple[Replica, ...]:
        return replicas(self.base.fragments(each), self.seed, self.column)


def replicas(bases: Sequence[Fragment], seed: int, column: str) -> tuple[Replica, ...]:
    """The fragments of a replica."""
    return tuple(Replica(base, seed, column) for base in bases)
