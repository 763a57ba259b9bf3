"""A fragment whose weights come from an array instead of its source."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from laddu_dask.data.checks import checked_cut, digest
from laddu_dask.data.fragment import Batch, Floats, Fragment
from laddu_dask.data.pieces import Consecutive, Piece, read_pieces
from laddu_dask.data.wrapping import SameRows

__all__ = ["ASSIGNED_WEIGHT", "Reweighted"]

ASSIGNED_WEIGHT = "weight (assigned)"
"""Name under which weights that were given as an array appear in schemas and errors."""


@dataclass(frozen=True, eq=False)
class Reweighted(SameRows):
    """A fragment with other weights.

    Parameters
    ----------
    base
        Unweighted fragment that gives the rows.
    weights
        float64, shape (base.rows,), finite.
    """

    base: Fragment
    weights: Floats

    @property
    def fingerprint(self) -> str:
        return digest("reweighted", self.base.fingerprint, np.ascontiguousarray(self.weights))

    def cut(self, start: int, stop: int) -> Reweighted:
        start, stop = checked_cut(self, start, stop)
        return Reweighted(self.base.cut(start, stop), self.weights[start:stop])

    def unweighted(self) -> Fragment:
        return self.base

    def continues(self, previous: Fragment) -> bool:
        """Whether these rows follow those of `previous` in the same source."""
        return (
            isinstance(previous, Reweighted)
            and isinstance(self.base, Consecutive)
            and self.base.continues(previous.base)
        )

    def read_run(
        self, run: Sequence[Fragment], columns: Sequence[str], batch_rows: int
    ) -> Iterator[Piece]:
        """See `laddu_dask.data.pieces.Consecutive`."""
        own = [fragment for fragment in run if isinstance(fragment, Reweighted)]
        waiting = deque(fragment.weights for fragment in own)
        for piece in read_pieces([fragment.base for fragment in own], columns, batch_rows):
            start = 0
            while start < piece.rows:
                weights = waiting.popleft()
                stop = min(start + len(weights), piece.rows)
                yield piece.cut(start, stop)._replace(weights=weights[: stop - start])
                if stop - start < len(weights):
                    waiting.appendleft(weights[stop - start :])
                start = stop

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        for batch in self.base.read(columns, batch_rows):
            stop = batch.start + len(batch.weights)
            yield batch._replace(weights=self.weights[batch.start : stop].copy())
