"""A data set that counts how often its source is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from laddu_dask import Dataset
from laddu_dask.data import ArrayFragment, Batch


class _Counting(ArrayFragment):
    reads: list[int]

    @classmethod
    def of(cls, fragment: ArrayFragment, reads: list[int]) -> _Counting:
        made = cls(fragment.columns, fragment.values, fragment.weights, fragment.offset)
        made.__dict__["reads"] = reads  # the fields of a fragment are frozen
        return made

    def cut(self, start: int, stop: int) -> _Counting:
        return _Counting.of(super().cut(start, stop), self.reads)

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        self.reads.append(1)
        return super().read(columns, batch_rows)


def counting(dataset: Dataset) -> tuple[Dataset, list[int]]:
    """The same events, and a list that grows by one with every reading of a piece of them."""
    (fragment,) = dataset.fragments
    assert isinstance(fragment, ArrayFragment)
    reads: list[int] = []
    return Dataset(dataset.schema, (_Counting.of(fragment, reads),), "a counting source"), reads
