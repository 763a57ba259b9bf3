"""Derivatives in branches that an event may not take: there zero is zero, whatever it multiplies.

The adjoint of a branch not taken is an exact zero, its slope perhaps infinite. ``reached`` values
name the adjoints that decide: zero where all of these are zero, else the first operand. They stay
compound until a program is cut, because their derivative is not that of a `select`: an adjoint may
also vanish where the branch is taken, and then its own derivative counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from laddu_dask.compiler.ir import Graph

REACHED = "reached"


def reached(g: Graph, value: int, adjoints: Iterable[int]) -> int:
    """`value` where any of the adjoints is not zero, else zero."""
    return g.emit(REACHED, value, *dict.fromkeys(adjoints))


def expand(g: Graph, args: Sequence[int]) -> int:
    """The same as operations of programs."""
    value, *adjoints = args
    zero = g.const(0.0)
    untaken = g.emit("eq", adjoints[0], zero)
    for adjoint in adjoints[1:]:
        untaken = g.emit("and", untaken, g.emit("eq", adjoint, zero))
    return g.select(untaken, zero, value)
