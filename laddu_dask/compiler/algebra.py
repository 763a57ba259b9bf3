"""Normal form of complex expressions: n-ary sums and products with merged powers.

Only identities that keep the value whenever every intermediate of the written form is finite are
applied. ``x / x`` stays two factors, since it must be NaN at zero, and ``0 x`` goes only under an
assumption that x is finite, which the run checks (`laddu_dask.compiler.assumptions`).

Terms are hash-consed. Operands are ordered by content digest, so the order of operations does not
depend on what else was built in the process.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Sequence

from laddu_dask.compiler.assumptions import Assumptions, Property
from laddu_dask.compiler.ir import EVENT, MIXED, PARAMETER
from laddu_dask.compiler.literals import is_one, literal_power, times, underflows
from laddu_dask.compiler.powers import half_turns
from laddu_dask.compiler.terms import Factor, Term

#: Operations that give a real value of real operands.
_KEEPS_REAL = frozenset(
    {"add", "mul", "pow", "exp", "sin", "cos", "tan", "sinh", "cosh", "tanh", "where", "solve"}
)
_ALWAYS_REAL = frozenset(
    {"parameter", "column", "re", "im", "norm_sqr", "atan2", "abs", "minimum", "maximum"}
)
#: Operations that commute with complex conjugation.
_COMMUTES = frozenset({"exp", "sin", "cos", "tan", "sinh", "cosh", "tanh"})
#: Finite when their operands are.
_POLYNOMIAL = frozenset(
    {"add", "mul", "conj", "re", "im", "norm_sqr", "complex", "abs", "minimum", "maximum"}
)

#: Sums and products with more operands stay one operand of another: to open each of n partial sums
#: that have other users too would take n**2 operands.
_LONG = 16
#: Counting stops here; operands that are shared at every level would give numbers without end.
_MOST_CONJUGATES = 1 << 30


class Algebra:
    """Constructors of terms.

    Parameters
    ----------
    assumptions
        What is taken for granted about event values and parameter values.

    Attributes
    ----------
    assumptions
        The same.
    assumed
        Property by term, for every assumption that was made.
    relied
        Those of them that a rewrite made use of, whether or not the root is still there: the
        imaginary part of a real root is zero, its squared modulus the argument.
    reasons
        Assumption behind a root, logarithm or power of a value taken to be not negative.
    """

    def __init__(self, assumptions: Assumptions) -> None:
        self.assumptions = assumptions
        self._known: dict[bytes, Term] = {}
        self.assumed: dict[tuple[Term, Property], None] = {}
        self.relied: set[tuple[Term, Property]] = set()
        self.reasons: dict[Term, tuple[Term, Property]] = {}
        self._known_real: set[Term] = set()
        self._conjugates: dict[Term, Term] = {}
        self._counts: dict[Term, int] = {}

    def copy(self) -> Algebra:
        """An algebra of the same terms, whose later terms and assumptions are its own."""
        new = Algebra(self.assumptions)
        for name in (
            "assumed",
            "relied",
            "reasons",
            "_known_real",
            "_conjugates",
            "_counts",
            "_known",
        ):
            setattr(new, name, getattr(self, name).copy())
        return new

    # construction ----------------------------------------------------------------------------

    def make(self, op: str, args: Sequence[Term] = (), data: object = None) -> Term:
        """The unique term with this content."""
        state = hashlib.blake2b(f"{len(op)}:{op}:{len(args)}:".encode(), digest_size=16)
        for arg in args:
            state.update(arg.digest)
        if isinstance(data, float):
            state.update(b"f" + struct.pack("<d", data))
        elif isinstance(data, complex):
            state.update(b"c" + struct.pack("<dd", data.real, data.imag))
        else:
            state.update(repr(data).encode())
        digest = state.digest()
        known = self._known.get(digest)
        if known is not None:
            return known
        kind = {"parameter": PARAMETER, "column": EVENT}.get(op, 0)
        for arg in args:
            kind |= arg.kind
        real = (
            op in _ALWAYS_REAL
            or (op == "literal" and isinstance(data, float))
            or (op in {"sqrt", "log"} and data is True)
            or (op == "power" and data is True and args[1].real)
            or (op in _KEEPS_REAL and all(arg.real for arg in args if arg.op not in _CONDITIONS))
        )
        term = Term(op, tuple(args), data, kind, real, digest)
        self._known[digest] = term
        return term

    def _is_real(self, term: Term) -> bool:
        """Whether a term is real, for a caller that makes use of it."""
        if not term.real:
            return False
        stack = [term]
        while stack:
            part = stack.pop()
            if part in self._known_real:
                continue
            self._known_real.add(part)
            if part in self.reasons:
                self.relied.add(self.reasons[part])
            if part.op in _KEEPS_REAL or part.op == "power":
                stack.extend(part.args)
        return True

    def lit(self, value: complex | float) -> Term:
        """A literal; a complex one with imaginary part +0.0 is real."""
        if isinstance(value, complex):
            if value.imag == 0 and math.copysign(1.0, value.imag) > 0:
                return self.make("literal", data=value.real)
            return self.make("literal", data=value)
        return self.make("literal", data=float(value))

    # sums ------------------------------------------------------------------------------------

    def add(self, terms: Iterable[Term]) -> Term:
        """Sum; literals are added up in the order given."""
        constant: complex | float | None = None
        rest: list[Term] = []
        stack = list(terms)[::-1]
        while stack:
            term = stack.pop()
            if term.op == "add" and len(term.args) <= _LONG:
                stack.extend(reversed(term.args))
            elif term.literal is not None:
                constant = term.literal if constant is None else constant + term.literal
            else:
                rest.append(term)
        if constant is not None and (constant != 0 or not rest):
            rest.append(self.lit(constant))
        if len(rest) == 1:
            return rest[0]
        return self.make("add", _ordered(rest))

    # products --------------------------------------------------------------------------------

    def factors(self, term: Term) -> tuple[complex | float, list[Factor]]:
        """Literal and (base, exponent) pairs of a product."""
        if term.literal is not None:
            return term.literal, []
        if term.op == "pow":
            return 1.0, [(term.args[0], term.exponent)]
        if term.op != "mul":
            return 1.0, [(term, 1)]
        literal: complex | float = 1.0
        found: list[Factor] = []
        for arg in term.args:
            if arg.op == "literal":
                literal = arg.value
            elif arg.op == "pow":
                found.append((arg.args[0], arg.exponent))
            else:
                found.append((arg, 1))
        return literal, found

    def raised(self, base: Term, exponent: int) -> Term:
        """A power as it stands, without rewriting."""
        return base if exponent == 1 else self.make("pow", (base,), exponent)

    def mul(self, terms: Iterable[Term]) -> Term:
        """Product; exponents of one sign add up, ``z conj(z)`` becomes ``|z|**2``."""
        literal: complex | float = 1.0
        powers: dict[tuple[Term, bool], int] = {}
        lost = False

        def absorb(term: Term) -> None:
            nonlocal literal, lost
            whole = term.op == "mul" and len(term.args) > _LONG
            k, found = (1.0, [(term, 1)]) if whole else self.factors(term)
            if not is_one(k):
                product = times(literal, k)
                lost = lost or (underflows(product) and not (underflows(k) or literal == 0))
                literal = product
            for base, exponent in found:
                key = (base, exponent > 0)
                powers[key] = powers.get(key, 0) + exponent

        for term in terms:
            absorb(term)
        self._pair_conjugates(powers, absorb)
        self._even_powers(powers, absorb)
        parts = [self.raised(base, exponent) for (base, _), exponent in powers.items()]
        if lost and parts:
            literal = math.nan  # what is multiplied between them may be large: only as written
        if literal == 0 and self._assume_finite(parts):
            return self.lit(0.0)
        if not parts:
            return self.lit(literal)
        if not is_one(literal):
            parts.append(self.lit(literal))
        return parts[0] if len(parts) == 1 else self.make("mul", _ordered(parts))

    def _pair_conjugates(
        self, powers: dict[tuple[Term, bool], int], absorb: Callable[[Term], None]
    ) -> None:
        for key in list(powers):
            base, positive = key
            if base.real or key not in powers:
                continue
            other = (self.conj(base), positive)
            if other[0] is base or other not in powers:
                continue
            count = min(abs(powers[key]), abs(powers[other]))
            sign = 1 if positive else -1
            for each in (key, other):
                powers[each] -= sign * count
                if not powers[each]:
                    del powers[each]
            absorb(self.pow(self.norm_sqr(base), sign * count))

    def _even_powers(
        self, powers: dict[tuple[Term, bool], int], absorb: Callable[[Term], None]
    ) -> None:
        """``sqrt(x)**(2k) -> x**k`` and ``abs(z)**(2k) -> norm_sqr(z)**k``: no root is left."""
        for key in list(powers):
            base = key[0]
            if base.op not in {"sqrt", "abs"} or abs(powers.get(key, 0)) < 2:
                continue
            exponent = powers.pop(key)
            half = int(math.copysign(abs(exponent) // 2, exponent))
            if exponent - 2 * half:
                powers[key] = exponent - 2 * half
            square = base.args[0] if base.op == "sqrt" else self.norm_sqr(base.args[0])
            absorb(self.pow(square, half))

    def _assume_finite(self, parts: list[Term]) -> bool:
        """Whether ``0 x`` may go: x is a polynomial of values whose finiteness the run checks."""
        leaves: list[Term] = []
        stack = list(parts)
        while stack:
            term = stack.pop()
            if term.kind != MIXED:
                if self.assumptions.is_open(term.digest):
                    return False
                if term.literal is None:
                    leaves.append(term)
            elif term.op in _POLYNOMIAL or (term.op == "pow" and term.exponent > 0):
                stack.extend(term.args)
            else:
                return False
        self.assumed.update(dict.fromkeys((leaf, "finite") for leaf in leaves))
        return True

    def pow(self, base: Term, exponent: int) -> Term:
        """Integer power, distributed over products; nested powers multiply."""
        if exponent == 1:
            return base
        if exponent == 0:
            return self.lit(1.0)
        value = base.literal
        folded = None if value is None else literal_power(value, exponent)
        if folded is not None:
            return self.lit(folded)
        if base.op == "mul":
            power = {True: self.raised, False: self.pow}  # as it stands of a product in a product
            return self.mul(
                [self._kept(arg, power[arg.op == "mul"](arg, exponent)) for arg in base.args]
            )
        if base.op == "pow":
            return self.pow(base.args[0], base.exponent * exponent)
        if base.op in {"sqrt", "abs"} and abs(exponent) >= 2:
            return self.mul([self.make("pow", (base,), exponent)])
        return self.make("pow", (base,), exponent)

    def _kept(self, factor: Term, power: Term) -> Term:
        """The power of a factor; NaN, which asks for the written form, if it is a lost literal."""
        k, result = factor.literal, power.literal
        lost = k is not None and result is not None and underflows(result) and not underflows(k)
        return self.lit(math.nan) if lost else power

    # parts -----------------------------------------------------------------------------------

    def conj(self, term: Term) -> Term:
        """Complex conjugate, pushed to the leaves except through branch cuts."""
        known, stack = self._conjugates, [term]
        while stack:  # operands first, each once: terms may be deep, and shared at every level
            top = stack[-1]
            if top not in known:
                if self._is_real(top):
                    known[top] = top
                else:
                    below = [arg for arg in _conjugated(top) if arg not in known]
                    if below:
                        stack.extend(reversed(below))
                        continue
                    known[top] = self._conjugate(top)
            stack.pop()
        return known[term]

    def _conjugate(self, term: Term) -> Term:
        known = self._conjugates
        if isinstance(term.data, complex):
            return self.lit(term.data.conjugate())
        if term.op == "conj":
            return term.args[0]
        if term.op == "add":
            return self.add([known[arg] for arg in term.args])
        if term.op == "mul":
            return self.make("mul", _ordered([known[arg] for arg in term.args]))
        if term.op == "pow":
            return self.pow(known[term.args[0]], term.exponent)
        if term.op in _COMMUTES:
            return self.make(term.op, (known[term.args[0]],))
        if term.op == "power" and term.data is True:
            if term in self.reasons:
                self.relied.add(self.reasons[term])
            return self.make("power", (term.args[0], known[term.args[1]]), True)
        return self.make("conj", (term,))

    def norm_sqr(self, term: Term) -> Term:
        """``|z|**2``, split over products and powers but not over sums."""
        if self._is_real(term):
            return self.pow(term, 2)
        if isinstance(term.data, complex):
            return self.lit(term.data.real * term.data.real + term.data.imag * term.data.imag)
        if term.op == "mul" and not _is_nested(term):
            return self.mul([self._kept(arg, self.norm_sqr(arg)) for arg in term.args])
        if term.op == "pow":
            return self.pow(self.norm_sqr(term.args[0]), term.exponent)
        if term.op == "conj":
            return self.norm_sqr(term.args[0])
        other = self.conj(term)
        if other.op != "conj" and self._by_conjugates(other) < self._by_conjugates(term):
            term = other
        return self.make("norm_sqr", (term,))

    def _by_conjugates(self, root: Term) -> tuple[int, bytes]:
        """Order of a sum and its conjugate: the one with fewer conjugates needs fewer negations."""
        counts, stack = self._counts, [root]
        while stack:
            term = stack[-1]
            if term not in counts:
                inner = term.args if term.op in {"add", "mul", "pow"} else ()
                below = [arg for arg in inner if arg not in counts]
                if below:
                    stack.extend(below)
                    continue
                total = sum(counts[arg] for arg in inner) + (term.op == "conj")
                counts[term] = min(total, _MOST_CONJUGATES)
            stack.pop()
        return counts[root], root.digest

    def absolute(self, term: Term) -> Term:
        """``|z|``, split over products and integer powers."""
        value = term.literal
        if isinstance(value, float):
            return self.lit(abs(value))
        if term.op in {"abs", "norm_sqr"} or (term.op == "exp" and self._is_real(term)):
            return term
        if term.op == "mul" and not _is_nested(term):
            return self.mul([self.absolute(arg) for arg in term.args])
        if term.op == "pow":
            return self.pow(self.absolute(term.args[0]), term.exponent)
        if term.op == "conj":
            return self.absolute(term.args[0])
        return self.make("abs", (term,))

    def part(self, name: str, term: Term) -> Term:
        """``re`` or ``im``; real factors move outside."""
        if self._is_real(term):
            return term if name == "re" else self.lit(0.0)
        literal, found = self.factors(term)
        outside = [self.raised(base, n) for base, n in found if self._is_real(base)]
        inside = [self.raised(base, n) for base, n in found if not base.real]
        if isinstance(literal, float) and not is_one(literal):
            outside.append(self.lit(literal))
            literal = 1.0
        if not outside or not inside:
            return self.make(name, (term,))
        if not is_one(literal):
            inside.append(self.lit(literal))
        return self.mul([*outside, self.make(name, (self.mul(inside),))])

    def sqrt(self, term: Term, *, nonnegative: bool) -> Term:
        """Principal root; positive literal factors move outside."""
        value = term.literal
        if isinstance(value, float):
            if value >= 0:
                return self.lit(math.sqrt(value))
            if value < 0:
                return self.lit(complex(0.0, math.sqrt(-value)))
        literal, found = self.factors(term)
        if found and isinstance(literal, float) and literal > 0 and not is_one(literal):
            inner = self.mul([self.raised(base, n) for base, n in found])
            root = self._root(inner, nonnegative)
            return self.mul([self.lit(math.sqrt(literal)), root])
        return self._root(term, nonnegative)

    def _root(self, term: Term, nonnegative: bool) -> Term:
        if nonnegative:
            return self.make("sqrt", (term,), True)
        sign = self._sign(term)
        if sign == "negative":
            opposite = self.mul([self.lit(-1.0), term])
            return self.mul([self.lit(1j), self._assuming(term, sign, "sqrt", (opposite,))])
        return self._assuming(term, sign, "sqrt", (term,))

    def _assuming(self, term: Term, sign: Property, op: str, args: tuple[Term, ...]) -> Term:
        """A function with a cut, off which an assumption about `term` keeps its argument."""
        result = self.make(op, args, sign != "open")
        if sign != "open":
            self.reasons[result] = (term, sign)
        return result

    def power(self, base: Term, exponent: Term, *, nonnegative: bool) -> Term:
        """``base**exponent`` on the principal branch; x**p is (-x)**p exp(i pi p) for x < 0."""
        if nonnegative:
            return self.make("power", (base, exponent), True)
        sign = self._sign(base)
        if sign != "negative":
            return self._assuming(base, sign, "power", (base, exponent))
        opposite = self.mul([self.lit(-1.0), base])
        value = exponent.literal
        turn = (
            self.lit(half_turns(value))
            if isinstance(value, float)
            else self.make("exp", (self.mul([self.lit(complex(0.0, math.pi)), exponent]),))
        )
        return self.mul([turn, self._assuming(base, sign, "power", (opposite, exponent))])

    def log(self, term: Term, *, nonnegative: bool) -> Term:
        """Principal logarithm."""
        if nonnegative:
            return self.make("log", (term,), True)
        sign = self._sign(term)
        if sign == "negative":
            opposite = self.mul([self.lit(-1.0), term])
            half_turn = self.lit(complex(0.0, math.pi))
            return self.add([self._assuming(term, sign, "log", (opposite,)), half_turn])
        return self._assuming(term, sign, "log", (term,))

    def _sign(self, term: Term) -> Property:
        """Sign that the argument of a root, logarithm or power is assumed to have."""
        if term.kind not in {EVENT, PARAMETER} or not self._is_real(term):
            return "open"
        sign = self.assumptions.sign(term.digest)
        if sign != "open":
            self.assumed[term, sign] = None
        return sign


_CONDITIONS = frozenset({"lt", "le", "eq", "and", "or", "not"})
_STATE = ("assumed", "relied", "reasons", "_known", "_known_real", "_conjugates", "_counts")


def _is_nested(product: Term) -> bool:
    """Whether a factor is a long product itself, which may hold another one, and so on."""
    return any(
        arg.op == "mul" or (arg.op == "pow" and arg.args[0].op == "mul") for arg in product.args
    )


def _conjugated(term: Term) -> tuple[Term, ...]:
    """Operands whose conjugates make up that of the term."""
    if term.op in {"add", "mul", "pow"} or term.op in _COMMUTES:
        return term.args
    return term.args[1:] if term.op == "power" and term.data is True else ()


def _ordered(terms: Iterable[Term]) -> tuple[Term, ...]:
    return tuple(sorted(terms, key=lambda term: term.digest))
