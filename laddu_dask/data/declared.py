"""What a user says about the batches that a function will give, checked when it is said."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from laddu_dask.data.schema import Schema, p4_columns
from laddu_dask.errors import DataError

__all__ = [
    "checked_counts",
    "checked_factory",
    "checked_identity",
    "checked_pieces",
    "declared_schema",
]

Factory = TypeVar("Factory", bound=Callable[..., Any])


def declared_schema(columns: Sequence[str], p4s: Sequence[str], weight: str | None) -> Schema:
    """The schema of batches with these scalars, four-momenta and weight.

    Raises
    ------
    DataError
        No column at all, a name that is empty or is used twice, or one string instead of several.
    """
    for what, names in (("columns", columns), ("p4s", p4s)):
        if isinstance(names, str):
            raise DataError(f"{what}={names!r} is one string; write {what}=[{names!r}]")
    if not all([*columns, *p4s]):
        raise DataError("a column has an empty name; expressions could not refer to it")
    names = (*(part for p4 in p4s for part in p4_columns(p4)), *columns)
    schema = Schema(tuple(names), weight)
    if not names and weight is None:
        raise DataError("batches need at least one column; give columns=, p4s= or weight=")
    return schema


def checked_factory(factory: Factory, arguments: str) -> Factory:
    """The function itself; DataError for anything that cannot be called."""
    if not callable(factory):
        raise DataError(
            f"a {type(factory).__name__} cannot be called with {arguments}; events are read many "
            "times, so give a function that makes batches, not the batches themselves"
        )
    return factory


def checked_counts(given: int | Sequence[int]) -> tuple[int, ...]:
    """Numbers of rows or pieces as Python ints; DataError for anything else or below zero."""
    items = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    try:
        counts = tuple(map(operator.index, items))
    except TypeError:
        raise DataError(f"{given!r} is no number of rows or pieces, nor a list of such") from None
    if any(count < 0 for count in counts):
        raise DataError(f"a number of rows or pieces is negative: {given!r}")
    return counts


def checked_pieces(given: int | Sequence[int] | None) -> int:
    """The number of pieces of unknown lengths; DataError if it is not told or below one."""
    if given is None:
        raise DataError(
            "with rows=None the number of pieces must be told: pieces=1 if the function is to be "
            "called once, with 0"
        )
    (pieces,) = checked_counts(given) if not isinstance(given, Sequence) else (0,)
    if not pieces:
        raise DataError(f"pieces={given!r} is no number of pieces; give at least pieces=1")
    return pieces


def checked_identity(given: object) -> str:
    """The text that tells contents apart; DataError for anything else and for none."""
    if not isinstance(given, str) or not given.strip():
        raise DataError(
            f"identity={given!r} does not tell contents apart; give a text that changes whenever "
            "the events change, such as 'run 3, second pass' or the seed of a generator"
        )
    return given
