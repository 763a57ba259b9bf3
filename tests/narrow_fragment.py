"""A source that is short of memory; in a file of its own, so that workers can import it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from laddu_dask.data import Batch
from laddu_dask.errors import DataError


@dataclass(frozen=True)
class Narrow:
    """A fragment whose decoder has memory for so many rows at a time and no more."""

    inner: Any
    most: int
    wrapped: bool = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def cut(self, start: int, stop: int) -> Narrow:
        return replace(self, inner=self.inner.cut(start, stop))

    def unweighted(self) -> Narrow:
        return replace(self, inner=self.inner.unweighted())

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        if batch_rows > self.most and columns:
            error = MemoryError("Unable to allocate 3.1 GiB")
            if self.wrapped:
                raise DataError("memory is exhausted, or the file is damaged") from error
            raise error
        yield from self.inner.read(columns, batch_rows)
