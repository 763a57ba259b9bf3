"""A random part of the rows, as a condition on their numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laddu_dask.data.checks import digest
from laddu_dask.data.conditions import Verdict
from laddu_dask.data.fragment import Floats
from laddu_dask.data.judged import ROW
from laddu_dask.data.resampling import keyed_uniforms

__all__ = ["InSample"]


@dataclass(frozen=True)
class InSample:
    """Whether the number drawn for a row lies below a fraction.

    A `laddu_dask.data.Condition`. A row belongs to every larger sample of the same seed as well.
    """

    fraction: float
    seed: int

    @property
    def columns(self) -> tuple[str, ...]:
        return (ROW,)

    @property
    def text(self) -> str:
        return f"in a sample of {self.fraction!r} with seed {self.seed}"

    @property
    def fingerprint(self) -> str:
        return digest("sample", self.text)

    def test(self, values: Floats) -> Verdict:
        """See `laddu_dask.data.Condition`."""
        (rows,) = values
        kept = keyed_uniforms(self.seed, rows.astype(np.uint64)) < self.fraction
        return Verdict(kept, np.zeros(len(kept), dtype=bool))
