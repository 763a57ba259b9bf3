"""Complex arithmetic on pairs of real IR values.

A missing part is exactly zero and takes no arithmetic: a real value is never promoted to
``r + 0i``, so infinities and signed zeros keep their meaning.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.presence import (
    BOTH,
    IMAGINARY,
    REAL,
    declare,
    forms,
    of_function,
    of_partly_real,
    of_product,
    of_sum,
    positive_zero,
)


class Pair(NamedTuple):
    """Real and imaginary part as IR values; None is an exact zero."""

    re: int | None
    im: int | None


def literal(g: Graph, value: complex | float) -> Pair:
    """A literal; zero parts of a complex one vanish unless they are negative zeros."""
    if not isinstance(value, complex):
        return Pair(g.const(value), None)
    re, im = value.real, value.imag
    drop_re = re == 0 and math.copysign(1.0, re) > 0
    drop_im = im == 0 and math.copysign(1.0, im) > 0
    if drop_re and drop_im:
        return Pair(g.const(0.0), None)
    return Pair(None if drop_re else g.const(re), None if drop_im else g.const(im))


def re(g: Graph, a: Pair) -> int:
    """The real part as a value."""
    return g.const(0.0) if a.re is None else a.re


def im(g: Graph, a: Pair) -> int:
    """The imaginary part as a value."""
    return g.const(0.0) if a.im is None else a.im


def above(g: Graph, a: Pair) -> Pair:
    """The value as functions with cuts and callers read it: parts that may be absent are no -0."""
    found = g.forms.get(a, BOTH)
    if found == BOTH:
        return a
    return Pair(
        positive_zero(g, re(g, a)) if found & IMAGINARY else a.re,
        positive_zero(g, im(g, a)) if found & REAL else a.im,
    )


def _sum(g: Graph, a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return g.add(a, b)


def _difference(g: Graph, a: int | None, b: int | None) -> int | None:
    if b is None:
        return a
    return g.neg(b) if a is None else g.sub(a, b)


def _product(g: Graph, a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else g.mul(a, b)


def add(g: Graph, a: Pair, b: Pair) -> Pair:
    """``a + b``."""
    total = Pair(_sum(g, a.re, b.re), _sum(g, a.im, b.im))
    if g.forms:
        declare(g, total, of_sum(forms(g, a), forms(g, b)))
    return total


def sub(g: Graph, a: Pair, b: Pair) -> Pair:
    """``a - b``."""
    total = Pair(_difference(g, a.re, b.re), _difference(g, a.im, b.im))
    if g.forms:
        declare(g, total, of_sum(forms(g, a), forms(g, b)))
    return total


def neg(g: Graph, a: Pair) -> Pair:
    """``-a``."""
    opposite = Pair(None if a.re is None else g.neg(a.re), None if a.im is None else g.neg(a.im))
    declare(g, opposite, forms(g, a))
    return opposite


def conj(g: Graph, a: Pair) -> Pair:
    """Complex conjugate."""
    mirrored = Pair(a.re, None if a.im is None else g.neg(a.im))
    declare(g, mirrored, forms(g, a))
    return mirrored


def mul(g: Graph, a: Pair, b: Pair) -> Pair:
    """``a b``."""
    if not _is_literal(g, a) or not _is_literal(g, b):
        a, b = _imaginary(g, a), _imaginary(g, b)
    product = Pair(
        _difference(g, _product(g, a.re, b.re), _product(g, a.im, b.im)),
        _sum(g, _product(g, a.re, b.im), _product(g, a.im, b.re)),
    )
    if g.forms:
        declare(g, product, of_product(forms(g, a), forms(g, b)))
    return product


def _is_literal(g: Graph, a: Pair) -> bool:
    return all(part is None or g.literal(part) is not None for part in a)


def _imaginary(g: Graph, a: Pair) -> Pair:
    """The factor without the real part -0 that Python gives to ``-1j``; ``1j`` has none either.

    What is not finite in the other factor shows in the products with the imaginary part.
    """
    if a.re is None or a.im is None or not _is_literal(g, a):
        return a
    return Pair(None, a.im) if g.literal(a.re) == 0 and g.literal(a.im) != 0 else a


def norm_sqr(g: Graph, a: Pair) -> int:
    """``re**2 + im**2``."""
    total = _sum(g, _product(g, a.re, a.re), _product(g, a.im, a.im))
    return g.const(0.0) if total is None else total


def div(g: Graph, a: Pair, b: Pair) -> Pair:
    """``a / b``, by ``a conj(b) / |b|**2`` when b is complex."""
    quotient = _quotient(g, a, b)
    if g.forms:
        declare(g, quotient, of_product(forms(g, a), forms(g, b)))
    return quotient


def _quotient(g: Graph, a: Pair, b: Pair) -> Pair:
    if b.im is None:
        below = re(g, b)
        return Pair(
            None if a.re is None else g.div(a.re, below),
            None if a.im is None else g.div(a.im, below),
        )
    if b.re is None:  # a / (i y) = (a.im - i a.re) / y
        return Pair(
            None if a.im is None else g.div(a.im, b.im),
            None if a.re is None else g.neg(g.div(a.re, b.im)),
        )
    upper = mul(g, a, conj(g, b))
    inverse = g.div(g.const(1.0), norm_sqr(g, b))
    return Pair(_product(g, upper.re, inverse), _product(g, upper.im, inverse))


def power(g: Graph, a: Pair, exponent: int) -> Pair:
    """Integer power by repeated squaring, the reciprocal last."""
    if a.im is None:
        return Pair(g.power(re(g, a), exponent), None)
    result: Pair | None = None
    base, left = a, abs(exponent)
    while left:
        if left & 1:
            result = base if result is None else mul(g, result, base)
        left >>= 1
        if left:
            base = mul(g, base, base)
    one = Pair(g.const(1.0), None)
    if result is None:
        return one
    return div(g, one, result) if exponent < 0 else result


def sqrt(g: Graph, a: Pair, *, nonnegative: bool) -> Pair:
    """Principal square root.

    The root of a real value that may be negative is a pair whose parts are never both non-zero;
    written with `select` rather than a maximum so that NaN survives.
    """
    if a.im is None:
        x = re(g, a)
        if nonnegative:
            return Pair(g.call("sqrt", x), None)
        zero = g.const(0.0)
        negative = g.emit("lt", x, zero)
        root = Pair(
            g.call("sqrt", g.select(negative, zero, x)),
            g.call("sqrt", g.select(negative, g.neg(x), zero)),
        )
        declare(g, root, REAL | IMAGINARY)
        return root
    root = _cut(g, "csqrt", a)
    if forms(g, a) & REAL:
        declare(g, root, REAL | IMAGINARY | BOTH)
    return root


def log(g: Graph, a: Pair, *, nonnegative: bool) -> Pair:
    """Principal logarithm; ``log(-x) = log(x) + i pi`` for x > 0."""
    if a.im is None:
        x = re(g, a)
        if nonnegative:
            return Pair(g.call("log", x), None)
        zero = g.const(0.0)
        negative = g.emit("lt", x, zero)
        modulus = g.select(negative, g.neg(x), x)
        value = Pair(g.call("log", modulus), g.select(negative, g.const(math.pi), zero))
        declare(g, value, REAL | BOTH)
        return value
    half = g.mul(g.const(0.5), g.call("log", norm_sqr(g, a)))
    side = above(g, a)
    value = Pair(half, g.call("atan2", im(g, side), re(g, side)))
    declare(g, value, of_partly_real(forms(g, a)))
    return value


def exp(g: Graph, a: Pair) -> Pair:
    """Exponential."""
    if a.im is None:
        return Pair(g.call("exp", re(g, a)), None)
    cosine, sine = g.call("cos", a.im), g.call("sin", a.im)
    if a.re is None:
        return Pair(cosine, sine)
    size = g.call("exp", a.re)
    value = Pair(g.mul(size, cosine), g.mul(size, sine))
    declare(g, value, of_function(forms(g, a)))
    return value


def _of_sum(g: Graph, a: Pair, functions: tuple[str, str, str, str]) -> Pair:
    """``f(x) h(y) + i f'(x) k(y)`` of (f, f', h, k), an addition theorem; f(x) where y is 0."""
    f, slope, h, k = functions
    if a.im is None:
        return Pair(g.call(f, re(g, a)), None)
    x, y = re(g, a), a.im
    value = Pair(g.mul(g.call(f, x), g.call(h, y)), g.mul(g.call(slope, x), g.call(k, y)))
    declare(g, value, of_function(forms(g, a)))
    return value


def sin(g: Graph, a: Pair) -> Pair:
    """Sine: ``sin x cosh y + i cos x sinh y``."""
    return _of_sum(g, a, ("sin", "cos", "cosh", "sinh"))


def cos(g: Graph, a: Pair) -> Pair:
    """Cosine: ``cos x cosh y - i sin x sinh y``."""
    return conj(g, _of_sum(g, a, ("cos", "sin", "cosh", "sinh")))


def sinh(g: Graph, a: Pair) -> Pair:
    """Hyperbolic sine: ``sinh x cos y + i cosh x sin y``."""
    return _of_sum(g, a, ("sinh", "cosh", "cos", "sin"))


def cosh(g: Graph, a: Pair) -> Pair:
    """Hyperbolic cosine: ``cosh x cos y + i sinh x sin y``."""
    return _of_sum(g, a, ("cosh", "sinh", "cos", "sin"))


def _analytic(g: Graph, function: str, x: int, y: int) -> Pair:
    return Pair(g.call(f"{function}_re", x, y), g.call(f"{function}_im", x, y))


def _cut(g: Graph, function: str, a: Pair) -> Pair:
    """A function with a cut along the real axis."""
    side = above(g, a)
    value = _analytic(g, function, re(g, side), im(g, side))
    declare(g, value, of_partly_real(forms(g, a)))
    return value


def tanh(g: Graph, a: Pair) -> Pair:
    """Hyperbolic tangent."""
    if a.im is None:
        return Pair(g.call("tanh", re(g, a)), None)
    value = _analytic(g, "ctanh", re(g, a), a.im)
    declare(g, value, of_function(forms(g, a)))
    return value


def tan(g: Graph, a: Pair) -> Pair:
    """Tangent: ``-i tanh(i z)``."""
    if a.im is None:
        return Pair(g.call("tan", re(g, a)), None)
    turned = _analytic(g, "ctanh", g.neg(a.im), re(g, a))
    value = Pair(turned.im, g.neg(re(g, turned)))
    declare(g, value, of_function(forms(g, a)))
    return value


def asin(g: Graph, a: Pair) -> Pair:
    """Principal arc sine; complex also for a real value, beyond one from above the cut."""
    return _cut(g, "casin", a)


def atan(g: Graph, a: Pair) -> Pair:
    """Principal arc tangent: ``-i atanh(i z)``."""
    side = above(g, a)
    turned = _analytic(g, "catanh", g.neg(im(g, side)), re(g, side))
    value = Pair(turned.im, g.neg(re(g, turned)))
    declare(g, value, of_function(forms(g, a)))
    return value


def modulus(g: Graph, a: Pair) -> int:
    """``|a|`` without overflow."""
    if a.re is None or a.im is None:
        return g.call("abs", im(g, a) if a.re is None else a.re)
    return g.call("hypot", a.re, a.im)


def extreme(g: Graph, op: str, a: int, b: int) -> int:
    """``minimum`` or ``maximum`` of two real values; the second of equal ones, and NaN wins."""
    before = g.emit("lt", a, b) if op == "minimum" else g.emit("lt", b, a)
    ordered = g.emit("eq", a, a)
    return g.select(g.emit("or", before, g.emit("not", ordered)), a, b)


def select(g: Graph, condition: int, a: Pair, b: Pair) -> Pair:
    """`a` where the condition holds, else `b`."""
    imaginary = None if a.im is None and b.im is None else g.select(condition, im(g, a), im(g, b))
    chosen = Pair(g.select(condition, re(g, a), re(g, b)), imaginary)
    declare(g, chosen, of_sum(forms(g, a), forms(g, b)))
    return chosen
