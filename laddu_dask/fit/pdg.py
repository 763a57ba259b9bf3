"""Rounding of values and errors by the rule of the Particle Data Group.

Review of Particle Physics, Introduction, section 5.3: if the three leading digits of the error lie
between 100 and 354, round it to two digits; between 355 and 949, to one; between 950 and 999, up
to 1000 and keep two. The value is rounded to the same decimal place.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

# Outside these powers of ten of the larger number a common exponent is taken out.
_PLAIN = range(-4, 6)


def rounded(value: float, error: float) -> tuple[str, str]:
    """Return value and error as text of the same decimal places.

    Parameters
    ----------
    value, error
        Numbers in the same unit.

    Returns
    -------
    value, error
        For example ("0.354", "0.013"), or with a common exponent ("1.234e-07", "0.021e-07"). A
        value of which the error and its exponent leave nothing has two digits: ("1.7e+05",
        "4e+09"). An error that is not positive and finite is written as it is, the value with six
        digits.
    """
    if not (math.isfinite(value) and math.isfinite(error) and error > 0):
        return f"{value:.6g}", f"{error:.6g}"
    with localcontext() as context:
        # Enough digits for any two float64 numbers, however different.
        context.prec = 800
        return _by_rule(value, error)


def _by_rule(value: float, error: float) -> tuple[str, str]:
    exact = Decimal(error)
    leading = exact.adjusted()
    three = int((exact.scaleb(2 - leading)).to_integral_value(ROUND_HALF_EVEN))
    if three <= 354:
        place = leading - 1
    elif three <= 949:
        place = leading
    else:
        # 950 and above read 1.0 of the next decade; so do 999.6 and its like.
        exact, place = Decimal(1).scaleb(leading + 1), leading
    step = Decimal(1).scaleb(place)
    number, exact = (x.quantize(step, ROUND_HALF_EVEN) for x in (Decimal(value), exact))
    size = max(number.adjusted() if number else place, exact.adjusted())
    shift = 0 if size in _PLAIN and place <= 0 else size
    if shift and not number:
        # "0e+09" says nothing: a value far below its error has a size of its own.
        return f"{value + 0.0:.2g}", _text(exact, place, shift)
    return _text(number, place, shift), _text(exact, place, shift)


def _text(number: Decimal, place: int, shift: int) -> str:
    text = f"{number.scaleb(-shift):.{max(shift - place, 0)}f}"
    # Only the value can round to minus zero.
    text = text.removeprefix("-") if not number else text
    return f"{text}e{shift:+03d}" if shift else text
