"""Arithmetic on the literals of a normal form."""

from __future__ import annotations

import math


def is_one(value: complex | float) -> bool:
    """Whether a factor may be left out."""
    return value == 1


def underflows(value: complex | float) -> bool:
    """Whether a literal is zero or too small to have all digits."""
    return abs(value) < 2.0**-1022


def times(a: complex | float, b: complex | float) -> complex | float:
    """Product of literals; a part that is +0 is absent and stays so, as it does in programs."""
    if is_one(a) or is_one(b):
        return b if is_one(a) else a
    if isinstance(a, float) and isinstance(b, complex):
        a, b = b, a
    if isinstance(a, complex) and isinstance(b, float):
        re, im = (
            part if part == 0 and math.copysign(1.0, part) > 0 else part * b
            for part in (a.real, a.imag)
        )
        return complex(re, im)
    return a * b


def literal_power(value: complex | float, exponent: int) -> complex | float | None:
    """Integer power as programs compute it; None where it is the reciprocal of zero."""
    result: complex | float = 1.0
    base, left, empty = value, abs(exponent), True
    while left:
        if left & 1:
            result, empty = (base if empty else result * base), False
        left >>= 1
        if left:
            base = base * base
    if exponent > 0:
        return result
    return None if result == 0 else 1.0 / result
