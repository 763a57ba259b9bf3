"""What a selection asks of events, without saying how it is computed.

This room knows nothing of expressions. A condition on expressions is made by the room that can
compile them, which registers itself with `as_condition`.
"""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from laddu_dask.data.fragment import Floats
from laddu_dask.errors import DataError

__all__ = ["Condition", "Verdict", "as_condition"]


class Verdict(NamedTuple):
    """What is true of some events.

    Parameters
    ----------
    holds
        Shape (n,): whether the event belongs to the selection.
    unknown
        Shape (n,): whether a value that matters is NaN. Not true where `holds` is.
    """

    holds: NDArray[np.bool_]
    unknown: NDArray[np.bool_]


@runtime_checkable
class Condition(Protocol):
    """A picklable yes or no to each event by its columns alone.

    Attributes
    ----------
    columns
        Columns that it reads.
    text
        How a person writes it.
    fingerprint
        Identity; equal fingerprints say yes to the same events.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def text(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...

    def test(self, values: Floats) -> Verdict:
        """Judge events; `values` has shape (n_columns, n).

        The verdict on an event depends neither on the other events nor on the machine.
        """
        ...


@singledispatch
def as_condition(given: object) -> Condition:
    """The condition that an object stands for.

    Raises
    ------
    DataError
        It stands for none.
    """
    if isinstance(given, Condition):
        return given
    raise DataError(
        f"a selection needs a condition on event columns, such as ld.scalar('mass') < 1.2, not "
        f"{given!r}"
    )
