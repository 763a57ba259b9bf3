"""Numbers of SymPy as doubles: the nearest one to the exact value."""

from __future__ import annotations

from typing import Any

#: Decimal digits to which irrational constants are taken before they are rounded once.
DIGITS = 60


def nearest_double(number: Any) -> float:
    """The double nearest to a real number of SymPy, ties to even.

    Parameters
    ----------
    number
        An integer, a rational, a float of any precision, or a constant such as pi.

    Raises
    ------
    OverflowError
        The number is beyond the range of doubles, infinite or NaN.
    """
    import sympy

    if number in (sympy.oo, -sympy.oo, sympy.zoo, sympy.nan):
        raise OverflowError(f"{number} is no finite number")
    exact = sympy.Rational(number.evalf(DIGITS) if number.is_NumberSymbol else number)
    value = int(exact.p) / int(exact.q)  # the division of two integers rounds once
    return value
