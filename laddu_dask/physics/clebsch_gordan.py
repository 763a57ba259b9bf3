"""Clebsch-Gordan coefficients and Wigner 3j symbols, exact until the one rounding at the end.

Both are signed square roots of rational numbers. The rational number is found with integers of any
size, so nothing cancels or overflows, and its root is rounded once.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

from laddu_dask.physics.checks import invalid, twice

#: Bits of an integer root that decide the rounding to the 53 bits of a double, with some to spare.
_ROOT_BITS = 64


def clebsch_gordan(*, j1: Any, m1: Any, j2: Any, m2: Any, j: Any, m: Any) -> float:
    """``<j1 m1, j2 m2 | j m>`` with the Condon-Shortley phase, correctly rounded.

    Convention of E. U. Condon and G. H. Shortley, as tabulated by the PDG:
    ``<1/2 1/2, 1/2 -1/2 | 0 0> = +1/sqrt(2)``.

    Parameters
    ----------
    j1, j2, j
        Angular momenta: integers or half-integers (int, float or Fraction), not negative.
    m1, m2, m
        Their projections, of the same kind as the momentum and not larger.

    Returns
    -------
    float
        The double nearest to the coefficient. Exactly 0 where the momenta cannot couple:
        ``m1 + m2 != m``, `j` outside ``|j1 - j2| ... j1 + j2``, or ``j1 + j2 + j`` not whole.

    Raises
    ------
    ExpressionError
        A label that is no half-integer, a negative momentum, a projection that its momentum does
        not have.
    TypeError
        A label that is no fixed real number.
    """
    return signed_root(clebsch_gordan_signed_square(j1=j1, m1=m1, j2=j2, m2=m2, j=j, m=m))


def clebsch_gordan_signed_square(*, j1: Any, m1: Any, j2: Any, m2: Any, j: Any, m: Any) -> Fraction:
    """``c * |c|`` of the coefficient ``c``, exactly: products of roots stay exact with it.

    Arguments and errors are those of `clebsch_gordan`.
    """
    operation = "clebsch_gordan"
    doubled = (
        *_pair(j1, m1, "j1", "m1", operation),
        *_pair(j2, m2, "j2", "m2", operation),
        *_pair(j, m, "j", "m", operation),
    )
    return _signed_square(*doubled)


def wigner_3j(*, j1: Any, j2: Any, j3: Any, m1: Any, m2: Any, m3: Any) -> float:
    """The symbol ``(j1 j2 j3; m1 m2 m3)``, correctly rounded.

    ``(-1)**(j1 - j2 - m3) / sqrt(2 j3 + 1) <j1 m1, j2 m2 | j3 -m3>`` (A. R. Edmonds, Angular
    Momentum in Quantum Mechanics, eq. 3.7.3). Arguments, zeros and errors as in `clebsch_gordan`.
    """
    operation = "wigner_3j"
    one = _pair(j1, m1, "j1", "m1", operation)
    two = _pair(j2, m2, "j2", "m2", operation)
    two_j3, two_m3 = _pair(j3, m3, "j3", "m3", operation)
    square = _signed_square(*one, *two, two_j3, -two_m3) / (two_j3 + 1)
    # Where the square is not zero j1 - j2 - m3 is whole.
    odd = (one[0] - two[0] - two_m3) // 2 % 2
    return signed_root(-square if odd else square)


def signed_root(value: Fraction) -> float:
    """``sign(value) sqrt(|value|)`` as the nearest double."""
    top, bottom = abs(value.numerator), value.denominator
    if top == 0:
        return 0.0
    # floor(2**shift sqrt(top / bottom)) has at least _ROOT_BITS bits. A last bit tells whether
    # anything was cut off, so the division below rounds as if it had every digit of the root.
    shift = max(0, _ROOT_BITS - (top.bit_length() - bottom.bit_length()) // 2 + 1)
    scaled = top << (2 * shift)
    root = math.isqrt(scaled // bottom)
    inexact = root * root * bottom != scaled
    size = (2 * root + inexact) / (1 << (shift + 1))
    return size if value > 0 else -size


def _pair(j: Any, m: Any, name_j: str, name_m: str, operation: str) -> tuple[int, int]:
    """Twice a momentum and twice its projection, checked."""
    two_j, two_m = twice(j, name_j, operation), twice(m, name_m, operation)
    if two_j < 0:
        raise invalid(operation, f"needs {name_j} >= 0, got {name_j} = {j}")
    if abs(two_m) > two_j:
        raise invalid(
            operation, f"needs |{name_m}| <= {name_j}, got {name_j} = {j}, {name_m} = {m}"
        )
    if (two_j - two_m) % 2:
        raise invalid(
            operation,
            f"{name_j} and {name_m} must both be whole or both half-integer, "
            f"got {name_j} = {j}, {name_m} = {m}",
        )
    return two_j, two_m


@lru_cache(maxsize=65536)
def _signed_square(j1: int, m1: int, j2: int, m2: int, j: int, m: int) -> Fraction:
    """Signed square of a coefficient; every argument is doubled.

    Racah's sum (Edmonds, eq. 3.6.11) with its factorials gathered into binomials::

        sum_k (-1)**k C(j1+j2-j, k) C(j1-j2+j, j1-m1-k) C(j2-j1+j, j2+m2-k)

    is whole, and its square times a ratio of factorials is the square of the coefficient.
    """
    if m1 + m2 != m or not abs(j1 - j2) <= j <= j1 + j2 or (j1 + j2 + j) % 2:
        return Fraction(0)
    a, b, c = (j1 + j2 - j) // 2, (j1 - j2 + j) // 2, (j2 - j1 + j) // 2
    low, high = (j1 - m1) // 2, (j2 + m2) // 2
    total = 0
    for k in range(max(0, low - b, high - c), min(a, low, high) + 1):
        term = math.comb(a, k) * math.comb(b, low - k) * math.comb(c, high - k)
        total += -term if k % 2 else term
    f = math.factorial
    top = math.prod(f((p + s) // 2) for p, q in ((j1, m1), (j2, m2), (j, m)) for s in (q, -q))
    bottom = f((j1 + j2 + j) // 2 + 1) * f(a) * f(b) * f(c)
    return Fraction((j + 1) * top * total * abs(total), bottom)
