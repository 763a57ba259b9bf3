"""What counts as numbers when a user hands over an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from laddu_dask.data.checks import widen_integers
from laddu_dask.data.fragment import Floats
from laddu_dask.errors import DataError

__all__ = ["checked_numbers", "checked_weights", "wrong_shape"]


def checked_weights(given: ArrayLike, *, what: str, column: str) -> Floats:
    """A read-only float64 copy of shape (n,) of an array of weights."""
    array = checked_numbers(given, what, column, shape="(n,)")
    if array.ndim != 1:
        raise wrong_shape(what, column, array, "(n,)")
    weights = np.array(array, dtype=np.float64)
    weights.setflags(write=False)
    return weights


def checked_numbers(given: ArrayLike, what: str, column: str, *, shape: str) -> NDArray[Any]:
    """An array of floats (at most 64 bits) or of integers made floats; all else is refused."""
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise DataError(
            f"{what} has masked entries; fill them (NaN marks a missing value) or drop the events",
            column=column,
        )
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise DataError(
            f"{what} is not an array of shape {shape}: {error}", column=column
        ) from error
    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        return array
    if array.dtype.kind in "iu":
        try:
            return widen_integers(array.ravel()).reshape(array.shape)
        except OverflowError as error:
            value = array.ravel()[error.args[0]]
            raise DataError(
                f"{what} holds the integer {value}, which float64 would round; "
                "subtract an offset or leave it out",
                column=column,
                value=int(value),
                position=int(error.args[0]),
            ) from error
    raise DataError(
        f"{what} has the type {array.dtype}; real numbers of shape {shape} are needed "
        "(floating point of at most 64 bits, or integers)",
        column=column,
        dtype=str(array.dtype),
    )


def wrong_shape(what: str, column: str, array: NDArray[Any], expected: str) -> DataError:
    """The error for an array of another shape than `expected`."""
    return DataError(
        f"{what} has the shape {array.shape} instead of {expected}",
        column=column,
        shape=array.shape,
    )
