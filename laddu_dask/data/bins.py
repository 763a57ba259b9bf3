"""Bins of one column as conditions on events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from laddu_dask.data.checks import digest
from laddu_dask.data.conditions import Verdict
from laddu_dask.data.fragment import Floats
from laddu_dask.errors import DataError

__all__ = ["InBin", "column_bins"]


@dataclass(frozen=True)
class InBin:
    """Whether a column lies in [low, high), or in [low, high] if the bin is closed.

    A `laddu_dask.data.Condition`.
    """

    column: str
    low: float
    high: float
    closed: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def text(self) -> str:
        return f"{self.low!r} <= {self.column} {'<=' if self.closed else '<'} {self.high!r}"

    @property
    def fingerprint(self) -> str:
        return digest("bin", self.text)

    def test(self, values: Floats) -> Verdict:
        """See `laddu_dask.data.Condition`."""
        (x,) = values
        below = x <= self.high if self.closed else x < self.high
        return Verdict((x >= self.low) & below, np.isnan(x))


def column_bins(column: str, edges: Sequence[float]) -> tuple[InBin, ...]:
    """The bins between edges; the last one is closed.

    Raises
    ------
    DataError
        Fewer than two edges, or edges that do not increase.
    """
    values = [float(edge) for edge in edges]
    pairs = list(pairwise(values))
    if not pairs or not all(low < high for low, high in pairs):
        raise DataError(
            f"bins of {column} need two edges or more, each above the one before, not {values}",
            column=column,
        )
    return tuple(InBin(column, low, high, high == values[-1]) for low, high in pairs)
