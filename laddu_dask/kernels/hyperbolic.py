"""sinh, cosh and tanh as operation lists, at most 0.8 ulp.

With exp|x| = m 2**n as a double-double, sinh|x| and cosh x are 2**(n-1) (m -+ 2**(-2n) / m). Below
one half the exponentials cancel in the sine, which is its Taylor series there.
"""

from __future__ import annotations

import math

from laddu_dask.kernels import coefficients as c
from laddu_dask.kernels.elementary import MAGIC, exp_series, quotient, scaled
from laddu_dask.kernels.oplist import OpList, Value, bits

#: ``sinh x = x + x**3 SINH(x**2)``; the first term left out is below 2**-65 of x for |x| < 1/2.
SINH = tuple(1.0 / math.factorial(2 * k + 3) for k in range(8))


class Hyperbola:
    """Hyperbolic sine, cosine and tangent of one argument, whose exponential they share."""

    def __init__(self, g: OpList, x: Value) -> None:
        size = g.absolute(x)
        clamped = g.select(size > 720.0, 720.0, size)  # NaN falls through
        shifted = g.fma(clamped, c.LOG2_E, MAGIC)
        n = shifted - MAGIC
        part = g.fma(-n, c.LN2[0], clamped)  # exact
        r = g.fma(-n, c.LN2[1], part)
        m, m_low = g.fast_two_sum(*exp_series(g, r, g.fma(-n, c.LN2[1], part - r)))
        inverse = 1.0 / m
        inverse_low = g.fma(-inverse, m_low, g.fma(-inverse, m, 1.0)) * inverse
        self._g, self._x = g, x
        self._k = shifted.as_integer() - bits(MAGIC) - 1
        # 2**(-2n); beyond n = 400 it does not count, and would leave the range.
        far = g.select(n > 400.0, g.integer(400), self._k + 1)
        power = (1023 - far.shift_left(1)).shift_left(52).as_double()
        inverse, inverse_low = inverse * power, inverse_low * power
        total, low = g.fast_two_sum(m, inverse)
        self._cosh = total, low + (m_low + inverse_low)
        difference, low = g.fast_two_sum(m, -inverse)
        small = size < 0.5
        near = g.select(small, size, g.const(0.0))
        unit = (1024 - far).shift_left(52).as_double()  # 2**(1-n)
        square = near * near
        series = near * square * g.polynomial(square, SINH)
        self._sinh = (
            g.select(small, near * unit, difference),
            g.select(small, series * unit, low + (m_low - inverse_low)),
        )

    def _finish(self, value: Value, sign: Value) -> Value:
        value = (value.as_integer() | sign).as_double()
        return self._g.canonical_nan(self._g.is_nan(self._x), value)

    def sinh(self) -> Value:
        """Hyperbolic sine."""
        high, low = self._sinh
        return self._finish(scaled(high + low, self._k), self._g.sign_bit(self._x))

    def cosh(self) -> Value:
        """Hyperbolic cosine."""
        high, low = self._cosh
        return self._finish(scaled(high + low, self._k), self._g.integer(0))

    def tanh(self) -> Value:
        """Hyperbolic tangent."""
        g = self._g
        value = quotient(g, g.fast_two_sum(*self._sinh), g.fast_two_sum(*self._cosh))
        return self._finish(value, g.sign_bit(self._x))
