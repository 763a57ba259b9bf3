"""exp, log, sin, cos, tan and atan2 as operation lists.

Errors are at most 0.8 ulp (atan2 0.7 ulp away from the ends of the exponent range, tan 1 ulp),
measured against multiprecision; special values and signs of zero follow C. Library vector math is
not used because its bits depend on the position of an element in the array and on the processor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from laddu_dask.kernels import coefficients as c
from laddu_dask.kernels.oplist import OpList, Value, bits

#: Adding it leaves the nearest integer in the low bits of the significand.
MAGIC = 1.5 * 2.0**52
INF = math.inf
_EXPONENT_MASK = 0x7FF0000000000000


def exp(g: OpList, x: Value) -> Value:
    """Exponential: x = n ln2 + r + low, then 2**n in two exact or once-rounded factors."""
    clamped = g.select(x > 710.0, 710.0, x)
    clamped = g.select(clamped < -746.0, -746.0, clamped)  # NaN falls through
    shifted = g.fma(clamped, c.LOG2_E, MAGIC)
    n = shifted - MAGIC
    part = g.fma(-n, c.LN2[0], clamped)  # exact: LN2[0] has 41 bits and |n| < 2**11
    r = g.fma(-n, c.LN2[1], part)
    low = g.fma(-n, c.LN2[1], part - r)
    head, tail = exp_series(g, r, low)
    return g.canonical_nan(g.is_nan(x), scaled(head + tail, shifted.as_integer() - bits(MAGIC)))


def exp_series(g: OpList, r: Value, low: Value) -> tuple[Value, Value]:
    """``exp(r + low)`` for |r| <= ln(2)/2 as the sum of two, the second much smaller."""
    square = r * r
    tail = g.fma(square * r, g.polynomial(r, c.EXP), g.fma(square, 0.5, low))
    head, head_low = g.fast_two_sum(g.const(1.0), r)
    return head, head_low + tail


def scaled(y: Value, k: Value) -> Value:
    """``y 2**k`` for y of order one and an integer k, in an exact and a once-rounded step."""
    k1 = k.shift_right(1)
    k2 = k - k1
    return y * (k1 + 1023).shift_left(52).as_double() * (k2 + 1023).shift_left(52).as_double()


def log(g: OpList, x: Value) -> Value:
    """Logarithm: x = m 2**k, m in [sqrt(1/2), sqrt 2), log m by s = (m-1)/(m+1)."""
    tiny = x < 2.0**-1022
    scaled = g.select(tiny, x * 2.0**54, x)
    word = scaled.as_integer()
    exponent = (word - 0x3FE6A09E667F3BCD).shift_right(52)
    m = (word - exponent.shift_left(52)).as_double()
    offset = g.select(tiny, g.integer(54), g.integer(0))
    k = ((exponent - offset) + bits(MAGIC)).as_double() - MAGIC  # integer to double, exact
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = z * g.polynomial(z, c.LOG)
    half_square = 0.5 * f * f
    half_low = g.fma(0.5 * f, f, -half_square)
    # log m = f - h + s (h + series); the low parts of h and of f - h are added at the end
    a, a_low = g.fast_two_sum(f, -half_square)
    b, b_low = g.two_sum(k * c.LN2[0], a)  # k LN2[0] is exact
    y = b + (b_low + g.fma(s, half_square + series, g.fma(k, c.LN2[1], a_low - half_low)))
    y = g.select(x.equals(INF), INF, y)
    y = g.select(x.equals(0.0), -INF, y)
    return g.canonical_nan((x < 0.0) | g.is_nan(x), y)


def _reduce(g: OpList, x: Value) -> list[Value]:
    """x = n pi/2 + r + low; n as a double whose value modulo 4 counts."""
    n = g.fma(x, c.TWO_OVER_PI, MAGIC) - MAGIC
    part = g.fma(-n, c.HALF_PI_3[0], x)  # exact
    second = n * c.HALF_PI_3[1]  # exact: 36 bits times |n| < 2**17
    r, error = g.two_sum(part, -second)
    r, low = g.fast_two_sum(r, g.fma(-n, c.HALF_PI_3[2], error))
    far = g.absolute(x) > 1e5
    return g.cold(far, [r, low, n], lambda: _reduce_far(g, x, far))


def _reduce_far(g: OpList, x: Value, far: Value) -> list[Value]:
    """Payne-Hanek reduction with fused multiply-adds: turns = m T[E] modulo 1, then times 2 pi."""
    size = g.select(far, g.absolute(x), 1e6)
    size = g.select(size < INF, size, 1e6)
    word = size.as_integer()
    exponent = word.shift_right(52) - 1023
    m = ((word & (2**52 - 1)) | bits(2.0**52)).as_double()  # 53-bit integer
    row = (exponent - c.TURNS_FIRST).shift_left(2)
    h = [g.gather("turns", c.TURNS, row + j) for j in range(4)]
    p = [m * h[j] for j in range(3)]
    e = [g.fma(m, h[j], -p[j]) for j in range(3)]
    whole = p[0] - g.rint(p[0])  # turns modulo 1, exact
    s, f1 = g.two_sum(whole, e[0])
    s, f2 = g.two_sum(s, p[1])
    quarter = g.rint(4.0 * s)
    s = s - 0.25 * quarter  # exact
    v, c1 = g.two_sum(f1, f2)
    v, c2 = g.two_sum(v, e[1])
    v, c3 = g.two_sum(v, p[2])
    t, t_low = g.two_sum(s, v)
    t, t_low = g.fast_two_sum(t, t_low + ((c1 + c2) + (c3 + g.fma(m, h[3], e[2]))))
    r = t * c.TWO_PI[0]
    low = g.fma(t, c.TWO_PI[0], -r) + g.fma(t, c.TWO_PI[1], t_low * c.TWO_PI[0])
    r, low = g.fast_two_sum(r, low)
    sign = g.sign_bit(x)
    return [(v.as_integer() ^ sign).as_double() for v in (r, low, quarter)]


class Circle:
    """Sine, cosine and tangent of one argument, whose reduction they share."""

    def __init__(self, g: OpList, x: Value) -> None:
        r, low, n = _reduce(g, x)
        z = r * r
        self._g, self._x = g, x
        #: Sine and cosine of the reduced argument, each the sum of two, the second much smaller.
        self._sine = r, g.fma(z * r, g.polynomial(z, c.SIN), g.fma(z, -0.5 * low, low))
        half = 0.5 * z
        w = 1.0 - half
        self._cosine = (
            w,
            ((1.0 - w) - half) + g.fma(z * z, g.polynomial(z, c.COS), -(r * low)),
        )
        self._quadrant = (n + MAGIC).as_integer()  # low bits: n modulo 4 in two's complement
        self._odd = (self._quadrant & 1).equals(1)
        exponent = x.as_integer() & _EXPONENT_MASK
        self._bad = exponent.equals(_EXPONENT_MASK)  # infinite or NaN

    def _signed(self, value: Value, bit: Value) -> Value:
        return (value.as_integer() ^ (bit & 2).shift_left(62)).as_double()

    def _sums(self) -> tuple[Value, Value]:
        (s, s_low), (co, co_low) = self._sine, self._cosine
        return s + s_low, co + co_low

    def sin(self) -> Value:
        """Sine."""
        g, x = self._g, self._x
        sine, cosine = self._sums()
        s = self._signed(g.select(self._odd, cosine, sine), self._quadrant)
        s = g.select(x.equals(0.0), x, s)  # keeps the sign of zero
        return g.canonical_nan(self._bad, s)

    def cos(self) -> Value:
        """Cosine."""
        sine, cosine = self._sums()
        co = self._signed(self._g.select(self._odd, sine, cosine), self._quadrant + 1)
        return self._g.canonical_nan(self._bad, co)

    def tan(self) -> Value:
        """Tangent: sine over cosine, or minus the inverse of that, both to twice the precision."""
        g, x = self._g, self._x
        pairs = g.fast_two_sum(*self._sine), g.fast_two_sum(*self._cosine)
        above = [g.select(self._odd, b, a) for a, b in zip(*pairs, strict=True)]
        below = [g.select(self._odd, a, b) for a, b in zip(*pairs, strict=True)]
        t = self._signed(quotient(g, above, below), self._quadrant.shift_left(1))
        t = g.select(x.equals(0.0), x, t)
        return g.canonical_nan(self._bad, t)


def quotient(g: OpList, above: Sequence[Value], below: Sequence[Value]) -> Value:
    """Quotient of two double-doubles, rounded once but for a few per cent of the last bit."""
    q = above[0] / below[0]
    rest = g.fma(-q, below[0], above[0]) + g.fma(-q, below[1], above[1])
    return q + rest / below[0]


def atan2(g: OpList, y: Value, x: Value) -> Value:
    """Angle of (x, y): atan of the smaller over the larger, rotated by pi/4 above tan(pi/8)."""
    ax, ay = g.absolute(x), g.absolute(y)
    swap = ax < ay
    num, den = g.select(swap, ax, ay), g.select(swap, ay, ax)
    infinite = den.equals(INF)
    num = g.select(infinite, g.select(num.equals(INF), 1.0, g.const(0.0)), num)
    den = g.select(infinite, 1.0, g.select(den.equals(0.0), 1.0, den))
    scale = g.select(den > 2.0**1000, 2.0**-60, g.select(den < 2.0**-900, 2.0**120, g.const(1.0)))
    num, den = num * scale, den * scale
    rotate = num > den * c.TAN_EIGHTH_PI
    total, total_low = g.two_sum(den, num)
    diff, diff_low = g.two_sum(num, -den)
    zero = g.const(0.0)
    above, above_low = g.select(rotate, diff, num), g.select(rotate, diff_low, zero)
    below, below_low = g.select(rotate, total, den), g.select(rotate, total_low, zero)
    inverse = 1.0 / below
    t = above * inverse
    t_low = g.fma(-t, below_low, g.fma(-t, below, above) + above_low) * inverse
    t, t_low = g.fast_two_sum(t, t_low)
    z = t * t
    rest = g.fma(z * t, g.polynomial(z, c.ATAN), t_low)  # atan = t + rest
    left = x.as_integer() < 0  # the sign bit, so that -0 counts
    flip = swap ^ left
    sign = g.select(flip, g.integer(-1 << 63), g.integer(0))

    def signed(value: Value) -> Value:
        return (value.as_integer() ^ sign).as_double()

    base = [g.select(rotate, part, zero) for part in c.QUARTER_PI]
    octant = [
        g.select(swap, half, g.select(left, whole, zero))
        for half, whole in zip(c.HALF_PI, c.PI, strict=True)
    ]
    k, k_low = g.two_sum(octant[0], signed(base[0]))
    k_low = k_low + (octant[1] + signed(base[1]))
    h, h_low = g.fast_two_sum(k, signed(t))
    axis = k.equals(0.0)
    h, h_low = g.select(axis, signed(t), h), g.select(axis, zero, h_low)
    angle = h + (h_low + (signed(rest) + k_low))
    angle = (g.absolute(angle).as_integer() | g.sign_bit(y)).as_double()
    return g.canonical_nan(g.is_nan(x) | g.is_nan(y), angle)
