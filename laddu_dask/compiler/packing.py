"""Incoherent sums of shared amplitudes as one quadratic form.

``S sum_h |sum_k c_hk u_k|**2`` with the same u_k in several sums is ``sum_jk R_jk u_j conj(u_k)``
with ``R_jk = S sum_h c_hj conj(c_hk)`` made of parameters only: the sum over h, the scale and most
adjoints leave the event loop, and amplitudes that share a resonance need only its modulus. It pays
when the sums are many and the amplitudes few, which the cost of both forms decides.

The products cancel where all sums nearly vanish; `LEAST_REMAINDER` says how far they may.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from laddu_dask.compiler.algebra import Algebra
from laddu_dask.compiler.ir import EVENT, MIXED
from laddu_dask.compiler.terms import Term

#: Products grow with the square of the amplitudes: packing cannot pay beyond this many per sum, and
#: beyond so many products in all it takes too long to find out.
_MOST_AMPLITUDES, _MOST_PRODUCTS = 8, 1 << 13


#: Least share of the squares that must be left; rounding stays below 1e-9 of the value. An event
#: with less counts as one that cannot be summed, and the written form is asked.
LEAST_REMAINDER = 2.0**-20


class _Form(NamedTuple):
    """``scale |sum coefficient amplitude|**2``."""

    scale: Term
    coefficients: dict[Term, Term]


class Packed(NamedTuple):
    """A value with its incoherent sums packed.

    Attributes
    ----------
    parts
        The squares ``R_jj |u_j|**2``, the interferences, and what else there is to add, if there is
        anything.
    scales
        Factors of the sums. Where none is negative no interference is larger than the squares.
    """

    parts: list[Term]
    scales: list[Term]


def pack(algebra: Algebra, root: Term) -> Packed | None:
    """Pack the incoherent sums of a value; None if none of them share amplitudes."""
    outer: list[Term] = []
    total = root
    if root.op == "mul":
        sums = [arg for arg in root.args if arg.op == "add" and arg.kind == MIXED]
        outer = [arg for arg in root.args if arg not in sums]
        if len(sums) != 1 or any(arg.kind & EVENT or not arg.real for arg in outer):
            return None
        (total,) = sums
    if total.op != "add":
        return None
    forms: list[_Form] = []
    rest: list[Term] = []
    for term in total.args:
        form = _form(algebra, term, outer)
        if form is None:
            rest.append(algebra.mul([*outer, term]))
        else:
            forms.append(form)
    squares: list[Term] = []
    interferences: list[Term] = []
    scales: list[Term] = []
    for group in _connected(forms):
        amplitudes = list(dict.fromkeys(u for form in group for u in form.coefficients))
        if _may_pay(len(group), len(amplitudes)):
            squares += _squares(algebra, group, amplitudes)
            interferences += _interferences(algebra, group, amplitudes)
            scales += [form.scale for form in group]
        else:
            rest += [_written(algebra, form) for form in group]
    if not squares or not interferences:
        return None
    parts = [algebra.add(terms) for terms in (squares, interferences, rest) if terms]
    return Packed(parts, scales)


def _may_pay(sums: int, amplitudes: int) -> bool:
    few = amplitudes <= _MOST_AMPLITUDES * sums
    return sums > 1 and few and amplitudes * amplitudes * sums <= 2 * _MOST_PRODUCTS


def _form(algebra: Algebra, term: Term, outer: Sequence[Term]) -> _Form | None:
    """A real factor of parameters times the squared modulus of a sum, if the term is that."""
    literal, factors = algebra.factors(term)
    mixed = [(base, n) for base, n in factors if base.kind & EVENT]
    scale = [algebra.raised(base, n) for base, n in factors if not base.kind & EVENT]
    if len(mixed) != 1 or not isinstance(literal, float) or not all(s.real for s in scale):
        return None
    (base, exponent), coefficients = mixed[0], dict[Term, list[Term]]()
    if exponent != 1 or base.op != "norm_sqr" or base.args[0].op != "add":
        return None
    for part in base.args[0].args:
        k, found = algebra.factors(part)
        raised = [algebra.raised(x, n) for x, n in found]
        amplitude = algebra.mul(x for x in raised if x.kind & EVENT)
        others = (x for x in raised if not x.kind & EVENT)
        coefficients.setdefault(amplitude, []).append(algebra.mul([*others, algebra.lit(k)]))
    total = algebra.mul([*outer, *scale, algebra.lit(literal)])
    if isinstance(total.literal, float) and total.literal < 0:
        return None
    return _Form(
        total,
        {amplitude: algebra.add(terms) for amplitude, terms in coefficients.items()},
    )


def _written(algebra: Algebra, form: _Form) -> Term:
    total = algebra.add(algebra.mul([c, u]) for u, c in form.coefficients.items())
    return algebra.mul([form.scale, algebra.norm_sqr(total)])


def _connected(forms: Sequence[_Form]) -> list[list[_Form]]:
    """Groups of forms that share amplitudes, directly or through others."""
    group = list(range(len(forms)))  # a form of the same group, before it or itself

    def first(of: int) -> int:
        while group[of] != of:
            group[of] = group[group[of]]
            of = group[of]
        return of

    owner: dict[Term, int] = {}
    for i, form in enumerate(forms):
        for amplitude in form.coefficients:
            one, two = first(owner.setdefault(amplitude, i)), first(i)
            group[max(one, two)] = min(one, two)
    members: dict[int, list[_Form]] = {}
    for i, form in enumerate(forms):
        members.setdefault(first(i), []).append(form)
    return list(members.values())


def _strength(algebra: Algebra, forms: Sequence[_Form], u: Term, v: Term) -> Term | None:
    """``sum_h scale_h c_hu conj(c_hv)``; None if no sum has both."""
    products = [
        algebra.mul([form.scale, form.coefficients[u], algebra.conj(form.coefficients[v])])
        for form in forms
        if u in form.coefficients and v in form.coefficients
    ]
    return algebra.add(products) if products else None


def _squares(algebra: Algebra, forms: Sequence[_Form], amplitudes: Sequence[Term]) -> list[Term]:
    """``R_jj |u_j|**2``."""
    strengths = [(u, _strength(algebra, forms, u, u)) for u in amplitudes]
    return [algebra.mul([r, algebra.norm_sqr(u)]) for u, r in strengths if r is not None]


def _interferences(
    algebra: Algebra, forms: Sequence[_Form], amplitudes: Sequence[Term]
) -> list[Term]:
    """``2 Re(R_jk u_j conj(u_k))`` of the pairs that meet, as real products."""
    a = algebra
    terms = []
    for j, u in enumerate(amplitudes):
        for v in amplitudes[j + 1 :]:
            strength = _strength(a, forms, u, v)
            if strength is None:
                continue
            both = a.mul([u, a.conj(v)])
            terms.append(a.mul([a.lit(2.0), a.part("re", strength), a.part("re", both)]))
            if not strength.real and not both.real:
                terms.append(a.mul([a.lit(-2.0), a.part("im", strength), a.part("im", both)]))
    return terms
