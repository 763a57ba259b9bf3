"""Real powers and the modulus of a pair as operation lists, at most 1 ulp; specials as in C."""

from __future__ import annotations

import math

from laddu_dask.kernels import coefficients as c
from laddu_dask.kernels.elementary import INF, MAGIC, exp_series, scaled
from laddu_dask.kernels.oplist import OpList, Value, bits

#: ``log((1 + s)/(1 - s)) = 2 s + s z (THIRD + z ATANH(z))``, z = s**2, |s| <= 3 - sqrt 8: a Taylor
#: series, since more than the minimax set for one double is needed; what it leaves is below 2**-68.
ATANH = tuple(2.0 / (2 * k + 5) for k in range(12))
#: 2/3 as a double-double.
THIRD = (2.0 / 3.0, math.ldexp(2.0 / 3.0, -54))


def hypot(g: OpList, x: Value, y: Value) -> Value:
    """``sqrt(x**2 + y**2)``, scaled by a power of two where a square would leave the range."""
    ax, ay = g.absolute(x), g.absolute(y)
    swap = ax < ay
    large, small = g.select(swap, ay, ax), g.select(swap, ax, ay)
    huge, tiny = large > 2.0**500, large < 2.0**-500
    down = g.select(huge, 2.0**-600, g.select(tiny, 2.0**600, g.const(1.0)))
    up = g.select(huge, 2.0**600, g.select(tiny, 2.0**-600, g.const(1.0)))
    large, small = large * down, small * down
    h = g.sqrt(g.fma(large, large, small * small)) * up
    h = g.canonical_nan(g.is_nan(x) | g.is_nan(y), h)
    return g.select(ax.equals(INF) | ay.equals(INF), INF, h)


def _log(g: OpList, x: Value) -> tuple[Value, Value]:
    """Logarithm of a positive double as a double-double, relative error 2**-65."""
    tiny = x < 2.0**-1022
    word = g.select(tiny, x * 2.0**54, x).as_integer()
    exponent = (word - 0x3FE6A09E667F3BCD).shift_right(52)
    m = (word - exponent.shift_left(52)).as_double()
    offset = g.select(tiny, g.integer(54), g.integer(0))
    k = ((exponent - offset) + bits(MAGIC)).as_double() - MAGIC
    f = m - 1.0  # exact
    d, d_low = g.fast_two_sum(g.const(2.0), f)
    s = f / d
    s_low = g.fma(-s, d_low, g.fma(-s, d, f)) / d
    z = s * s
    z_low = g.fma(2.0 * s, s_low, g.fma(s, s, -z))
    series, series_low = g.fast_two_sum(g.const(THIRD[0]), z * g.polynomial(z, ATANH))
    series_low = series_low + g.fma(z_low, ATANH[0], THIRD[1])
    cube = s * z
    cube_low = g.fma(s, z, -cube) + g.fma(s, z_low, s_low * z)
    t = cube * series
    t_low = g.fma(cube, series, -t) + g.fma(cube, series_low, cube_low * series)
    a, a_low = g.fast_two_sum(k * c.LN2[0], 2.0 * s)  # k LN2[0] is exact
    b, b_low = g.fast_two_sum(a, t)
    return g.fast_two_sum(b, b_low + (a_low + (t_low + g.fma(k, c.LN2[1], 2.0 * s_low))))


def power(g: OpList, x: Value, y: Value) -> Value:
    """``|x|**y`` as exp(y log|x|), the exponent of the exponential a double-double."""
    size = g.absolute(x)
    high, low = _log(g, size)
    high = g.select(size.equals(0.0), -INF, g.select(size.equals(INF), INF, high))
    p = y * high
    p_low = g.fma(y, low, g.fma(y, high, -p))
    inside = g.absolute(p) < 800.0
    p_low = g.select(inside, p_low, g.const(0.0))
    p = g.select(p > 720.0, 720.0, p)
    p = g.select(p < -760.0, -760.0, p)  # NaN falls through
    shifted = g.fma(p, c.LOG2_E, MAGIC)
    n = shifted - MAGIC
    part = g.fma(-n, c.LN2[0], p)  # exact
    r, r_low = g.two_sum(part, g.fma(-n, c.LN2[1], p_low))
    head, tail = exp_series(g, r, r_low)
    value = scaled(head + tail, shifted.as_integer() - bits(MAGIC))
    value = g.canonical_nan(g.is_nan(x) | g.is_nan(y), value)
    return g.select(y.equals(0.0) | size.equals(1.0), 1.0, value)
