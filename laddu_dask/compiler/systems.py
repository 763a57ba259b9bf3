"""Systems of linear equations in the IR: one value per real part of a solution's components.

``solve`` and ``solve_adjoint`` values carry the whole system as operands, matrix first, row by row,
real and imaginary parts in turn; the payload says which part they are. They stay compound until a
program is cut, which unrolls them. There all components, and the adjoint system with them, share
one factorisation of the matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from laddu_dask.compiler import elimination, pairs
from laddu_dask.compiler.ir import PARAMETER, Graph
from laddu_dask.compiler.pairs import Pair

#: Operations on whole systems.
SYSTEMS = frozenset({"solve", "solve_adjoint"})


def emit(g: Graph, matrix: Sequence[Pair], rhs: Sequence[Pair]) -> list[Pair]:
    """Solution x of ``A x = rhs``, n pairs; solved at once if it is made of literals.

    Parameters
    ----------
    g
        Graph.
    matrix
        n**2 elements in row-major order.
    rhs
        n elements.
    """
    system = (*matrix, *rhs)
    if all(part is None or g.literal(part) is not None for entry in system for part in entry):
        return elimination.solve(g, elimination.factorize(g, _rows(matrix)), rhs)
    args = tuple(part for entry in system for part in (pairs.re(g, entry), pairs.im(g, entry)))
    return _solution(g, "solve", args)


def _solution(g: Graph, op: str, args: tuple[int, ...]) -> list[Pair]:
    is_real = all(g.literal(imaginary) == 0 for imaginary in args[1::2])
    # One after the other, so that whoever reads a component comes after all of them: the reverse
    # sweep handles them together.
    return [
        Pair(
            g.emit(op, *args, payload=f"{k} re"),
            None if is_real else g.emit(op, *args, payload=f"{k} im"),
        )
        for k in range(order(args))
    ]


def _rows(matrix: Sequence[Pair]) -> list[Sequence[Pair]]:
    n = math.isqrt(len(matrix))
    return [matrix[start : start + n] for start in range(0, n * n, n)]


def order(args: Sequence[int]) -> int:
    """Number of unknowns n of a system with ``2 n (n + 1)`` operands."""
    n = 1
    while 2 * n * (n + 1) < len(args):
        n += 1
    return n


def _entries(args: Sequence[int]) -> list[Pair]:
    return [Pair(args[i], args[i + 1]) for i in range(0, len(args), 2)]


def _position(payload: object) -> tuple[int, bool]:
    component, part = str(payload).split()
    return int(component), part == "im"


def siblings(g: Graph, index: int) -> Iterator[int]:
    """Other parts of the solution of which `index` is the last that is used."""
    op, args, _ = g.ops[index]
    below = index - 1
    while below >= 0 and g.ops[below][0] == op and g.ops[below][1] == args:
        yield below
        below -= 1


def pull_back(g: Graph, seeds: Mapping[int, int], *, lenient: bool) -> Iterator[tuple[int, int]]:
    """Adjoints of the operands of ``A x = b``: ``l = A^-H xbar``, ``bbar = l``, ``Abar = -l x^H``.

    Parameters
    ----------
    g
        Graph.
    seeds
        Adjoints of parts of one solution.
    lenient
        The seeds are zero where no event takes the branch of the solution: so is the result there,
        even if the matrix is singular.

    Yields
    ------
    operand, adjoint
        Operands that do not depend on parameters are left out.
    """
    _, args, _ = g.ops[next(iter(seeds))]
    n = order(args)
    zero = g.const(0.0)
    parts = [zero] * (2 * n)
    for index, seed in seeds.items():
        component, imaginary = _position(g.ops[index][2])
        parts[2 * component + imaginary] = seed
    entries = _entries(args)
    matrix, rhs = entries[: n * n], entries[n * n :]
    solution = _solution(g, "solve", args)
    adjoint = _solution(g, "solve_adjoint", (*args[: 2 * n * n], *parts))
    untaken: int | None = None
    for seed in dict.fromkeys(seeds.values()) if lenient else ():
        condition = g.emit("eq", seed, zero)
        untaken = condition if untaken is None else g.emit("and", untaken, condition)

    def reached(entry: Pair, value: Pair) -> Iterator[tuple[int, int]]:
        for operand, part in zip(entry, value, strict=True):
            if operand is not None and part is not None and g.kinds[operand] & PARAMETER:
                yield operand, part if untaken is None else g.select(untaken, zero, part)

    for k, entry in enumerate(rhs):
        yield from reached(entry, adjoint[k])
    for row in range(n):
        for column in range(n):
            entry = matrix[row * n + column]
            if any(part is not None and g.kinds[part] & PARAMETER for part in entry):
                product = pairs.mul(g, adjoint[row], pairs.conj(g, solution[column]))
                yield from reached(entry, pairs.neg(g, product))


class Unrolling:
    """Unrolls the systems of one program.

    Parameters
    ----------
    graph
        Graph that receives the operations.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._factors: dict[tuple[int, ...], elimination.Factors] = {}
        self._solutions: dict[tuple[str, tuple[int, ...]], list[Pair]] = {}

    def value(self, op: str, args: tuple[int, ...], payload: object) -> int:
        """The value of one part of a solution."""
        component, imaginary = _position(payload)
        entry = self._solution(op, args)[component]
        return pairs.im(self._graph, entry) if imaginary else pairs.re(self._graph, entry)

    def _solution(self, op: str, args: tuple[int, ...]) -> list[Pair]:
        known = self._solutions.get((op, args))
        if known is None:
            n, entries = order(args), _entries(args)
            key = args[: 2 * n * n]
            factors = self._factors.get(key)
            if factors is None:
                rows = _rows(entries[: n * n])
                factors = self._factors[key] = elimination.factorize(self._graph, rows)
            method = elimination.solve if op == "solve" else elimination.solve_adjoint
            known = self._solutions[op, args] = method(self._graph, factors, entries[n * n :])
        return known
