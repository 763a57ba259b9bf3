"""Solutions of linear systems in normal form.

Where a matrix depends on events only, or on parameters only, a component of ``A^-1 b`` is a linear
form in b whose coefficients, a row of the inverse, leave the event loop: cached columns, or values
that are computed once per evaluation. In a K-matrix with fixed poles and couplings the production
strengths alone remain, and the solve itself is gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from laddu_dask.compiler.algebra import Algebra
from laddu_dask.compiler.ir import MIXED
from laddu_dask.compiler.terms import Term


def solution(a: Algebra, matrix: Sequence[Term], rhs: Sequence[Term]) -> list[Term]:
    """Components of x in ``A x = rhs``, the matrix in row-major order."""
    n = math.isqrt(len(matrix))
    of_matrix, of_rhs = _kind(matrix), _kind(rhs)
    if of_matrix == MIXED or of_matrix | of_rhs != MIXED:
        return _components(a, matrix, rhs)
    # Row k of the inverse solves the plain transpose (not conjugated) against unit vector k.
    transpose = [matrix[row * n + column] for column in range(n) for row in range(n)]
    result = []
    for k in range(n):
        unit = [a.lit(1.0 if j == k else 0.0) for j in range(n)]
        row = _components(a, transpose, unit)
        result.append(a.add(a.mul(pair) for pair in zip(row, rhs, strict=True)))
    return result


def _components(a: Algebra, matrix: Sequence[Term], rhs: Sequence[Term]) -> list[Term]:
    args = (*matrix, *rhs)
    return [a.make("solve", args, (k, len(rhs))) for k in range(len(rhs))]


def _kind(terms: Sequence[Term]) -> int:
    kind = 0
    for term in terms:
        kind |= term.kind
    return kind
