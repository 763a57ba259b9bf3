"""Rows of a fragment that were read where they lie, for work that is done elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from laddu_dask.data.arrays import ArrayFragment
from laddu_dask.data.checks import checked_cut
from laddu_dask.data.fragment import Batch, Fragment
from laddu_dask.data.wrapping import SameRows

__all__ = ["FetchedFragment", "fetched"]


@dataclass(frozen=True, eq=False)
class FetchedFragment(SameRows):
    """A fragment with its rows, of which only some columns are there.

    Parameters
    ----------
    base
        Where the rows come from, which is what messages are about.
    held
        The rows.
    """

    base: Fragment
    held: ArrayFragment

    @property
    def stamp(self) -> None:
        """No file is needed any more."""
        return None

    @property
    def in_memory(self) -> bool:
        return True

    @property
    def fingerprint(self) -> str:
        return self.base.fingerprint

    def cut(self, start: int, stop: int) -> FetchedFragment:
        start, stop = checked_cut(self, start, stop)
        return FetchedFragment(self.base.cut(start, stop), self.held.cut(start, stop))

    def unweighted(self) -> FetchedFragment:
        return FetchedFragment(self.base.unweighted(), self.held.unweighted())

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        return self.held.read(columns, batch_rows)


def fetched(fragment: Fragment, columns: Sequence[str]) -> FetchedFragment:
    """Read a fragment here and now, into one piece of memory."""
    values = np.empty((len(columns), fragment.rows))
    weights = np.empty(fragment.rows)
    for batch in fragment.read(columns, max(fragment.rows, 1)):
        stop = batch.start + len(batch.weights)
        values[:, batch.start : stop] = batch.values
        weights[batch.start : stop] = batch.weights
    held = ArrayFragment(tuple(columns), values, weights, fragment.offset)
    return FetchedFragment(fragment, held)
