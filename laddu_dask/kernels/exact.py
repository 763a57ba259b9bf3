"""Numbers that are not rounded: an integer times a power of two.

Every double is one, and so are sums, differences and products of them. What is computed with them
is exact until `round`, which rounds once. A few of them per evaluation cost microseconds; sums over
events are made by `laddu_dask.kernels.accumulator`.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Exact(NamedTuple):
    """``integer * 2**exponent``."""

    integer: int
    exponent: int

    @classmethod
    def of(cls, value: float) -> Exact:
        """A finite double.

        Raises
        ------
        OverflowError, ValueError
            An infinity, a NaN.
        """
        integer, denominator = value.as_integer_ratio()
        return cls(integer, 1 - denominator.bit_length())

    def plus(self, other: Exact) -> Exact:
        """The sum."""
        exponent = min(self.exponent, other.exponent)
        return Exact(
            (self.integer << (self.exponent - exponent))
            + (other.integer << (other.exponent - exponent)),
            exponent,
        )

    def minus(self, other: Exact) -> Exact:
        """The difference."""
        return self.plus(Exact(-other.integer, other.exponent))

    def times(self, other: Exact) -> Exact:
        """The product."""
        return Exact(self.integer * other.integer, self.exponent + other.exponent)

    def over(self, other: Exact) -> float:
        """The quotient, rounded once to the nearest double; infinite beyond the largest.

        Raises
        ------
        ZeroDivisionError
            `other` is zero.
        """
        return _quotient(self.integer, other.integer, self.exponent - other.exponent)

    def round(self) -> float:
        """The nearest double, an even one between two; +0 for zero, infinite beyond the largest."""
        return _quotient(self.integer, 1, self.exponent)


NOTHING = Exact(0, 0)


def _quotient(top: int, bottom: int, exponent: int) -> float:
    """``top / bottom * 2**exponent``; the division of integers rounds once, also to subnormals."""
    if exponent > 0:
        top <<= exponent
    else:
        bottom <<= -exponent
    try:
        return top / bottom
    except OverflowError:
        return math.inf if (top > 0) == (bottom > 0) else -math.inf


def log_ratio(one: Exact, other: Exact) -> float:
    """``ln(one / other)`` of two positive numbers, to two units in the last place of the result.

    That holds however close they are: ``ln(1 + r)``, in which r is the difference over the smaller
    one, rounded once; the logarithm does not magnify the error of r >= 0. Exchanging the numbers
    changes the sign and no other bit.
    """
    difference = one.minus(other)
    if difference.integer < 0:
        return -log_ratio(other, one)
    ratio = difference.over(other)
    if math.isinf(ratio):
        return math.log(one.round()) - math.log(other.round())
    return math.log1p(ratio)
