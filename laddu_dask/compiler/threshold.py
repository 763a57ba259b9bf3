"""Elimination in an order fixed in advance, with a test that says where it is accurate.

Without exchanges of rows an elimination needs no selection, half of the operations. It is accurate
as long as the multiples ``l_ik`` of rows that it subtracts stay small: threshold pivoting accepts a
pivot with ``max |a_ik| <= |a_kk| / u``, which bounds the growth of the elements by
``(1 + 1/u)**(n - 1)`` and in practice keeps it near ``1/u`` (Duff, Erisman, Reid, "Direct Methods
for Sparse Matrices", 1986, section 5.4; Higham, "Accuracy and Stability of Numerical Algorithms",
2002, chapter 9). Here all multiples of a system are tested at once, by the sum of their squares.
"""

from __future__ import annotations

from collections.abc import Sequence

from laddu_dask.compiler import elimination, pairs
from laddu_dask.compiler.elimination import ZERO, Factors
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.pairs import Pair

#: Largest sum of the squared moduli of all multiples of a system. No multiple exceeds 16 then
#: (u = 0.0625; Duff, Erisman and Reid recommend 0.1). Elements grow at most by the product of
#: ``1 + max_i |l_ik|`` over the columns, which is ``(1 + 16 / sqrt(n - 1))**(n - 1)`` or less where
#: partial pivoting allows ``2**(n - 1)``; both are far from what happens.
LARGEST_SUM = 256.0


def factorize(g: Graph, matrix: Sequence[Sequence[Pair]]) -> tuple[Factors, int | None]:
    """Factorise a square matrix, given by rows, along its diagonal.

    Returns
    -------
    factors, accurate
        The condition that the factors may be used, false also where a pivot is zero or anything
        overflows or is NaN; None where there is nothing to test, as partial pivoting would not
        exchange any rows either.
    """
    n, one = len(matrix), Pair(g.const(1.0), None)
    rows = [[elimination.without_zeros(g, entry) for entry in row] for row in matrix]
    exchanges: list[list[elimination.Exchange]] = []
    lower: list[dict[int, Pair]] = []
    inverses: list[Pair] = []
    multiples: list[int] = []
    sizes: list[int] = []
    for k in range(n):
        exchanges.append(_bring_up(g, rows, k))
        pivot = rows[k][k]
        sizes.append(_size(g, pivot))
        inverse = pairs.div(g, one, pivot)
        inverses.append(inverse)
        lower.append(elimination.eliminate(g, rows, k, inverse))
        multiples += [pairs.norm_sqr(g, factor) for factor in lower[k].values()]
    growth = _total(g, [square for square in multiples if not _is_at_most_one(g, square)])
    if growth is None:
        return elimination.factorize(g, matrix), None
    # A zero pivot shows in the multiples, but not in the last column, nor past an exact zero.
    shown = n - 1 if elimination.is_full(lower, rows) else 0
    sizes += [pairs.im(g, x) if x.re is None else x.re for x in inverses[shown:]]
    finite = _total(g, [size for size in sizes if g.literal(size) is None])
    if finite is not None:
        # The reciprocal of a pivot that overflows would be a plausible zero.
        growth = g.add(growth, g.mul(g.const(0.0), finite))
    factors = Factors(exchanges, lower, rows, inverses, None)
    return factors, g.emit("lt", growth, g.const(LARGEST_SUM))


def _bring_up(g: Graph, rows: list[list[Pair]], k: int) -> list[elimination.Exchange]:
    """Exchange rows only where row k has no pivot, or literals show a larger one."""
    candidates = [i for i in range(k, len(rows)) if rows[i][k] != ZERO]
    if not candidates:
        return []
    best = candidates[0]
    sizes = [g.literal(pairs.norm_sqr(g, rows[i][k])) for i in candidates]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes):
        best = candidates[known.index(max(known))]
    if best == k:
        return []
    rows[k], rows[best] = rows[best], rows[k]
    return [(best, None)]


def _size(g: Graph, pivot: Pair) -> int:
    """A real value that is not finite where the reciprocal of the pivot cannot be trusted."""
    if pivot.re is None or pivot.im is None:
        return pairs.im(g, pivot) if pivot.re is None else pivot.re
    return pairs.norm_sqr(g, pivot)


def _is_at_most_one(g: Graph, square: int) -> bool:
    known = g.literal(square)
    return known is not None and known <= 1


def _total(g: Graph, terms: Sequence[int]) -> int | None:
    total: int | None = None
    for term in terms:
        total = term if total is None else g.add(total, term)
    return total
