"""Which parts of a complex value would be there at all, were the signs under its roots known.

The root of a real value that may be negative is a pair of which one part is zero. Were the sign
known, as it is for a literal and where every event agrees, that part would be absent, and a value
on a cut is then continued from above. The sign that arithmetic gives to a zero which is there must
not decide otherwise: -sqrt(4) is -2 - 0i by the rules of arithmetic, and no less -2 than -2 + 0i.
Only the sign of a zero from elsewhere, as in ``complex(-4, -0.0)``, counts.

So each pair carries the set of forms that it may have: real, imaginary, or both parts. It is set
for roots and logarithms of real values and follows arithmetic; where the set contains *real*, cut
functions read the imaginary part with its zeros made positive.
"""

from __future__ import annotations

from laddu_dask.compiler.ir import Graph

REAL, IMAGINARY, BOTH = 1, 2, 4

Parts = tuple[int | None, int | None]


def forms(g: Graph, a: Parts) -> int:
    """Set of forms of a pair."""
    if a[1] is None:
        return REAL
    return IMAGINARY if a[0] is None else g.forms.get(a, BOTH)


def declare(g: Graph, a: Parts, found: int) -> None:
    """Note the forms of a pair; both parts at once need not be noted."""
    if found != BOTH and a[0] is not None and a[1] is not None:
        g.forms[a] = found


def of_sum(x: int, y: int) -> int:
    """Forms of a sum, from those of the terms."""
    return x if x == y in {REAL, IMAGINARY} else x & y | BOTH


def of_product(x: int, y: int) -> int:
    """Forms of a product or quotient: two imaginary factors make a real one."""
    found = BOTH if (x | y) & BOTH else 0
    for a in (REAL, IMAGINARY):
        for b in (REAL, IMAGINARY):
            if x & a and y & b:
                found |= REAL if a == b else IMAGINARY
    return found


def of_function(x: int) -> int:
    """Forms of a function that is real for real arguments."""
    return REAL if x == REAL else of_partly_real(x)


def of_partly_real(*operands: int) -> int:
    """Forms of a function that is real for some real arguments."""
    found = BOTH
    return found | REAL if all(x & REAL for x in operands) else found


def positive_zero(g: Graph, part: int) -> int:
    """The value with zeros made positive."""
    return g.add(part, g.const(0.0))
