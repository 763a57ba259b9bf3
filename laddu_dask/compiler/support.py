"""How many products a separable form would have, found before any is formed.

Products of sums multiply: a few nested ones make more terms than any model is worth. Counting them
by their parameter factors alone takes a hundredth of the time of building them.
"""

from __future__ import annotations

from collections.abc import Iterable

from laddu_dask.compiler.algebra import Algebra
from laddu_dask.compiler.ir import PARAMETER
from laddu_dask.compiler.terms import Factor, Term

#: More products than this are not worth their statistics.
MOST_PRODUCTS = 4096
#: Pairs of products that are tried on the way there: in one multiplication, and in a model.
MOST_PAIRS = 4 * MOST_PRODUCTS
MOST_PAIRS_IN_ALL = 4 * MOST_PAIRS

#: Parameter factors of a product: base and whether it is below the bar, with its exponent.
Key = frozenset[tuple[Term, int]]
Keys = frozenset[Key]


class NotSeparableError(Exception):
    """The term is no polynomial of parameter values, or one of too many products."""


class Support:
    """Parameter factors of the products that make up the polynomials of terms.

    Parameters
    ----------
    algebra
        Owner of the terms.
    """

    def __init__(self, algebra: Algebra) -> None:
        self._algebra = algebra
        self._known: dict[Term, Keys | None] = {}
        self._accepted: Keys = frozenset()
        self._pairs = 0

    def accept(self, term: Term) -> bool:
        """Whether the term joins those accepted before without making too many products."""
        keys = self._of(term)
        if keys is None or len(self._accepted | keys) > MOST_PRODUCTS:
            return False
        self._accepted |= keys
        return True

    def _of(self, root: Term) -> Keys | None:
        """Keys of a term, None if it is no polynomial or one of too many products."""
        stack = [root]
        while stack:
            term = stack[-1]
            if term not in self._known:
                if term.kind & PARAMETER and term.kind != PARAMETER:
                    below = [arg for arg in term.args if arg not in self._known]
                    if below:
                        stack.extend(below)
                        continue
                try:
                    self._known[term] = self._rule(term)
                except NotSeparableError:
                    self._known[term] = None
            stack.pop()
        return self._known[root]

    def _rule(self, term: Term) -> Keys:
        if not term.kind & PARAMETER:
            return frozenset({frozenset()})
        if term.kind == PARAMETER:
            return frozenset({_key(self._algebra.factors(term)[1])})
        operands = [self._operand(arg) for arg in term.args]
        if term.op in {"add", "complex"}:
            return self._limited(frozenset().union(*operands))
        if term.op == "mul":
            return self._product(operands)
        if term.op == "pow" and term.exponent > 0:
            return self._product(operands * term.exponent)
        if term.op in {"conj", "norm_sqr", "re", "im"}:
            conjugate = frozenset(map(self._conjugate, operands[0]))
            if term.op == "conj":
                return conjugate
            if term.op == "norm_sqr":
                return self._product([operands[0], conjugate])
            return self._limited(operands[0] | conjugate)
        raise NotSeparableError(term.op)

    def _operand(self, term: Term) -> Keys:
        keys = self._known[term]
        if keys is None:
            raise NotSeparableError(term.op)
        return keys

    def _product(self, operands: list[Keys]) -> Keys:
        result, *others = operands
        for keys in others:
            pairs = len(result) * len(keys)
            self._pairs += pairs
            if pairs > MOST_PAIRS or self._pairs > MOST_PAIRS_IN_ALL:
                raise NotSeparableError("too many products")
            result = frozenset(
                _key((*left, *right)) if left and right else left or right
                for left in result
                for right in keys
            )
        return self._limited(result)

    def _limited(self, keys: Keys) -> Keys:
        if len(keys) > MOST_PRODUCTS:
            raise NotSeparableError("too many products")
        return keys

    def _conjugate(self, key: Key) -> Key:
        return frozenset((self._algebra.conj(base), exponent) for base, exponent in key)


def _key(factors: Iterable[Factor]) -> Key:
    """Factors with the exponents of one base and sign added up, as products add them."""
    powers: dict[tuple[Term, bool], int] = {}
    for base, exponent in factors:
        place = base, exponent > 0
        powers[place] = powers.get(place, 0) + exponent
    return frozenset((base, exponent) for (base, _), exponent in powers.items())
