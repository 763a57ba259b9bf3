"""Arithmetic that three- and four-vectors share: what is done to each component alike."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any, Self

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import Expr, Predicate, as_expr, vector


class Components:
    """An immutable tuple of scalar expressions with the arithmetic of a vector space.

    Sums and differences are of vectors of one kind, factors and divisors are scalars; anything else
    is a TypeError. ``==`` and ``!=`` build conditions on events, as those of expressions do.
    """

    __slots__ = ("_components",)
    __hash__ = None  # type: ignore[assignment]  # == builds a condition
    _components: tuple[Expr, ...]

    def __init__(self, *components: Expr | float) -> None:
        self._components = tuple(self._scalar(component) for component in components)

    def _scalar(self, component: Expr | float) -> Expr:
        expr = as_expr(component)
        if expr.shape:
            kind = type(self).__name__
            raise ExpressionError(
                f"{kind}: components must be scalars, got shape {expr.shape}",
                operation=kind,
                shapes=[expr.shape],
            )
        return expr

    def as_expr(self) -> Expr:
        """The components as one vector expression, in their order."""
        return vector(self._components)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._components))})"

    def __add__(self, other: object) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        return type(self)(*(a + b for a, b in self._pairs(other)))

    def __radd__(self, other: object) -> Self:
        """``0 + v``, so that ``sum([v, w])`` works."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: object) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        return type(self)(*(a - b for a, b in self._pairs(other)))

    def __neg__(self) -> Self:
        return type(self)(*(-a for a in self._components))

    def __mul__(self, factor: Any) -> Self:
        if isinstance(factor, Components):
            raise TypeError(
                f"{type(self).__name__} * {type(factor).__name__} is ambiguous; use dot(), "
                "or cross() of two Vec3"
            )
        return type(self)(*(a * factor for a in self._components))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Expr | float) -> Self:
        return type(self)(*(a / divisor for a in self._components))

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]  # a condition, no bool
        """The condition that every component is equal; false where one is NaN."""
        if not isinstance(other, type(self)):
            self._refuse(other)
            return NotImplemented
        return reduce(and_, (a == b for a, b in self._pairs(other)))

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]  # a condition, no bool
        """The opposite of ``==``."""
        if not isinstance(other, type(self)):
            self._refuse(other)
            return NotImplemented
        return ~(self == other)

    def _refuse(self, other: object) -> None:
        """An error for vectors of another kind, of which Python's answer would be a plain False."""
        if isinstance(other, Components):
            raise TypeError(
                f"{type(self).__name__} and {type(other).__name__} cannot be compared; "
                "compare their components"
            )

    def _pairs(self, other: Components) -> zip[tuple[Expr, Expr]]:
        return zip(self._components, other._components, strict=True)
