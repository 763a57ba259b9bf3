"""Separable forms: intensities whose sum over events needs no event once it has been prepared.

An intensity that is a polynomial in values of parameters, with coefficients that are values of
events, is ``sum_k P_k E_k``. Its sum over weighted events is ``sum_k P_k S_k`` with the statistics
``S_k = sum w E_k``, which do not depend on parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from laddu_dask.compiler.algebra import Algebra
from laddu_dask.compiler.ir import PARAMETER
from laddu_dask.compiler.support import MOST_PRODUCTS, NotSeparableError, Support
from laddu_dask.compiler.terms import Term

#: Parameter factor -> event factor.
Polynomial = dict[Term, Term]


@dataclass(frozen=True)
class Product:
    """One real summand ``factor Re(parameters) Re(events)``, or both imaginary parts.

    Attributes
    ----------
    factor
        1, or 2 for a product and its conjugate; negative for imaginary parts.
    parameters, events
        The two factors.
    part
        ``re`` or ``im``: of both factors.
    """

    factor: float
    parameters: Term
    events: Term
    part: str


def separate(algebra: Algebra, root: Term) -> tuple[list[Product], Term | None]:
    """Split the real part of a term into separable products and the rest.

    Returns
    -------
    products, residual
        The residual is None when everything is separable.
    """
    separable: Polynomial = {}
    residual: list[Term] = []
    support, polynomials = Support(algebra), _Polynomials(algebra)
    for term in root.args if root.op == "add" else (root,):
        if not support.accept(term):  # at a fraction of the cost of trying
            residual.append(term)
            continue
        try:
            separable = polynomials.merge([separable, polynomials.of(term)])
        except NotSeparableError:
            residual.append(term)
    rest = algebra.part("re", algebra.add(residual)) if residual else None
    return _pack(algebra, separable), rest


def _pack(algebra: Algebra, polynomial: Polynomial) -> list[Product]:
    """Real parts of the products; a product and its conjugate are one."""
    products: list[Product] = []
    done: set[Term] = set()
    for parameters, events in polynomial.items():
        if parameters in done:
            continue
        done.add(parameters)
        other = algebra.conj(parameters)
        factor = 1.0
        # A conjugate need not fold as its original did: sqrt(z)**2 is z, conj(sqrt(z))**2 stays.
        pending = other is not parameters and other not in done
        if pending and polynomial.get(other) is algebra.conj(events):
            done.add(other)
            factor = 2.0
        products.append(Product(factor, parameters, events, "re"))
        if not parameters.real and not events.real:
            products.append(Product(-factor, parameters, events, "im"))
    return products


class _Polynomials:
    """Polynomials of terms, each worked out once."""

    def __init__(self, algebra: Algebra) -> None:
        self.algebra = algebra
        self._one = algebra.lit(1.0)
        self._known: dict[Term, Polynomial] = {}
        self._keys: dict[tuple[Term, Term], tuple[Term, Term]] = {}

    def of(self, root: Term) -> Polynomial:
        """Polynomial of a term; operands first, so that depth does not matter."""
        stack: list[tuple[Term, bool]] = [(root, False)]
        while stack:
            term, ready = stack.pop()
            if term in self._known:
                continue
            if ready or not self._is_composed(term):
                self._known[term] = self._rule(term)
            else:
                stack.append((term, True))
                stack.extend((arg, False) for arg in term.args)
        return self._known[root]

    def _is_composed(self, term: Term) -> bool:
        return bool(term.kind & PARAMETER) and term.kind != PARAMETER

    def _rule(self, term: Term) -> Polynomial:
        a = self.algebra
        if not term.kind & PARAMETER:
            return {self._one: term}
        if term.kind == PARAMETER:
            literal, factors = a.factors(term)
            return {a.mul(a.raised(base, n) for base, n in factors): a.lit(literal)}
        operands = [self._known[arg] for arg in term.args]
        if term.op == "add":
            return self.merge(operands)
        if term.op == "mul":
            return self._product(operands)
        if term.op == "pow" and term.exponent > 0:
            return self._product(operands * term.exponent)
        if term.op == "conj":
            return self._conj(operands[0])
        if term.op == "norm_sqr":
            return self._product([operands[0], self._conj(operands[0])])
        if term.op == "re":
            return self._scaled(self.merge([operands[0], self._conj(operands[0])]), 0.5)
        if term.op == "im":
            opposite = self._scaled(self._conj(operands[0]), -1.0)
            return self._scaled(self.merge([operands[0], opposite]), -0.5j)
        if term.op == "complex":
            return self.merge([operands[0], self._scaled(operands[1], 1j)])
        raise NotSeparableError(term.op)

    def merge(self, polynomials: Iterable[Polynomial]) -> Polynomial:
        """Sum."""
        parts: dict[Term, list[Term]] = {}
        for polynomial in polynomials:
            for key, value in polynomial.items():
                parts.setdefault(key, []).append(value)
        if len(parts) > MOST_PRODUCTS:
            raise NotSeparableError("too many products")
        return {key: self.algebra.add(values) for key, values in parts.items()}

    def _product(self, polynomials: list[Polynomial]) -> Polynomial:
        a, result = self.algebra, polynomials[0]
        for polynomial in polynomials[1:]:
            if len(result) * len(polynomial) > 4 * MOST_PRODUCTS:
                raise NotSeparableError("too many products")
            parts: dict[Term, list[Term]] = {}
            for left, x in result.items():
                for right, y in polynomial.items():
                    literal, key = self._key(left, right)
                    parts.setdefault(key, []).append(a.mul([literal, x, y]))
            result = {key: a.add(values) for key, values in parts.items()}
        return result

    def _key(self, left: Term, right: Term) -> tuple[Term, Term]:
        """A product of parameter factors as a literal and what is left."""
        known = self._keys.get((left, right))
        if known is None:
            a = self.algebra
            literal, factors = a.factors(a.mul([left, right]))
            key = a.mul(a.raised(base, n) for base, n in factors)
            known = self._keys[left, right] = a.lit(literal), key
        return known

    def _conj(self, polynomial: Polynomial) -> Polynomial:
        a = self.algebra
        return {a.conj(key): a.conj(value) for key, value in polynomial.items()}

    def _scaled(self, polynomial: Polynomial, factor: complex) -> Polynomial:
        a = self.algebra
        return {key: a.mul([a.lit(factor), value]) for key, value in polynomial.items()}
