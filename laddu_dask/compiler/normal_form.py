"""The normal form of an expression and what follows from it: made once, read by every transform."""

from __future__ import annotations

from functools import cached_property

from laddu_dask.compiler.algebra import Algebra
from laddu_dask.compiler.assumptions import Assumptions
from laddu_dask.compiler.boundary import columns_below
from laddu_dask.compiler.forms import regrouped_forms
from laddu_dask.compiler.layout import ParameterLayout
from laddu_dask.compiler.lower import lower
from laddu_dask.compiler.lowered import Lowered
from laddu_dask.compiler.normalize import normalize
from laddu_dask.compiler.separable import Product, separate
from laddu_dask.compiler.terms import Term
from laddu_dask.errors import ExpressionError
from laddu_dask.expr.expression import Expr


def as_written(expr: Expr) -> Lowered:
    """The operations of the written form, in its order."""
    graph, (root,) = lower(expr.node)
    return Lowered(graph, root, regrouped=False)


def columns_read(expr: Expr) -> tuple[str, ...]:
    """Event columns that the value depends on, in order of first use."""
    form = as_written(expr)
    return columns_below(form.graph, form.roots)


class NormalForm:
    """The normal form of a scalar expression under assumptions.

    Parameters
    ----------
    expr
        The expression.
    assumptions
        What is taken for granted about event values and parameter values.

    Raises
    ------
    ExpressionError
        The expression is not a scalar.
    """

    def __init__(self, expr: Expr, assumptions: Assumptions) -> None:
        require_scalar(expr)
        self.assumptions = assumptions
        self.layout = ParameterLayout.of(expr.node)
        self._algebra, self.term = normalize(expr.node, assumptions)

    @cached_property
    def forms(self) -> dict[str, Lowered]:
        """Forms of the whole expression to choose from, by how their sums are arranged."""
        return regrouped_forms(self._algebra, self.term)

    @cached_property
    def _separation(self) -> tuple[Algebra, list[Product], Term | None]:
        algebra = self._algebra.copy()
        return algebra, *separate(algebra, self.term)

    @property
    def separated(self) -> tuple[Algebra, list[Product]]:
        """Products that can be integrated once, and an algebra to continue with."""
        algebra, products, _ = self._separation
        return algebra.copy(), products

    @cached_property
    def residual_forms(self) -> dict[str, Lowered]:
        """Forms of what cannot be integrated once; none if there is nothing."""
        algebra, _, rest = self._separation
        if rest is None:
            return {}
        return self.forms if rest is self.term else regrouped_forms(algebra, rest)


def require_scalar(expr: Expr) -> None:
    """Refuse vectors and matrices."""
    if expr.shape:
        raise ExpressionError(
            f"a model must be a scalar, got shape {expr.shape}; pick an element or use norm_sqr()",
            operation="model",
            shapes=[expr.shape],
        )
