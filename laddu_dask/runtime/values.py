"""Output rows of event programs as the numbers that users get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import Precision
from laddu_dask.errors import EvaluationError

Array = npt.NDArray[np.float64]
Values = npt.NDArray[np.complex128]
#: Makes arrays of the output rows of some events and the index of the first of them.
Finish = Callable[[Array, int], tuple[npt.NDArray[Any], ...]]

#: An imaginary part up to this share of the modulus is rounding, not physics.
REAL_TOLERANCE: dict[Precision, float] = {"f64": 1e-12, "f32": 1e-5}


def complex_rows(re: Array, im: Array) -> Values:
    """Complex numbers of their parts."""
    values = np.empty(re.shape, dtype=np.complex128)
    values.real, values.imag = re, im  # re + 1j*im would turn an infinite part into NaN
    return values


def chained(adjoints: Values, jacobian: Array) -> Values:
    """Adjoints (n_adjoints, events) times Jacobian, shape (events, n_parameters).

    Summed in the order of the frontier, so that an event's gradient does not depend on the others.
    An adjoint of zero says that the event did not take a branch, whose slope may be infinite.
    """
    parts = []
    with np.errstate(all="ignore"):
        for part in (adjoints.real, adjoints.imag):  # a complex product would make inf + NaN i
            total = np.zeros((adjoints.shape[1], jacobian.shape[1]))
            for adjoint, slopes in zip(part, jacobian, strict=True):
                taken = (adjoint != 0)[:, np.newaxis]
                product = np.zeros_like(total)
                total += np.multiply(adjoint[:, np.newaxis], slopes, out=product, where=taken)
            parts.append(total)
    return complex_rows(parts[0], parts[1])


def real_parts(values: Values, precision: Precision, first_event: int = 0) -> Array:
    """Values whose imaginary parts are rounding at most, without these.

    Raises
    ------
    EvaluationError
        Another value; names the event, counted from that of the first value.
    """
    large = np.abs(values.imag) > REAL_TOLERANCE[precision] * np.abs(values)
    if large.any():
        at = int(np.argmax(large))
        event = first_event + at
        raise EvaluationError(
            f"real=True, but the value {values[at]} of event {event} is complex; take .real() "
            "or .norm_sqr() in the expression",
            event=event,
            value=complex(values[at]),
        )
    return values.real.copy()


# What is made of the rows of consecutive events, shape (points, rows, events), the first of which
# has an index in the data set: picklable, for it happens where the rows are.


@dataclass(frozen=True)
class ValuesOfPoint:
    """Values at the only point, shape (events,)."""

    real: bool
    precision: Precision

    def __call__(self, rows: Array, first_event: int) -> tuple[Values | Array]:
        """Raises as `real_parts` does."""
        values = complex_rows(rows[0, 0], rows[0, 1])
        return (real_parts(values, self.precision, first_event) if self.real else values,)


@dataclass(frozen=True)
class ValuesOfPoints:
    """Values at every point, shape (points, events)."""

    real: bool
    precision: Precision

    def __call__(self, rows: Array, first_event: int) -> tuple[Values | Array]:
        """Raises as `real_parts` does."""
        values = complex_rows(rows[:, 0], rows[:, 1])
        if not self.real:
            return (values,)
        each = [real_parts(row, self.precision, first_event) for row in values]
        return (np.array(each, dtype=np.float64).reshape(values.shape),)


@dataclass(frozen=True)
class ValuesAndGradient:
    """Values at the only point and their derivatives, shapes (events,) and (events, parameters)."""

    jacobian: Array

    def __call__(self, rows: Array, first_event: int) -> tuple[Values, Values]:
        """By the chain rule, event by event."""
        n = len(self.jacobian)
        own = rows[0]
        adjoints = complex_rows(own[2 : 2 + n], own[2 + n : 2 + 2 * n])
        return complex_rows(own[0], own[1]), chained(adjoints, self.jacobian)
