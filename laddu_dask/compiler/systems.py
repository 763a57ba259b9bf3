"""Systems of linear equations in the IR: one value per real part of a solution's components.

``solve`` and ``solve_adjoint`` values carry the whole system as operands, matrix first, row by row,
real and imaginary parts in turn; the payload says which part they are. They stay compound until a
program is cut, which unrolls them (`laddu_dask.compiler.unrolling`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from laddu_dask.compiler import branches, elimination, pairs
from laddu_dask.compiler.ir import PARAMETER, Graph
from laddu_dask.compiler.pairs import Pair
from laddu_dask.compiler.presence import declare, forms, of_partly_real

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
        return elimination.solve(g, elimination.factorize(g, rows(matrix)), rhs)
    args = tuple(part for entry in system for part in (pairs.re(g, entry), pairs.im(g, entry)))
    solution = _solution(g, "solve", args)
    found = of_partly_real(*(forms(g, entry) for entry in system))
    for entry in solution:
        declare(g, entry, found)
    return solution


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


def rows(matrix: Sequence[Pair]) -> list[Sequence[Pair]]:
    """Rows of n**2 elements."""
    n = math.isqrt(len(matrix))
    return [matrix[start : start + n] for start in range(0, n * n, n)]


def order(args: Sequence[int]) -> int:
    """Number of unknowns n of a system with ``2 n (n + 1)`` operands."""
    n = 1
    while 2 * n * (n + 1) < len(args):
        n += 1
    return n


def entries(args: Sequence[int]) -> list[Pair]:
    """Operands as pairs: the matrix row by row, then the right-hand side."""
    return [Pair(args[i], args[i + 1]) for i in range(0, len(args), 2)]


def position(payload: object) -> tuple[int, bool]:
    """Component and whether it is its imaginary part."""
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
        component, imaginary = position(g.ops[index][2])
        parts[2 * component + imaginary] = seed
    system = entries(args)
    matrix, rhs = system[: n * n], system[n * n :]
    solution = _solution(g, "solve", args)
    adjoint = _solution(g, "solve_adjoint", (*args[: 2 * n * n], *parts))

    def reached(entry: Pair, value: Pair) -> Iterator[tuple[int, int]]:
        for operand, part in zip(entry, value, strict=True):
            if operand is not None and part is not None and g.kinds[operand] & PARAMETER:
                yield operand, branches.reached(g, part, seeds.values()) if lenient else part

    for k, entry in enumerate(rhs):
        yield from reached(entry, adjoint[k])
    for row in range(n):
        for column in range(n):
            entry = matrix[row * n + column]
            if any(part is not None and g.kinds[part] & PARAMETER for part in entry):
                product = pairs.mul(g, adjoint[row], pairs.conj(g, solution[column]))
                yield from reached(entry, pairs.neg(g, product))


def push_forward(
    g: Graph, op: str, args: tuple[int, ...], tangents: Mapping[int, int]
) -> dict[int, int]:
    """Tangents of all parts of a solution, from those of the operands that have one.

    ``A x = b`` gives ``dx = A^-1 (db - dA x)``, and ``A^H y = c`` gives
    ``dy = A^-H (dc - dA^H y)``: systems with the same matrix, so that they share its factorisation.
    """
    n = order(args)
    moved = [
        Pair(*(tangents.get(part) for part in args[i : i + 2])) for i in range(0, len(args), 2)
    ]
    solution = _solution(g, op, args)
    rhs: list[int] = []
    for k in range(n):
        total = moved[n * n + k]
        for j in range(n):
            change = moved[k * n + j] if op == "solve" else pairs.conj(g, moved[j * n + k])
            total = pairs.sub(g, total, pairs.mul(g, change, solution[j]))
        rhs += [pairs.re(g, total), pairs.im(g, total)]
    found: dict[int, int] = {}
    for entry, tangent in zip(solution, _solution(g, op, (*args[: 2 * n * n], *rhs)), strict=True):
        for part, value in zip(entry, tangent, strict=True):
            if part is not None and value is not None:
                found[part] = value
    return found


def last_unknowns(g: Graph, needed: Iterable[int]) -> dict[tuple[int, ...], set[int]]:
    """For each matrix the unknowns that are read, apart from derivatives, and so best come last.

    They are those in which an adjoint system anywhere in the graph is not zero, so that a program
    with derivatives and one without them take the same order.
    """
    seeded: dict[tuple[int, ...], set[int]] = {}
    for op, args, _ in g.ops:
        if op == "solve_adjoint":
            n = order(args)
            rhs = entries(args)[n * n :]
            seeded.setdefault(args[: 2 * n * n], set()).update(
                k
                for k, entry in enumerate(rhs)
                if any(part is not None and g.literal(part) != 0 for part in entry)
            )
    found = dict(seeded)
    for index in needed:
        op, args, payload = g.ops[index]
        if op == "solve":
            key = args[: 2 * order(args) ** 2]
            if key not in seeded:
                found.setdefault(key, set()).add(position(payload)[0])
    return found
