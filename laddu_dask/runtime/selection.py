"""Conditions on expressions of event columns, as selections of data sets ask for them.

The room of data must not know expressions, compiler or kernels, so what it selects by is a protocol
(`laddu_dask.data.Condition`), and its `as_condition` is open: loading this file teaches it what a
`Predicate` is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from laddu_dask.compiler import ConditionProgram, compile_condition
from laddu_dask.data import Verdict, as_condition
from laddu_dask.data.checks import digest
from laddu_dask.data.fragment import Floats
from laddu_dask.errors import DataError, ExpressionError
from laddu_dask.expr import Predicate
from laddu_dask.expr.text import equation
from laddu_dask.kernels import column_layout, get_backend, padded

#: Which events a data set has is a property of the data set, not of how a likelihood is evaluated:
#: the compiled kernels decide for every backend, since their functions have the same bits
#: everywhere, and those of NumPy do not.
BACKEND = "cpu"
_NO_PARAMETERS: Floats = np.zeros(0)


@dataclass(frozen=True)
class EventCondition:
    """A compiled condition; see `laddu_dask.data.Condition`.

    Attributes
    ----------
    text
        The expression.
    compiled
        What judges events.
    """

    text: str
    compiled: ConditionProgram

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        return self.compiled.columns

    @cached_property
    def fingerprint(self) -> str:
        """Identity of the program and its columns."""
        return digest("condition", *self.columns, self.compiled.program.digest)

    def test(self, values: Floats) -> Verdict:
        """Judge events; `values` has shape (n_columns, n)."""
        count = values.shape[1]
        if not count:
            return Verdict(np.zeros(0, dtype=bool), np.zeros(0, dtype=bool))
        width = padded(count)
        source = column_layout.aligned_empty((len(self.columns), width))
        source[:, :count], source[:, count:] = values, values[:, -1:]
        answers = column_layout.aligned_empty((2, width))
        kernel = get_backend(BACKEND).compile(self.compiled.program, "map")
        kernel.map(source, _NO_PARAMETERS, answers)
        holds, fails = answers[:, :count] != 0
        return Verdict(holds, ~(holds | fails))


@as_condition.register
def _of_predicate(given: Predicate) -> EventCondition:
    try:
        return EventCondition(equation(given.node), compile_condition(given))
    except ExpressionError as error:
        raise DataError(f"no selection by {given!r}: {error}") from error
