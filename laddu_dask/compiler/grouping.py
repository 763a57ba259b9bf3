"""From normal form to real IR, with the factors of every product grouped by dependency class.

Work inside the event loop is what costs, so mixed values should be few: a product is
``(parameters) (events) (mixed)`` with each group formed outside the loop, and a sum of products of
parameters and events is covered by few columns or few frontier values.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

from laddu_dask.compiler import pairs, powers, systems
from laddu_dask.compiler.algebra import Algebra
from laddu_dask.compiler.assumptions import Check, Guard, Property
from laddu_dask.compiler.ir import EVENT, MIXED, PARAMETER, Graph
from laddu_dask.compiler.literals import times
from laddu_dask.compiler.pairs import Pair
from laddu_dask.compiler.presence import REAL, forms, positive_zero
from laddu_dask.compiler.terms import Term

_ONE = 1.0
_DEEPEST_DISTRIBUTION = 4


class Product(NamedTuple):
    """A literal and factors by class, each group in canonical order."""

    literal: complex | float
    parameters: tuple[Term, ...]
    events: tuple[Term, ...]
    mixed: tuple[Term, ...]


def walk_terms(*roots: Term) -> list[Term]:
    """Terms below `roots`, each once, operands first."""
    seen: set[Term] = set()
    order: list[Term] = []
    stack: list[tuple[Term, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        term, ready = stack.pop()
        if ready:
            order.append(term)
        elif term not in seen:
            seen.add(term)
            stack.append((term, True))
            stack.extend((arg, False) for arg in reversed(term.args))
    return order


class Grouping:
    """Lowers terms to pairs of IR values.

    Parameters
    ----------
    algebra
        Owner of the terms.
    distribute
        Open a factor over a linear form whose other factors are not mixed.

    Attributes
    ----------
    graph
        The values.
    checks, guards
        What was taken for granted about values of events and of parameters.
    distributable
        Whether there was something to distribute, wanted or not.
    """

    def __init__(self, algebra: Algebra, *, distribute: bool) -> None:
        self.algebra = algebra
        self.distribute = distribute
        self.graph = Graph()
        self.checks: list[Check] = []
        self.guards: list[Guard] = []
        self.distributable = False
        self._done: dict[Term, Pair] = {}
        self._conditions: dict[Term, int] = {}
        self._splits: dict[Term, Product] = {}
        self._linear: dict[tuple[Term, int], bool] = {}
        self._shared: dict[tuple[tuple[Term, ...], tuple[Term, ...]], int] = {}

    def lower(self, *roots: Term) -> list[Pair]:
        """Lower terms and everything below them."""
        order = walk_terms(*roots)
        for term in order:
            if term.op == "add" and term.kind == MIXED:
                keys = {(t.events, t.mixed) for t in self._terms(term) if t.events and t.mixed}
                for key in keys:
                    self._shared[key] = self._shared.get(key, 0) + 1
        for term in order:
            if term.op not in _CONDITIONS:
                self._pair(term)
        present = {self.algebra.reasons[term] for term in order if term in self.algebra.reasons}
        self._record_assumptions(present | self.algebra.relied)
        return [self._done[root] for root in roots]

    def _record_assumptions(self, used: set[tuple[Term, Property]]) -> None:
        """Leave out signs that do not matter: the root of sqrt(x)**2 has gone, whatever x is."""
        for term, assumed in list(self.algebra.assumed):
            if assumed != "finite" and (term, assumed) not in used:
                continue
            for value in self._pair(term):
                if value is None:
                    continue
                if self.graph.kinds[value] == EVENT:
                    self.checks.append(Check(value, assumed, term.digest))
                elif self.graph.kinds[value] == PARAMETER:
                    self.guards.append(Guard(value, assumed))

    def _pair(self, term: Term) -> Pair:
        found = self._done.get(term)
        if found is None:
            found = self._done[term] = self._lower(term)
        return found

    # products and sums of classes ------------------------------------------------------------

    def _split(self, term: Term) -> Product:
        found = self._splits.get(term)
        if found is None:
            found = self._splits[term] = self._by_class(term)
        return found

    def _by_class(self, term: Term) -> Product:
        literal, factors = self.algebra.factors(term)
        groups: dict[int, list[Term]] = {PARAMETER: [], EVENT: [], MIXED: []}
        for base, exponent in factors:
            raised = self.algebra.raised(base, exponent)
            # A constant that is no literal, such as cos(1), rides with the parameters.
            groups[raised.kind or PARAMETER].append(raised)
        return Product(literal, *(_sorted(groups[k]) for k in (PARAMETER, EVENT, MIXED)))

    def _terms(self, term: Term, outer: Product | None = None, depth: int = 0) -> list[Product]:
        """A sum as products; with `distribute`, factors are carried into linear forms."""
        result = []
        for part in term.args if term.op == "add" else (term,):
            product = self._split(part)
            if outer is not None:
                product = Product(
                    times(outer.literal, product.literal),
                    _sorted((*product.parameters, *outer.parameters)),
                    _sorted((*product.events, *outer.events)),
                    _sorted((*product.mixed, *outer.mixed)),
                )
            if len(product.mixed) != 1 or not self._is_linear(product.mixed[0], depth):
                result.append(product)
                continue
            self.distributable = True
            if self.distribute:
                without = product._replace(mixed=())
                result += self._terms(product.mixed[0], without, depth + 1)
            else:
                result.append(product)
        return result

    def _is_linear(self, term: Term, depth: int) -> bool:
        """A sum of products of parameters and events, possibly nested."""
        if term.op != "add" or depth >= _DEEPEST_DISTRIBUTION:
            return False
        found = self._linear.get((term, depth))
        if found is None:
            mixed = [self._split(part).mixed for part in term.args]
            found = self._linear[term, depth] = all(
                not factors or (len(factors) == 1 and self._is_linear(factors[0], depth + 1))
                for factors in mixed
            )
        return found

    def _literal(self, value: complex | float) -> Pair:
        return pairs.literal(self.graph, value)

    def _multiply(self, factors: Iterable[Pair | None]) -> Pair:
        """Product with the real factors first, which saves complex multiplications."""
        present = [factor for factor in factors if factor is not None]
        present.sort(key=lambda pair: pair.im is not None)
        total = present[0]
        for factor in present[1:]:
            total = pairs.mul(self.graph, total, factor)
        return total

    def _of(self, factors: Sequence[Term], literal: complex | float = _ONE) -> Pair:
        terms = list(factors)
        if literal != _ONE:
            terms.append(self.algebra.lit(literal))
        return self._pair(self.algebra.mul(terms))

    def _product(self, product: Product) -> Pair:
        """Literal and parameters outside the loop, events in a column, mixed factors inside."""
        literal, parameters, events, mixed = product
        if not mixed and not parameters:
            return self._of(events, literal)
        p = self._of(parameters, literal) if parameters or literal != _ONE else None
        e = self._of(events) if events else None
        x = self._multiply([self._pair(term) for term in mixed]) if mixed else None
        if p is None or e is None or x is None:
            return self._multiply([p, e, x])
        if self._shared.get((events, mixed), 0) > 1:
            return pairs.mul(self.graph, self._multiply([e, x]), p)
        if e.im is None and p.im is None:
            return pairs.mul(self.graph, pairs.mul(self.graph, e, p), x)
        return pairs.mul(self.graph, pairs.mul(self.graph, p, x), e)

    def _sum(self, products: Sequence[Product]) -> Pair:
        a = self.algebra
        constant: complex | float | None = None
        only_p: list[Term] = []
        only_e: list[Term] = []
        bilinear: list[Product] = []
        by_mixed: dict[tuple[Term, ...], list[Product]] = {}
        for product in products:
            if product.mixed:
                by_mixed.setdefault(product.mixed, []).append(product)
            elif product.parameters and product.events:
                bilinear.append(product)
            elif product.parameters:
                only_p.append(self._term(product.parameters, product.literal))
            elif product.events:
                only_e.append(self._term(product.events, product.literal))
            else:
                constant = product.literal if constant is None else constant + product.literal
        if constant is not None:
            (only_p or only_e or only_p).append(a.lit(constant))
        parts = [self._pair(a.add(terms)) for terms in (only_p, only_e) if terms]
        parts += self._cover(bilinear)
        for mixed, group in by_mixed.items():
            parts += self._common_mixed(mixed, group)
        total = parts[0]
        for part in parts[1:]:
            total = pairs.add(self.graph, total, part)
        return total

    def _term(self, factors: Sequence[Term], literal: complex | float) -> Term:
        return self.algebra.mul(
            [*factors, *([] if literal == _ONE else [self.algebra.lit(literal)])]
        )

    def _common_mixed(self, mixed: tuple[Term, ...], group: list[Product]) -> list[Pair]:
        """Terms with one mixed factor: factored out, unless the product is shared elsewhere."""
        if len(group) > 1 and not any(
            self._shared.get((product.events, mixed), 0) > 1 for product in group
        ):
            inner = self._sum([product._replace(mixed=()) for product in group])
            return [self._multiply([inner, *(self._pair(term) for term in mixed)])]
        by_events: dict[tuple[Term, ...], list[Product]] = {}
        for product in group:
            by_events.setdefault(product.events, []).append(product)
        result = []
        for events, same in by_events.items():
            if len(same) == 1:
                result.append(self._product(same[0]))
                continue
            total = self.algebra.add(self._term(p.parameters, p.literal) for p in same)
            result.append(self._product(Product(_ONE, (total,), events, mixed)))
        return result

    def _cover(self, products: list[Product]) -> list[Pair]:
        """Sum of literal P E: cover the pairs (P, E) with few sums of one side.

        Greedy minimum vertex cover: the factor with most partners first; on a tie the event side,
        whose sum of parameters needs no new column.
        """
        partners: dict[tuple[bool, tuple[Term, ...]], list[int]] = {}
        for i, product in enumerate(products):
            partners.setdefault((False, product.parameters), []).append(i)
            partners.setdefault((True, product.events), []).append(i)
        degree = {key: len(found) for key, found in partners.items()}
        waiting = [(-n, not key[0], partners[key][0], key) for key, n in degree.items()]
        heapq.heapify(waiting)
        taken = [False] * len(products)
        parts = []
        while waiting:
            n, parameters_side, first, key = heapq.heappop(waiting)
            if not degree[key]:
                continue
            if degree[key] != -n or taken[first]:  # products have gone since: rank it anew
                first = next(i for i in partners[key] if not taken[i])
                heapq.heappush(waiting, (-degree[key], parameters_side, first, key))
                continue
            picked = [products[i] for i in partners[key] if not taken[i]]
            for i in partners[key]:
                taken[i] = True
            for p in picked:
                degree[False, p.parameters] -= 1
                degree[True, p.events] -= 1
            if len(picked) == 1:
                parts.append(self._product(picked[0]))
                continue
            others = self.algebra.add(
                self._term(p.events if parameters_side else p.parameters, p.literal) for p in picked
            )
            parts.append(self._multiply([self._of(key[1]), self._pair(others)]))
        return parts

    # single operations -----------------------------------------------------------------------

    def _lower(self, term: Term) -> Pair:
        if term.op in {"add", "mul"} and term.kind == MIXED:
            products = self._terms(term)
            return self._product(products[0]) if len(products) == 1 else self._sum(products)
        return _RULES[term.op](self, term)

    def _condition(self, root: Term) -> int:
        known, stack = self._conditions, [root]
        while stack:
            term = stack[-1]
            if term not in known:
                if term.op in {"and", "or", "not"}:
                    below = [arg for arg in term.args if arg not in known]
                    if below:
                        stack.extend(reversed(below))
                        continue
                    operands = [known[arg] for arg in term.args]
                else:
                    operands = [pairs.re(self.graph, self._pair(arg)) for arg in term.args]
                known[term] = self.graph.emit(term.op, *operands)
            stack.pop()
        return known[root]


_CONDITIONS = frozenset({"lt", "le", "eq", "and", "or", "not"})


def _sorted(terms: Iterable[Term]) -> tuple[Term, ...]:
    return tuple(sorted(terms, key=lambda term: term.digest))


def _system(self: Grouping, term: Term) -> Pair:
    component, n = cast(tuple[int, int], term.data)
    entries = [self._pair(arg) for arg in term.args]
    return systems.emit(self.graph, entries[: n * n], entries[n * n :])[component]


def _chain(function: Callable[[Graph, Pair, Pair], Pair]) -> Callable[[Grouping, Term], Pair]:
    def rule(self: Grouping, term: Term) -> Pair:
        operands = [self._pair(arg) for arg in term.args]
        if function is pairs.mul:
            return self._multiply(operands)
        total = operands[0]
        for operand in operands[1:]:
            total = function(self.graph, total, operand)
        return total

    return rule


def _unary(function: Callable[[Graph, Pair], Pair]) -> Callable[[Grouping, Term], Pair]:
    return lambda self, term: function(self.graph, self._pair(term.args[0]))


def _angle(self: Grouping, term: Term) -> Pair:
    y, x = (pairs.re(self.graph, self._pair(arg)) for arg in term.args)
    # Real factors have left the imaginary part, and give its zeros a sign anew.
    for base, _ in self.algebra.factors(term.args[0])[1]:
        if base.op == "im" and forms(self.graph, self._pair(base.args[0])) & REAL:
            y = positive_zero(self.graph, y)
    return Pair(self.graph.call("atan2", y, x), None)


def _extreme(self: Grouping, term: Term) -> Pair:
    a, b = (pairs.re(self.graph, self._pair(arg)) for arg in term.args)
    return Pair(pairs.extreme(self.graph, term.op, a, b), None)


_RULES: dict[str, Callable[[Grouping, Term], Pair]] = {
    "literal": lambda self, term: self._literal(term.value),
    "parameter": lambda self, term: Pair(
        self.graph.emit("parameter", payload=str(term.data)), None
    ),
    "column": lambda self, term: Pair(self.graph.emit("column", payload=str(term.data)), None),
    "add": _chain(pairs.add),
    "mul": _chain(pairs.mul),
    "pow": lambda self, term: pairs.power(
        self.graph,
        self._pair(term.args[0]),
        term.exponent,
    ),
    "conj": _unary(pairs.conj),
    "re": _unary(lambda g, a: Pair(pairs.re(g, a), None)),
    "im": _unary(lambda g, a: Pair(pairs.im(g, pairs.above(g, a)), None)),
    "norm_sqr": _unary(lambda g, a: Pair(pairs.norm_sqr(g, a), None)),
    "exp": _unary(pairs.exp),
    "sin": _unary(pairs.sin),
    "cos": _unary(pairs.cos),
    "tan": _unary(pairs.tan),
    "asin": _unary(pairs.asin),
    "atan": _unary(pairs.atan),
    "sinh": _unary(pairs.sinh),
    "cosh": _unary(pairs.cosh),
    "tanh": _unary(pairs.tanh),
    "abs": _unary(lambda g, a: Pair(pairs.modulus(g, a), None)),
    "minimum": _extreme,
    "maximum": _extreme,
    "power": lambda self, term: powers.power(
        self.graph, *(self._pair(arg) for arg in term.args), nonnegative=term.data is True
    ),
    "sqrt": lambda self, term: pairs.sqrt(
        self.graph, self._pair(term.args[0]), nonnegative=term.data is True
    ),
    "log": lambda self, term: pairs.log(
        self.graph, self._pair(term.args[0]), nonnegative=term.data is True
    ),
    "atan2": _angle,
    "complex": lambda self, term: Pair(
        pairs.re(self.graph, self._pair(term.args[0])),
        pairs.re(self.graph, self._pair(term.args[1])),
    ),
    "solve": _system,
    "where": lambda self, term: pairs.select(
        self.graph,
        self._condition(term.args[0]),
        self._pair(term.args[1]),
        self._pair(term.args[2]),
    ),
}
