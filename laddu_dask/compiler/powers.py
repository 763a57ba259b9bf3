"""General powers of pairs: ``a**b = exp(b log a)`` on the principal branch, from polar form.

With a = r exp(i t) and b = p + i q the modulus is r**p exp(-q t) and the phase p t + q log r.
"""

from __future__ import annotations

import math

from laddu_dask.compiler import pairs
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.pairs import Pair
from laddu_dask.compiler.presence import BOTH, IMAGINARY, REAL, declare, forms, of_partly_real


def half_turns(exponent: float) -> complex:
    """``exp(i pi exponent)``, exact at multiples of one half."""
    if not math.isfinite(exponent):
        return complex(math.nan, math.nan)
    quadrant = round(2 * math.fmod(exponent, 2.0))
    rest = math.pi * (math.fmod(exponent, 2.0) - 0.5 * quadrant)
    c, s = math.cos(rest), math.sin(rest)
    return (complex(c, s), complex(-s, c), complex(-c, -s), complex(s, -c))[quadrant % 4]


def power(g: Graph, a: Pair, b: Pair, *, nonnegative: bool) -> Pair:
    """``a**b``.

    `nonnegative` says that a is real and not negative; otherwise a real base has phase 0 or pi.
    ``0**b`` is 0 for Re b > 0, 1 for b = 0, infinite for a real b < 0.
    """
    if a.im is None and b.im is None:
        return _real(g, pairs.re(g, a), pairs.re(g, b), nonnegative=nonnegative)
    found = of_partly_real(forms(g, a), forms(g, b))
    a = pairs.above(g, a)
    r = pairs.re(g, a) if nonnegative else pairs.modulus(g, a)
    p = pairs.re(g, b)
    zero, one = g.const(0.0), g.const(1.0)
    origin = g.emit("eq", r, zero)
    size = g.call("pow", r, p)
    phase: int | None = None
    if not nonnegative:
        x, y = pairs.re(g, a), pairs.im(g, a)
        if a.im is None:
            angle = g.select(g.emit("lt", x, zero), g.const(math.pi), zero)
        else:  # away from the origin: the angle has no derivative there, the power of zero has
            angle = g.call("atan2", g.select(origin, zero, y), g.select(origin, one, x))
        phase = g.mul(p, angle)
        if b.im is not None:
            size = g.mul(size, g.call("exp", g.neg(g.mul(b.im, angle))))
    if b.im is not None:
        # log 0 makes NaN of the phase, rightly unless the modulus is zero.
        vanishes = g.emit("and", origin, g.emit("lt", zero, p))
        turn = g.mul(b.im, g.call("log", g.select(vanishes, one, r)))
        phase = turn if phase is None else g.add(phase, turn)
    assert phase is not None
    value = Pair(g.mul(size, g.call("cos", phase)), g.mul(size, g.call("sin", phase)))
    declare(g, value, found)
    return value


def _real(g: Graph, x: int, p: int, *, nonnegative: bool) -> Pair:
    size = g.call("pow", x, p)
    if nonnegative:
        return Pair(size, None)
    zero, one = g.const(0.0), g.const(1.0)
    negative = g.emit("lt", x, zero)
    exponent = g.literal(p)
    if exponent is not None:
        turn = half_turns(exponent)
        cosine, sine = g.const(turn.real), g.const(turn.imag)
    else:
        angle = g.mul(g.const(math.pi), p)
        cosine, sine = g.call("cos", angle), g.call("sin", angle)
    value = Pair(
        g.mul(size, g.select(negative, cosine, one)),
        g.select(negative, g.mul(size, sine), zero),
    )
    declare(g, value, REAL | IMAGINARY | BOTH)
    return value
