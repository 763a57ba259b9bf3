"""Double and single precision: the names, and which numbers are safe in products.

Regrouping multiplies what the written form keeps apart, so event values and parameter values that
meet must be moderate, or a product could leave the exponent range where the written form does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

#: What the operations of a kernel round to.
Precision = Literal["f64", "f32"]


class Range(NamedTuple):
    """Smallest and largest modulus of a moderate number that is not zero."""

    smallest: float
    largest: float


#: A product of two moderate numbers stays in the range, with room for sums of such products:
#: doubles reach from 2**-1022 to 2**1024, floats from 2**-126 to 2**128.
#:
#: Floats have no lower bound, since their range is so short that ordinary values reach its end: the
#: fourth power of the cosine of an angle is below 2**-40 for one event in a thousand. None is
#: needed: what a product loses below 2**-126 shows where nothing larger is added to it, and only
#: after a factor of at most 2**40, so in values below 2**-86.
RANGES: dict[Precision, Range] = {
    "f64": Range(2.0**-400, 2.0**400),
    "f32": Range(0.0, 2.0**40),
}
#: Bytes of one number.
BYTES: dict[Precision, int] = {"f64": 8, "f32": 4}


def is_moderate(value: float, precision: Precision = "f64") -> bool:
    """Zero, or far from the ends of the exponent range; false for NaN."""
    smallest, largest = RANGES[precision]
    return value == 0 or smallest <= abs(value) <= largest


def all_moderate(values: Iterable[float], precision: Precision = "f64") -> bool:
    """Whether `is_moderate` is true of every number."""
    smallest, largest = RANGES[precision]
    for value in values:  # written out, since this runs in every evaluation
        if not (smallest <= value <= largest or -largest <= value <= -smallest or value == 0):
            return False
    return True
