"""Wigner functions in a laddu table, which writes them as sums of powers, found again.

``d^j_{m'm}`` stands there as ``0 + c_0 cos(b/2)**p sin(b/2)**q + c_1 cos(b/2)**(p-2) ...`` with
coefficients that are rounded already. For high j they are large and cancel, so that no evaluation
of the sum can be right; the function itself can.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import Expr
from laddu_dask.expr.node import Node
from laddu_dask.physics import WignerD

#: Up to this j the sum as written keeps its digits.
HIGHEST_SOUND_J = 10
#: How far a rounded coefficient may be from the exact one.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class _Term:
    """``coefficient * cos(half)**cosines * sin(half)**sines``."""

    coefficient: float
    half: Node
    cosines: int
    sines: int


class WignerSums:
    """Follows the sums of one table, node by node."""

    def __init__(self) -> None:
        self._sums: dict[Node, tuple[_Term, ...]] = {}

    def replaced(self, node: Node) -> tuple[Node, bool]:
        """The node, or the Wigner function that it amounts to; and whether digits are lost there.

        A function of a j that `WignerD` does not offer stays as it is written.
        """
        terms = self._extended(node)
        if len(terms) < 2 or terms[0].cosines + terms[0].sines <= 2 * HIGHEST_SOUND_J:
            return node, False
        try:
            function = _recognised(terms)
        except ExpressionError:
            return node, True
        if function is None:
            return node, False
        stable = function.d(Expr.of(terms[0].half.args[1])).node
        self._sums[stable] = terms  # in case further terms show that it was the start of another
        return stable, True

    def _extended(self, node: Node) -> tuple[_Term, ...]:
        """The terms of a sum whose last one has just been added; none for anything else."""
        if node.op != "add":
            return ()
        before, last = node.args
        is_start = before.op == "const" and before.data == 0
        terms = () if is_start else self._sums.get(before)
        term = _term(last)
        if terms is None or term is None or not _continues(terms, term):
            return ()
        self._sums[node] = (*terms, term)
        return self._sums[node]


def _term(node: Node) -> _Term | None:
    powers = {"cos": 0, "sin": 0}
    half: Node | None = None
    while node.op == "mul":
        node, power = node.args
        inner = power.args[0] if power.op == "pow" else power
        if inner.op not in powers or powers[inner.op] or (half and half is not inner.args[0]):
            return None
        (half,) = inner.args
        powers[inner.op] = power.data if power.op == "pow" and isinstance(power.data, int) else 1
    if node.op != "const" or not isinstance(node.data, float) or half is None:
        return None
    is_half = half.op == "mul" and half.args[0].op == "const" and half.args[0].data == 0.5
    return _Term(node.data, half, powers["cos"], powers["sin"]) if is_half else None


def _continues(terms: tuple[_Term, ...], term: _Term) -> bool:
    if not terms:
        return True
    last = terms[-1]
    return last.half is term.half and (last.cosines - 2, last.sines + 2) == (
        term.cosines,
        term.sines,
    )


def _recognised(terms: tuple[_Term, ...]) -> WignerD | None:
    """The one function with these powers and coefficients.

    The lowest power of the sine is ``|m' - m|``, and the number of terms says how far the larger of
    both is from j: four pairs of projections remain, which differ in their coefficients.
    """
    steps, apart = len(terms) - 1, terms[0].sines
    j = Fraction(terms[0].cosines + terms[0].sines, 2)
    candidates = [
        (steps - j + apart, steps - j),
        (j - steps, j - steps - apart),
        (steps - j, steps - j + apart),
        (j - steps - apart, j - steps),
    ]
    for m_prime, m in candidates:
        if max(abs(m_prime), abs(m)) <= j and _matches(terms, j, m_prime, m):
            return WignerD(j, m_prime, m)
    return None


def _matches(terms: tuple[_Term, ...], j: Fraction, m_prime: Fraction, m: Fraction) -> bool:
    """Whether the coefficients are those of Wigner's sum, each from the one before."""
    apart = int(abs(m_prime - m))
    high, low = max(m_prime, m), min(m_prime, m)
    first = math.sqrt(math.comb(int(j + high), apart) * math.comb(int(j - low), apart))
    expected = -first if apart % 2 and m_prime > m else first
    for step, term in enumerate(terms):
        if abs(term.coefficient - expected) > _TOLERANCE * abs(expected):
            return False
        above = (j - high - step) * (j + low - step)
        expected *= -float(above / ((step + 1) * (apart + step + 1)))
    return expected == 0
