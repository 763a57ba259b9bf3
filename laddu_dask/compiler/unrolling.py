"""Systems of equations as straight-line code of a program.

All components, and the adjoint system with them, share one factorisation of the matrix in a fixed
order. A region repeats a solution with partial pivoting for the events whose factors are not
accurate; it factorises again, which is rare enough.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from laddu_dask.compiler import elimination, pairs, threshold
from laddu_dask.compiler.ir import Graph, Instruction, Region, compact
from laddu_dask.compiler.pairs import Pair
from laddu_dask.compiler.systems import entries, order, position, rows

_METHODS = {"solve": elimination.solve, "solve_adjoint": elimination.solve_adjoint}


class Unrolling:
    """Unrolls the systems of one program.

    Parameters
    ----------
    graph
        Graph that receives the operations.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._factors: dict[tuple[int, ...], _Factorised] = {}
        self._solutions: dict[tuple[str, tuple[int, ...]], list[Pair]] = {}
        self._regions: list[_Pivoted] = []

    def value(self, op: str, args: tuple[int, ...], payload: object, last: Collection[int]) -> int:
        """The value of one part of a solution.

        The unknowns `last` of a matrix without exact zeros are eliminated after all others. Where
        only they are read, no other is computed, and an adjoint system that is zero elsewhere
        begins there.
        """
        component, imaginary = position(payload)
        entry = self._solution(op, args, last)[component]
        return pairs.im(self._graph, entry) if imaginary else pairs.re(self._graph, entry)

    def _solution(self, op: str, args: tuple[int, ...], last: Collection[int]) -> list[Pair]:
        known = self._solutions.get((op, args))
        if known is None:
            g, n, system = self._graph, order(args), entries(args)
            matrix, rhs = system[: n * n], system[n * n :]
            key = args[: 2 * n * n]
            if key not in self._factors:
                self._factors[key] = _Factorised.of(g, rows(matrix), last)
            known = self._factors[key].solve(g, op, rhs)
            inaccurate = self._factors[key].inaccurate
            if inaccurate is not None:
                known = self._repaired(known, inaccurate, _Pivoted(g, op, matrix, rhs))
            self._solutions[op, args] = known
        return known

    def _repaired(self, fast: list[Pair], inaccurate: int, region: _Pivoted) -> list[Pair]:
        g = self._graph
        zero, slow_zero = g.const(0.0), region.graph.const(0.0)
        cold = g.emit("cold", inaccurate, *region.operands, payload=str(len(self._regions)))
        self._regions.append(region)

        def merge(value: int | None, slow: int | None) -> int | None:
            if value is None and slow is None:
                return None
            value = zero if value is None else value
            slow = slow_zero if slow is None else slow
            return g.emit("merge", cold, value, payload=str(slow))

        return [
            Pair(*map(merge, entry, slow))
            for entry, slow in zip(fast, region.solution, strict=True)
        ]

    def with_regions(self, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
        """The instructions of the program with its regions, which compute only what is merged."""
        merged: dict[int, list[int]] = {}
        finished = list(instructions)
        for index, (op, args, payload) in enumerate(instructions):
            if op == "merge":
                results = merged.setdefault(args[0], [])
                finished[index] = op, args, str(len(results))
                results.append(int(str(payload)))
        for index, results in merged.items():
            op, args, payload = instructions[index]
            finished[index] = op, args, self._regions[int(str(payload))].region(results)
        return tuple(finished)


@dataclass(frozen=True)
class _Factorised:
    """Factors of a matrix with rows and columns in another order.

    Attributes
    ----------
    order
        Which unknown, and equation, comes first, second, ...
    factors
        Of the reordered matrix.
    inaccurate
        Condition that they must not be used, or None.
    """

    order: list[int]
    factors: elimination.Factors
    inaccurate: int | None

    @classmethod
    def of(cls, g: Graph, matrix: Sequence[Sequence[Pair]], last: Collection[int]) -> _Factorised:
        full = all(
            elimination.without_zeros(g, x) != elimination.ZERO for row in matrix for x in row
        )
        # Another order may fill up exact zeros.
        order = sorted(range(len(matrix)), key=lambda k: full and k in last)
        factors, accurate = threshold.factorize(g, [[matrix[i][j] for j in order] for i in order])
        return cls(order, factors, None if accurate is None else g.emit("not", accurate))

    def solve(self, g: Graph, op: str, rhs: Sequence[Pair]) -> list[Pair]:
        found = _METHODS[op](g, self.factors, [rhs[k] for k in self.order])
        return [entry for _, entry in sorted(zip(self.order, found, strict=True))]


class _Pivoted:
    """A whole solution with partial pivoting, in a graph of its own."""

    def __init__(self, outer: Graph, op: str, matrix: Sequence[Pair], rhs: Sequence[Pair]) -> None:
        self.graph = Graph()
        self.operands: dict[int, int] = {}
        factors = elimination.factorize(self.graph, rows([self._copy(outer, x) for x in matrix]))
        self.solution = _METHODS[op](self.graph, factors, [self._copy(outer, x) for x in rhs])

    def _copy(self, outer: Graph, entry: Pair) -> Pair:
        def read(value: int) -> int:
            number = self.operands.setdefault(value, len(self.operands))
            return self.graph.emit("input", payload=str(number))

        def part(value: int | None) -> int | None:
            if value is None:
                return None
            known = outer.literal(value)
            if known is not None:
                return self.graph.const(known)
            op, args, _ = outer.ops[value]
            if op == "neg":  # signs are part of other operations in the outer graph
                return self.graph.neg(read(args[0]))
            return read(value)

        return Pair(part(entry.re), part(entry.im))

    def region(self, results: Sequence[int]) -> Region:
        """The code that computes these values."""
        return Region(*compact(self.graph, results))
