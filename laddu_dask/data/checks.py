"""Checks that every kind of fragment makes, with their errors, and the identity of contents."""

from __future__ import annotations

import operator
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laddu_dask.data.fragment import Floats, Fragment
from laddu_dask.errors import DataError

__all__ = [
    "checked_batch_rows",
    "checked_cut",
    "digest",
    "event_label",
    "refuse_non_finite",
    "widen_integers",
]


def checked_cut(fragment: Fragment, start: int, stop: int) -> tuple[int, int]:
    """The bounds of a cut as Python ints; slices would clip silently, this refuses."""
    first, last = operator.index(start), operator.index(stop)
    if not 0 <= first <= last <= fragment.rows:
        raise DataError(
            f"cannot cut rows [{first}, {last}) out of the {fragment.rows} rows of "
            f"{fragment.label}; the bounds must obey 0 <= start <= stop <= {fragment.rows}"
        )
    return first, last


def checked_batch_rows(batch_rows: int) -> int:
    """The size of a batch as a Python int of at least one; DataError otherwise."""
    rows = operator.index(batch_rows)
    if rows < 1:
        raise DataError(f"batch_rows is {rows}; a batch holds at least one row")
    return rows


def event_label(fragment: Fragment, row: int) -> str:
    """Where row `row` of a fragment is, for an error message."""
    return f"event {fragment.offset + row} (row {fragment.locate(row)} of {fragment.label})"


def refuse_non_finite(weights: Floats, *, fragment: Fragment, column: str, first: int) -> None:
    """DataError if a weight is NaN or infinite; `first` is the row of weights[0] in `fragment`."""
    finite = np.isfinite(weights)
    if finite.all():
        return
    position = int(np.argmin(finite))
    row = first + position
    value = float(weights[position])
    raise DataError(
        f"the weight of {event_label(fragment, row)} is {value}, column {column!r}"
        + (f", file {fragment.file}" if fragment.file else "")
        + "; weights must be finite. Repair or drop the event"
        + (", or read with weight=None to give every event the weight one" if fragment.file else "")
        + ".",
        file=fragment.file,
        column=column,
        event=fragment.offset + row,
        row=fragment.locate(row),
        value=value,
    )


def widen_integers(values: NDArray[Any]) -> Floats:
    """Integers as float64, exactly.

    Raises
    ------
    OverflowError
        If an integer beyond 2**53 in size would be rounded; its argument is the position.
    """
    limit = 2**53
    if values.dtype.itemsize == 8:
        inside = values <= limit
        if values.dtype.kind == "i":
            inside &= values >= -limit
        if not inside.all():
            raise OverflowError(int(np.argmin(inside)))
    return values.astype(np.float64)


def digest(*parts: str | int | NDArray[Any] | None) -> str:
    """Hexadecimal identity of a sequence of words and contiguous arrays."""
    state = blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            state.update(f"array {part.dtype.str} {part.shape}\0".encode())
            state.update(part.reshape(-1).view(np.uint8).data)
        else:
            state.update(f"{type(part).__name__} {part}\0".encode())
    return state.hexdigest()
