"""Analytic functions of x + iy that the graph knows as such: square root, asin, atanh, tanh.

Each is two values of the graph, ``c..._re`` and ``c..._im``, which keeps derivatives short: f'(z)
is one complex number. Programs hold the real operations that define them. Branches and signs of
zero are those of C99 (W. Kahan, "Branch cuts for complex elementary functions", 1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from laddu_dask.compiler import pairs
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.pairs import Pair

Parts = tuple[int, int]


def split(op: str) -> tuple[str, int]:
    """Name of the function and index of the part of an operation in `ir.COMPLEX`."""
    name, part = op.rsplit("_", 1)
    return name, int(part == "im")


def expand(g: Graph, op: str, x: int, y: int) -> int:
    """One part of a function as real operations."""
    name, part = split(op)
    return _VALUES[name](g, x, y)[part]


def jacobian(g: Graph, op: str, x: int, y: int) -> Parts:
    """Derivatives of one part with respect to x and y: f(z) is analytic (Cauchy-Riemann)."""
    name, part = split(op)
    slope = _SLOPES[name](g, x, y)
    along, across = pairs.re(g, slope), pairs.im(g, slope)
    return (across, along) if part else (along, g.neg(across))


def _absolute(g: Graph, x: int) -> int:
    return g.call("abs", x)


def _log1p(g: Graph, x: int) -> int:
    """``log(1 + x)`` for x >= 0: what rounds away in the sum enters to first order."""
    total = g.add(g.const(1.0), x)
    lost = g.sub(x, g.sub(total, g.const(1.0)))
    # Beyond 2**53 the lost part is noise, and for an infinite x it is NaN.
    small = g.emit("lt", x, g.const(2.0**53))
    return g.add(g.call("log", total), g.select(small, g.div(lost, total), g.const(0.0)))


def _asinh(g: Graph, x: int) -> int:
    size, one = _absolute(g, x), g.const(1.0)
    large = g.emit("lt", g.const(2.0**28), size)
    t = g.select(large, one, size)
    square = g.mul(t, t)
    root = g.call("sqrt", g.add(one, square))
    near = _log1p(g, g.add(t, g.div(square, g.add(one, root))))
    far = g.add(g.call("log", size), g.const(math.log(2.0)))
    return g.call("copysign", g.select(large, far, near), x)


def _sqrt(g: Graph, x: int, y: int) -> Parts:
    """Principal root of ``x + iy`` without overflow; ``sqrt(-4 - 0i) = -2i``.

    t = sqrt((|x| + |z|)/2); the root is (t, y/2t) right of the imaginary axis and
    (|y|/2t, sign(y) t) left of it. |z| is scaled by the larger part.
    """
    zero, one, two = g.const(0.0), g.const(1.0), g.const(2.0)
    left = g.emit("lt", x, zero)
    ax = g.select(left, g.neg(x), x)
    ay = g.select(g.emit("lt", y, zero), g.neg(y), y)
    smaller = g.emit("lt", ax, ay)
    large, small = g.select(smaller, ay, ax), g.select(smaller, ax, ay)
    at_zero = g.emit("eq", large, zero)
    ratio = g.div(small, g.select(at_zero, one, large))
    modulus = g.mul(large, g.call("sqrt", g.add(one, g.mul(ratio, ratio))))
    half = g.const(0.5)
    t = g.call("sqrt", g.add(g.mul(half, ax), g.mul(half, modulus)))
    # t vanishes for z = 0, and for the smallest subnormals.
    across = g.div(ay, g.select(g.emit("eq", t, zero), one, g.mul(two, t)))
    re = g.select(left, across, t)
    im = g.emit("copysign", g.select(left, t, across), y)
    return re, im


def _asin(g: Graph, x: int, y: int) -> Parts:
    """With a = sqrt(1-z), b = sqrt(1+z): ``atan2(x, Re ab) + i asinh(Im conj(a) b)``.

    Neither part is a difference of terms of one sign.
    """
    one = g.const(1.0)
    a = _sqrt(g, g.sub(one, x), g.neg(y))
    b = _sqrt(g, g.add(one, x), y)
    below = g.sub(g.mul(a[0], b[0]), g.mul(a[1], b[1]))
    height = g.sub(g.mul(a[0], b[1]), g.mul(a[1], b[0]))
    return g.call("atan2", x, below), _asinh(g, height)


def _atanh(g: Graph, x: int, y: int) -> Parts:
    """``log1p(4|x| / ((1-|x|)**2 + y**2))/4`` with the sign of x, and half an angle.

    Far out, where squares leave the range, the real part is x/|z|**2.
    """
    one, quarter = g.const(1.0), g.const(0.25)
    size, modulus = _absolute(g, x), g.call("hypot", x, y)
    large = g.emit("lt", g.const(2.0**400), modulus)
    ax, ay = g.select(large, one, size), g.select(large, one, y)
    gap, square = g.sub(one, ax), g.mul(ay, ay)
    ratio = g.div(g.mul(g.const(4.0), ax), g.add(g.mul(gap, gap), square))
    near = g.mul(quarter, _log1p(g, ratio))
    far = g.div(g.div(size, modulus), modulus)
    re = g.call("copysign", g.select(large, far, near), x)
    cosine = g.sub(g.mul(gap, g.add(one, ax)), square)
    angle = g.call("atan2", g.mul(g.const(2.0), ay), cosine)
    half_pi = g.call("copysign", g.const(math.pi / 2), y)
    return re, g.select(large, half_pi, g.mul(g.const(0.5), angle))


def _tanh(g: Graph, x: int, y: int) -> Parts:
    """With t = tan y, b = 1 + t**2, s = sinh x: (b s cosh x + i t) / (1 + b s**2)."""
    one = g.const(1.0)
    large = g.emit("lt", g.const(22.0), _absolute(g, x))
    near = g.select(large, g.const(0.0), x)
    s, t = g.call("sinh", near), g.call("tan", y)
    b = g.add(one, g.mul(t, t))
    below = g.add(one, g.mul(b, g.mul(s, s)))
    re = g.div(g.mul(b, g.mul(s, g.call("cosh", near))), below)
    # tanh x + i (sin 2y) / (2 cosh(x)**2) (1 + ...)
    decay = g.call("exp", g.mul(g.const(-2.0), _absolute(g, x)))
    far = g.mul(g.mul(g.const(4.0), g.div(t, b)), decay)
    re = g.select(large, g.call("copysign", one, x), re)
    return re, g.select(large, far, g.div(t, below))


def _root_slope(g: Graph, x: int, y: int) -> Pair:
    """``1 / (2 sqrt(z))``; 0 at 0, as for real roots."""
    u, v = g.call("csqrt_re", x, y), g.call("csqrt_im", x, y)
    size = g.add(g.mul(u, u), g.mul(v, v))
    at_zero = g.emit("eq", size, g.const(0.0))
    scale = g.select(
        at_zero, g.const(0.0), g.div(g.const(0.5), g.select(at_zero, g.const(1.0), size))
    )
    return Pair(g.mul(u, scale), g.neg(g.mul(v, scale)))


def _asin_slope(g: Graph, x: int, y: int) -> Pair:
    """``1 / (sqrt(1-z) sqrt(1+z))``, on the sheet of the value."""
    one, z = Pair(g.const(1.0), None), Pair(x, y)
    left = pairs.sqrt(g, pairs.sub(g, one, z), nonnegative=False)
    right = pairs.sqrt(g, pairs.add(g, one, z), nonnegative=False)
    return pairs.div(g, pairs.div(g, one, left), right)


def _atanh_slope(g: Graph, x: int, y: int) -> Pair:
    """``1 / ((1-z)(1+z))``."""
    one, z = Pair(g.const(1.0), None), Pair(x, y)
    return pairs.div(g, pairs.div(g, one, pairs.sub(g, one, z)), pairs.add(g, one, z))


def _tanh_slope(g: Graph, x: int, y: int) -> Pair:
    """``1 / cosh(z)**2``, since 1 - tanh(z)**2 cancels.

    From |x| = 40 on it falls like exp(-2 |x|) to the last bit, and the square of the hyperbolic
    cosine would soon be too large for a float.
    """
    limit, size, one = g.const(40.0), _absolute(g, x), g.const(1.0)
    far = g.emit("lt", limit, size)
    cosh = pairs.cosh(g, Pair(g.select(far, g.call("copysign", limit, x), x), y))
    inverse = pairs.div(g, Pair(one, None), cosh)
    decay = g.call("exp", g.mul(g.const(-2.0), g.sub(size, limit)))
    scale = Pair(g.select(far, decay, one), None)
    return pairs.mul(g, pairs.mul(g, inverse, inverse), scale)


_VALUES: dict[str, Callable[[Graph, int, int], Parts]] = {
    "csqrt": _sqrt,
    "casin": _asin,
    "catanh": _atanh,
    "ctanh": _tanh,
}
_SLOPES: dict[str, Callable[[Graph, int, int], Pair]] = {
    "csqrt": _root_slope,
    "casin": _asin_slope,
    "catanh": _atanh_slope,
    "ctanh": _tanh_slope,
}
