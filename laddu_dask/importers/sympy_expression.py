"""Expressions of SymPy, such as those of ampform, as expressions of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from laddu_dask.errors import ExpressionError, LadduError
from laddu_dask.expr import Expr, Predicate, as_expr, matrix, parameter, scalar, where
from laddu_dask.importers.sympy_functions import FUNCTIONS, LABELLED
from laddu_dask.importers.sympy_numbers import nearest_double

#: Most terms that a sum or product is unrolled to.
MAX_TERMS = 10_000
_RELATIONS: dict[str, Callable[..., Predicate]] = {
    "StrictLessThan": Expr.__lt__,
    "LessThan": Expr.__le__,
    "StrictGreaterThan": Expr.__gt__,
    "GreaterThan": Expr.__ge__,
    "Equality": Expr.__eq__,
    "Unequality": Expr.__ne__,
}
_MATRICES = {"ImmutableDenseMatrix", "ImmutableSparseMatrix"}


#: Never opened: what ``doit()`` makes of them may take for ever.
_CLOSED = {"Integral", "Limit"}


def from_sympy(
    expr: Any,
    symbols: Mapping[Any, Any] | None = None,
    *,
    parameters: Mapping[Any, float] | None = None,
    columns: Iterable[Any] = (),
) -> Expr:
    """An expression of SymPy as one of ours. Needs SymPy: the extra ``sympy``.

    Parts that occur more than once are one node, so that they are computed once; no common
    sub-expressions need to be looked for. Rational numbers and constants such as pi become the
    nearest double. Powers and roots are principal, as SymPy's.

    Known are sums, products, powers with any exponent, exp, log, the trigonometric and hyperbolic
    functions, asin, acos, atan, atan2, Abs, re, im, conjugate, arg, Max, Min, Piecewise with
    conditions of real values, Sum and Product with literal limits (unrolled), elements of explicit
    matrices, explicit matrices, WignerD and Ynm with literal labels. Of anything else ``doit()``
    is taken, which opens the unevaluated expressions of ampform.

    Two functions differ from SymPy outside their usual range: acos and asin of a real expression
    clamp beyond +-1, and Ynm takes theta in [0, pi] (``cos(theta)`` is all that enters).

    Parameters
    ----------
    expr
        Scalar, or explicit matrix.
    symbols
        What symbols stand for: a symbol, a part of the expression such as ``f(t)``, or a symbol's
        name, each with an `Expr` or a number.
    parameters
        Symbols, or names, of free parameters with their start values.
    columns
        Symbols, or names, that are event columns of the same name.

    Raises
    ------
    ExpressionError
        A symbol that stands for nothing, a kind of node that has no counterpart (named in the
        text and in the field `node`), or a number that is not finite.
    ImportError
        SymPy is not installed.
    TypeError
        `expr` is not of SymPy.
    """
    try:
        import sympy
    except ImportError as error:
        raise ImportError(
            "from_sympy needs SymPy, which is not installed; run: pip install 'laddu-dask[sympy]'"
        ) from error
    if isinstance(expr, sympy.MatrixBase):
        expr = expr.as_immutable()
    if not isinstance(expr, sympy.Basic):
        raise TypeError(f"from_sympy: needs an expression of SymPy, got {type(expr).__name__}")
    known: dict[Any, Expr] = {key: as_expr(value) for key, value in (symbols or {}).items()}
    for key, start in (parameters or {}).items():
        _add(known, key, parameter(_name(key), initial=float(start)))
    for key in columns:
        _add(known, key, scalar(_name(key)))
    found = _Reader(known).read(expr)
    if isinstance(found, Predicate):
        raise _refused(expr, "is a condition, and a condition is not a number")
    return found


def _add(known: dict[Any, Expr], key: Any, value: Expr) -> None:
    if key in known:
        raise ExpressionError(
            f"from_sympy: {key} is given twice", operation="from_sympy", shapes=[], node=str(key)
        )
    known[key] = value


def _name(key: Any) -> str:
    return str(getattr(key, "name", key))


def _refused(node: Any, problem: str) -> ExpressionError:
    kind = type(node).__name__
    return ExpressionError(
        f"from_sympy: {kind} {str(node)[:80]!r} {problem}",
        operation="from_sympy",
        shapes=[],
        node=kind,
    )


class _Reader:
    """One walk over an expression, operands first, without recursion; every part is read once."""

    def __init__(self, known: Mapping[Any, Expr]) -> None:
        self._known = known
        self._done: dict[Any, Expr | Predicate] = {}

    def read(self, root: Any) -> Expr | Predicate:
        stack: list[tuple[Any, tuple[Any, ...] | None]] = [(root, None)]
        entered: set[Any] = set()
        while stack:
            node, parts = stack.pop()
            if parts is not None:
                try:
                    self._done[node] = self._made(node, parts)
                except LadduError as error:
                    if "node" in error.context:
                        raise
                    raise _refused(node, f"cannot be built: {error}") from error
            elif node not in self._done:
                leaf = self._leaf(node)
                if leaf is not None:
                    self._done[node] = leaf
                    continue
                if node in entered:
                    raise _refused(node, "contains itself when doit() opens it")
                entered.add(node)
                parts = self._parts(node)
                stack.append((node, parts))
                stack.extend((part, None) for part in reversed(parts) if part not in self._done)
        return self._done[root]

    def _leaf(self, node: Any) -> Expr | Predicate | None:
        """What has no operands to read before: numbers, and what the caller has named."""
        if node in self._known:
            return self._known[node]
        if getattr(node, "is_Symbol", False):
            if node.name in self._known:
                return self._known[node.name]
            raise _refused(
                node,
                "stands for nothing; give it in symbols=, parameters= or columns= (a symbol with "
                "other assumptions is another symbol; a name stands for all)",
            )
        if getattr(node, "is_Number", False) or getattr(node, "is_NumberSymbol", False):
            try:
                return as_expr(nearest_double(node))
            except OverflowError as error:
                raise _refused(node, f"is no double: {error}") from error
        kind = type(node).__name__
        if kind == "ImaginaryUnit":
            return as_expr(1j)
        if kind in {"BooleanTrue", "BooleanFalse"}:
            zero = as_expr(0.0)
            return zero == zero if node else zero != zero
        if kind in {"NaN", "ComplexInfinity"}:
            raise _refused(node, "is no finite number")
        return None

    def _parts(self, node: Any) -> tuple[Any, ...]:
        """The operands that have to be read before a node is made."""
        kind = type(node).__name__
        if kind in _MATRICES:
            return tuple(node)
        if kind == "Piecewise":
            return tuple(part for pair in node.args for part in pair.args)
        if kind in LABELLED:
            return tuple(node.args[LABELLED[kind][0] :])
        if kind == "Mul":
            return tuple(part for factor in node.args for part in _quotient(factor)[:1])
        if kind == "Pow":
            base, exponent = node.args
            return (base,) if _half_integer(exponent) is not None else (base, exponent)
        if kind in {"Add", "And", "Or", "Not", "ITE", *FUNCTIONS, *_RELATIONS}:
            return tuple(node.args)
        if kind in {"Sum", "Product"}:
            return tuple(_unrolled(node))
        return (_opened(node),)

    def _made(self, node: Any, parts: tuple[Any, ...]) -> Expr | Predicate:
        kind = type(node).__name__
        values: list[Any] = [self._done[part] for part in parts]
        if kind in _MATRICES:
            return matrix(values, shape=node.shape)
        if kind in {"Add", "Sum"}:
            return _joined(Expr.__add__, values, 0.0)
        if kind == "Product":
            return _joined(Expr.__mul__, values, 1.0)
        if kind == "Mul":
            return _product(node.args, values)
        if kind == "Pow":
            half = _half_integer(node.args[1])
            return values[0] ** values[1] if half is None else _power(values[0], half)
        if kind == "Piecewise":
            return _chosen(values, has_else=type(node.args[-1].args[1]).__name__ == "BooleanTrue")
        if kind in FUNCTIONS:
            return FUNCTIONS[kind](*values)
        if kind in _RELATIONS:
            return _RELATIONS[kind](*values)
        if kind in {"And", "Or", "Not"}:
            return _logical(kind, values)
        if kind == "ITE":
            condition, yes, no = values
            either: Predicate = (condition & yes) | (~condition & no)
            return either
        if kind in LABELLED:
            count, function = LABELLED[kind]
            return function([_label(node, label) for label in node.args[:count]], *values)
        (value,) = values  # what doit() made of it
        return value if isinstance(value, Predicate) else as_expr(value)


def _opened(node: Any) -> Any:
    """What ``doit()`` makes of a node of another kind, its operands as they are if that helps."""
    if type(node).__name__ == "MatrixElement":
        parent, row, column = node.args
        if hasattr(parent, "as_explicit") and not parent.has(type(node)):
            element = parent.as_explicit()[row, column]
            if element != node:
                return element
    if type(node).__name__ in _CLOSED:
        raise _refused(node, "has no counterpart here; write its value")
    for options in ({"deep": False}, {}):
        opened = node.doit(**options) if hasattr(node, "doit") else node
        if opened != node:
            return opened
    raise _refused(node, "has no counterpart here")


def _unrolled(node: Any) -> list[Any]:
    """The terms of a sum or factors of a product, for every value of its indices."""
    terms = [(node.function, tuple(node.limits))]
    for _ in node.limits:  # the last is the outermost, which the limits of the others may contain
        count = 0
        further: list[tuple[Any, tuple[Any, ...]]] = []
        for term, (*inner, (index, low, high)) in terms:
            if not (low.is_Integer and high.is_Integer):
                raise _refused(node, f"needs whole literal limits, got {low} and {high}")
            count += max(0, int(high) - int(low) + 1)
            if count > MAX_TERMS:
                raise _refused(node, f"has more than {MAX_TERMS} terms")
            for step in range(int(high) - int(low) + 1):
                value = {index: low + step}
                rest = tuple(
                    (name, *(end.xreplace(value) for end in ends)) for name, *ends in inner
                )
                further.append((term.xreplace(value), rest))
        terms = further
    return [term for term, _ in terms]


def _half_integer(exponent: Any) -> Fraction | None:
    """An exponent n or n/2 that is written as a number, else None."""
    if exponent.is_Rational and exponent.q in (1, 2) and abs(exponent.p) < 2**31:
        return Fraction(int(exponent.p), int(exponent.q))
    return None


def _power(base: Expr, exponent: Fraction) -> Expr:
    """Integer powers by products, half-integer ones through the principal root."""
    if exponent.denominator == 2:
        base = base.sqrt()
    whole = exponent.numerator
    if whole < 0:
        return 1 / (base if whole == -1 else base**-whole)
    return base if whole == 1 else base**whole


def _quotient(factor: Any) -> tuple[Any, Fraction | None]:
    """Base and positive exponent of a factor that divides, else the factor and None."""
    if type(factor).__name__ == "Pow":
        exponent = _half_integer(factor.args[1])
        if exponent is not None and exponent < 0:
            return factor.args[0], -exponent
    return factor, None


def _product(factors: Iterable[Any], values: list[Expr]) -> Expr:
    """Factors with negative exponents divide once, as a person would write it."""
    above: list[Expr] = []
    below: list[Expr] = []
    for factor, value in zip(factors, values, strict=True):
        exponent = _quotient(factor)[1]
        if exponent is None:
            above.append(value)
        else:
            below.append(_power(value, exponent))
    top = _joined(Expr.__mul__, above, 1.0)
    return top / _joined(Expr.__mul__, below, 1.0) if below else top


def _joined(step: Any, values: list[Any], empty: float) -> Expr:
    if not values:
        return as_expr(empty)
    total = values[0]
    for value in values[1:]:
        total = step(total, value)
    return as_expr(total)


def _chosen(values: list[Any], *, has_else: bool) -> Expr:
    """The value of the first condition that holds; NaN if none does."""
    total = as_expr(float("nan"))
    if has_else:
        *values, total, _ = values
    for value, condition in zip(values[-2::-2], values[-1::-2], strict=True):
        total = where(condition, value, total)
    return total


def _logical(kind: str, values: list[Any]) -> Predicate:
    first = values[0]
    if kind == "Not":
        return ~first  # type: ignore[no-any-return]  # a condition by the grammar of SymPy
    for value in values[1:]:
        first = first & value if kind == "And" else first | value
    return first  # type: ignore[no-any-return]  # as above


def _label(node: Any, label: Any) -> Fraction:
    if not label.is_Rational:
        raise _refused(node, f"needs whole or half-integer labels, got {label}")
    return Fraction(int(label.p), int(label.q))
