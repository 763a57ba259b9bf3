"""Gaussian elimination with partial pivoting, unrolled into branch-free real operations.

Twice as long as `laddu_dask.compiler.threshold`, which programs try first.

Rows are exchanged by `select`, so every event of a vector takes its own pivots. The pivot of a
column is the entry of largest squared modulus, the first one on a tie. Exact zeros of the matrix
take no arithmetic and real entries stay real, until an exchange that depends on the event mixes
them with others.

A pivot that is exactly zero makes every component of the solution infinite or NaN, and so does one
whose squared modulus overflows: the row of largest modulus is then not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laddu_dask.compiler import pairs
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.pairs import Pair

ZERO = Pair(None, None)

#: Exchange of the pivot row with another one: its number, and the condition or None for always.
Exchange = tuple[int, int | None]


@dataclass(frozen=True)
class Factors:
    """A factorised n x n matrix.

    Attributes
    ----------
    exchanges
        For each column the exchanges of rows before it is eliminated, in order.
    lower
        ``lower[k][i]``, i > k: multiple of row k that step k takes from row i.
    upper
        Rows of the upper triangle.
    inverses
        Reciprocals of the pivots.
    poison
        A real zero, NaN if a pivot is zero; None where elimination itself spreads the NaN.
    """

    exchanges: list[list[Exchange]]
    lower: list[dict[int, Pair]]
    upper: list[list[Pair]]
    inverses: list[Pair]
    poison: int | None


def factorize(g: Graph, matrix: Sequence[Sequence[Pair]]) -> Factors:
    """Factorise a square matrix given by rows."""
    n = len(matrix)
    rows = [[without_zeros(g, entry) for entry in row] for row in matrix]
    exchanges: list[list[Exchange]] = []
    lower: list[dict[int, Pair]] = []
    inverses: list[Pair] = []
    for k in range(n):
        found, size = _bring_up_largest(g, rows, k)
        exchanges.append(found)
        inverse = _reciprocal(g, rows[k][k], size)
        inverses.append(inverse)
        lower.append(eliminate(g, rows, k, inverse))
    return Factors(exchanges, lower, rows, inverses, _poison(g, lower, rows, inverses))


def eliminate(g: Graph, rows: list[list[Pair]], k: int, inverse: Pair) -> dict[int, Pair]:
    """Subtract multiples of row k from those below it; the multiple of each row."""
    n = len(rows)
    multiples: dict[int, Pair] = {}
    for i in range(k + 1, n):
        factor = pairs.mul(g, rows[i][k], inverse)
        if factor == ZERO:
            continue
        multiples[i] = factor
        for j in range(k + 1, n):
            rows[i][j] = pairs.sub(g, rows[i][j], pairs.mul(g, factor, rows[k][j]))
    return multiples


def solve(g: Graph, factors: Factors, rhs: Sequence[Pair]) -> list[Pair]:
    """Solution x of ``A x = rhs``."""
    x = [without_zeros(g, entry) for entry in rhs]
    n = len(x)
    for k in range(n):
        _exchange_entries(g, x, k, factors.exchanges[k])
        for i, factor in factors.lower[k].items():
            x[i] = pairs.sub(g, x[i], pairs.mul(g, factor, x[k]))
    for k in reversed(range(n)):
        for j in range(k + 1, n):
            x[k] = pairs.sub(g, x[k], pairs.mul(g, factors.upper[k][j], x[j]))
        x[k] = pairs.mul(g, x[k], factors.inverses[k])
    if factors.poison is not None:
        x = [Pair(g.add(pairs.re(g, entry), factors.poison), entry.im) for entry in x]
    return x


def solve_adjoint(g: Graph, factors: Factors, rhs: Sequence[Pair]) -> list[Pair]:
    """Solution y of ``A^H y = rhs``, by the same factors."""
    y = [without_zeros(g, entry) for entry in rhs]
    n = len(y)
    for k in range(n):
        for j in range(k):
            y[k] = pairs.sub(g, y[k], pairs.mul(g, pairs.conj(g, factors.upper[j][k]), y[j]))
        y[k] = pairs.mul(g, y[k], pairs.conj(g, factors.inverses[k]))
    for k in reversed(range(n)):
        for i, factor in factors.lower[k].items():
            y[k] = pairs.sub(g, y[k], pairs.mul(g, pairs.conj(g, factor), y[i]))
        _exchange_entries(g, y, k, factors.exchanges[k][::-1])
    return y


def without_zeros(g: Graph, entry: Pair) -> Pair:
    """The entry with literal zeros as missing parts."""

    def part(value: int | None) -> int | None:
        return None if value is None or g.literal(value) == 0 else value

    return Pair(part(entry.re), part(entry.im))


def _bring_up_largest(
    g: Graph, rows: list[list[Pair]], k: int
) -> tuple[list[Exchange], int | None]:
    """Make row k the one with the largest entry in column k among rows k, k + 1, ...

    Returns the exchanges, and the squared modulus of the pivot if it had to be compared.
    """
    found: list[Exchange] = []
    others = [i for i in range(k + 1, len(rows)) if rows[i][k] != ZERO]
    if not others:
        return found, None
    largest = pairs.norm_sqr(g, rows[k][k])
    for i in others:
        size = pairs.norm_sqr(g, rows[i][k])
        condition: int | None = None
        if rows[k][k] != ZERO:
            a, b = g.literal(largest), g.literal(size)
            if a is None or b is None:
                condition = g.emit("lt", largest, size)
            elif not a < b:
                continue
        found.append((i, condition))
        for column in range(k, len(rows)):
            pair = [rows[k][column], rows[i][column]]
            _exchange(g, pair, 0, 1, condition)
            rows[k][column], rows[i][column] = pair
        largest = size if condition is None else g.select(condition, size, largest)
    return found, largest


def _exchange_entries(g: Graph, x: list[Pair], k: int, exchanges: Sequence[Exchange]) -> None:
    for i, condition in exchanges:
        _exchange(g, x, k, i, condition)


def _exchange(g: Graph, x: list[Pair], a: int, b: int, condition: int | None) -> None:
    """Exchange two entries where the condition holds."""
    first, second = x[a], x[b]
    if condition is None:
        x[a], x[b] = second, first
    else:
        x[a] = _choose(g, condition, second, first)
        x[b] = _choose(g, condition, first, second)


def _choose(g: Graph, condition: int, a: Pair, b: Pair) -> Pair:
    def part(x: int | None, y: int | None) -> int | None:
        if x is None and y is None:
            return None
        zero = g.const(0.0)
        return g.select(condition, zero if x is None else x, zero if y is None else y)

    return Pair(part(a.re, b.re), part(a.im, b.im))


def _reciprocal(g: Graph, pivot: Pair, size: int | None) -> Pair:
    """``1 / pivot``; infinite or NaN for a zero, a structural one too, NaN if `size` overflows."""
    one = g.const(1.0)
    if pivot == ZERO:
        return Pair(g.div(one, g.const(0.0)), None)
    if pivot.re is not None and pivot.im is not None:
        size = pairs.norm_sqr(g, pivot) if size is None else size
        # Without the difference 1/inf would make a plausible zero of the whole column.
        scale = Pair(g.add(g.div(one, size), g.sub(size, size)), None)
        return pairs.mul(g, pairs.conj(g, pivot), scale)
    inverse = pairs.div(g, Pair(one, None), pivot)
    if size is None or g.literal(size) is not None:
        return inverse
    overflow = g.sub(size, size)
    if inverse.re is not None:
        return Pair(g.add(inverse.re, overflow), None)
    return Pair(None, g.add(pairs.im(g, inverse), overflow))


def _poison(
    g: Graph, lower: list[dict[int, Pair]], upper: list[list[Pair]], inverses: list[Pair]
) -> int | None:
    """Zero times the reciprocals of the pivots that are not literals.

    A zero pivot turns the rest of a full triangle into NaN by itself. Past an exact zero it does
    not get through: component 0 of a diagonal system never meets the other pivots.
    """
    total: int | None = None
    if is_full(lower, upper):
        return total
    for inverse in inverses:
        size = pairs.re(g, inverse) if inverse.re is not None else pairs.im(g, inverse)
        if g.literal(size) is None:
            term = g.mul(g.const(0.0), size)
            total = term if total is None else g.add(total, term)
    return total


def is_full(lower: Sequence[dict[int, Pair]], upper: Sequence[Sequence[Pair]]) -> bool:
    """Whether no element of the factors is an exact zero."""
    n = len(lower)
    return all(len(lower[k]) == n - 1 - k for k in range(n)) and all(
        upper[k][j] != ZERO for k in range(n) for j in range(k + 1, n)
    )
