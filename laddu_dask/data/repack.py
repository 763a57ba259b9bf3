"""Turning pieces of any size into batches of one size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laddu_dask.data.fragment import Batch, Floats
from laddu_dask.errors import DataError

__all__ = ["repack"]


def repack(
    pieces: Iterable[tuple[Sequence[NDArray[Any]], Floats]],
    *,
    total: int,
    n_columns: int,
    batch_rows: int,
) -> Iterator[Batch]:
    """Coalesce and split pieces into batches of `batch_rows`, widening to float64.

    Parameters
    ----------
    pieces
        Pairs (columns, weights); columns are `n_columns` arrays of shape (n,).
    total
        Rows in all pieces together. No buffer is ever larger than that.

    Notes
    -----
    If the pieces end in a DataError, the rows received before it are delivered first.
    """

    def room(start: int) -> tuple[Floats, Floats]:
        size = min(batch_rows, total - start)
        return np.empty((n_columns, size)), np.empty(size)

    start = filled = 0
    values, weights = room(0)
    try:
        for columns, piece_weights in pieces:
            taken = 0
            while taken < len(piece_weights):
                step = min(len(piece_weights) - taken, len(weights) - filled)
                for row, column in zip(values, columns, strict=True):
                    row[filled : filled + step] = column[taken : taken + step]
                weights[filled : filled + step] = piece_weights[taken : taken + step]
                filled += step
                taken += step
                if filled == len(weights):
                    yield Batch(start, values, weights)
                    start, filled = start + filled, 0
                    values, weights = room(start)
    except DataError:
        if filled:
            yield Batch(start, values[:, :filled].copy(), weights[:filled].copy())
        raise
