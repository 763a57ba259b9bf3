"""Event data that already lie in memory as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from laddu_dask.data.checks import checked_batch_rows, checked_cut, digest, refuse_non_finite
from laddu_dask.data.fragment import Batch, Floats
from laddu_dask.data.numbers import checked_numbers, checked_weights, wrong_shape
from laddu_dask.data.schema import Schema, p4_columns
from laddu_dask.errors import DataError

__all__ = ["ARRAY_FRAGMENT_ROWS", "ArrayFragment", "array_fragments"]

ARRAY_FRAGMENT_ROWS = 65536
"""Arrays are offered in fragments of at most this many rows, so that partitions can be cut."""

_P4_SHAPE = "(n, 4), columns E, px, py, pz"


@dataclass(frozen=True, eq=False)
class ArrayFragment:
    """Consecutive rows of arrays; pickling ships these rows and no others.

    Parameters
    ----------
    columns
        Names of the rows of `values`.
    values
        float64, shape (n_columns, rows); a read-only view.
    weights
        float64, shape (rows,), finite; None for unit weights.
    offset
        Index in the whole data set, and in the arrays, of the first row.
    """

    columns: tuple[str, ...]
    values: Floats
    weights: Floats | None
    offset: int = 0
    in_memory: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        return int(self.values.shape[1])

    def locate(self, row: int) -> int:
        return self.offset + row

    @property
    def label(self) -> str:
        return "the arrays"

    @property
    def file(self) -> None:
        return None

    @property
    def stamp(self) -> None:
        return None

    @cached_property
    def fingerprint(self) -> str:
        weights = None if self.weights is None else np.ascontiguousarray(self.weights)
        return digest("arrays", *self.columns, np.ascontiguousarray(self.values), weights)

    def cut(self, start: int, stop: int) -> ArrayFragment:
        start, stop = checked_cut(self, start, stop)
        return ArrayFragment(
            self.columns,
            self.values[:, start:stop],
            None if self.weights is None else self.weights[start:stop],
            self.offset + start,
        )

    def unweighted(self) -> ArrayFragment:
        return replace(self, weights=None)

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        size = checked_batch_rows(batch_rows)
        Schema(self.columns).require(columns, wanted_by="reading", source=self.label)
        rows = [self.columns.index(name) for name in columns]
        for start in range(0, self.rows, size):
            stop = min(start + size, self.rows)
            values = np.empty((len(rows), stop - start))
            for target, row in zip(values, rows, strict=True):
                target[:] = self.values[row, start:stop]
            weights = (
                np.ones(stop - start) if self.weights is None else self.weights[start:stop].copy()
            )
            yield Batch(start, values, weights)


def array_fragments(
    p4s: Mapping[str, ArrayLike] | None,
    scalars: Mapping[str, ArrayLike] | None,
    weights: ArrayLike | None,
) -> tuple[Schema, tuple[ArrayFragment, ...]]:
    """Copy arrays into read-only float64 columns and cut them into fragments.

    Parameters
    ----------
    p4s
        Name to array of shape (n, 4), columns in the order (E, px, py, pz).
    scalars
        Name to array of shape (n,).
    weights
        Shape (n,), finite; None for unit weights.

    Raises
    ------
    DataError
        No arrays at all, a wrong shape, length or type, a name used twice, an integer that
        float64 cannot hold, or a weight that is not finite.
    """
    for name in (*(p4s or {}), *(scalars or {})):
        if not name:
            raise DataError("an array has an empty name; expressions could not refer to it")
    columns: list[tuple[str, NDArray[Any]]] = []
    lengths: dict[str, int] = {}
    for name, given in (p4s or {}).items():
        array = checked_numbers(given, f"p4s[{name!r}]", name, shape=_P4_SHAPE)
        if array.ndim != 2 or array.shape[1] != 4:
            hint = f"; one number per event goes to scalars={{{name!r}: ...}}"
            raise wrong_shape(
                f"p4s[{name!r}]", name, array, _P4_SHAPE + (hint if array.ndim == 1 else "")
            )
        columns.extend(zip(p4_columns(name), array.T, strict=True))
        lengths[f"p4s[{name!r}]"] = len(array)
    for name, given in (scalars or {}).items():
        array = checked_numbers(given, f"scalars[{name!r}]", name, shape="(n,)")
        if array.ndim != 1:
            raise wrong_shape(f"scalars[{name!r}]", name, array, "(n,)")
        columns.append((name, array))
        lengths[f"scalars[{name!r}]"] = len(array)
    event_weights = None
    if weights is not None:
        event_weights = checked_weights(weights, what="weights", column="weight")
        lengths["weights"] = len(event_weights)
    if not lengths:
        raise DataError("a data set needs at least one array; give p4s=, scalars= or weights=")
    n_events = next(iter(lengths.values()))
    if any(length != n_events for length in lengths.values()):
        table = ", ".join(f"{what} has {length}" for what, length in lengths.items())
        raise DataError(f"all arrays must have one entry per event, but {table}", lengths=lengths)

    names = tuple(name for name, _ in columns)
    schema = Schema(names, weight=None if event_weights is None else "weight")
    values = np.empty((len(columns), n_events))
    for row, (_, array) in zip(values, columns, strict=True):
        row[:] = array
    values.setflags(write=False)
    whole = ArrayFragment(names, values, event_weights)
    if event_weights is not None:
        refuse_non_finite(event_weights, fragment=whole, column="weight", first=0)
    return schema, tuple(
        whole.cut(start, min(start + ARRAY_FRAGMENT_ROWS, n_events))
        for start in range(0, n_events, ARRAY_FRAGMENT_ROWS)
    )
