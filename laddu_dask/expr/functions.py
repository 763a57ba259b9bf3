"""Functions that start or join expressions: parameters, event columns, complex numbers, vectors."""

from __future__ import annotations

import builtins
import cmath
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import build
from laddu_dask.expr.expression import Expr, Predicate, as_expr, as_node
from laddu_dask.expr.node import make
from laddu_dask.expr.parameters import define_parameter
from laddu_dask.expr.projection import project_node, tags_of

P4_COMPONENTS = ("e", "px", "py", "pz")


def parameter(name: str, **options: Any) -> Expr:
    """A real parameter of the model.

    Parameters
    ----------
    name
        Name shared by every use of the parameter, also across the terms of a likelihood.
    **options
        `initial`, `bounds`, `fixed`, `periodic`, `scale`, `unit`, `latex`, `description`; see
        `laddu_dask.expr.parameters.define_parameter` for meaning, defaults and errors.
    """
    return Expr.of(build.parameter(define_parameter(name, **options)))


def cparameter(
    name: str,
    *,
    initial: builtins.complex | None = None,
    coordinates: str = "cartesian",
    suffixes: tuple[str, str] | None = None,
    bounds: Sequence[Any] = (None, None),
    fixed: Sequence[float | None] = (None, None),
) -> Expr:
    """A complex parameter, made of two real ones.

    Parameters
    ----------
    name
        Common stem of the two names.
    initial
        Complex start value.
    coordinates
        ``"cartesian"`` (suffixes `` real`` and `` imag``) or ``"polar"`` (`` magnitude``,
        `` phase``; the phase in radians).
    suffixes
        Other suffixes.
    bounds, fixed
        A pair, one entry for each real parameter.
    """
    if coordinates not in {"cartesian", "polar"}:
        raise ValueError(f"coordinates must be 'cartesian' or 'polar', got {coordinates!r}")
    polar = coordinates == "polar"
    first, second = suffixes or ((" magnitude", " phase") if polar else (" real", " imag"))
    starts: tuple[float | None, float | None] = (None, None)
    if initial is not None:
        value = builtins.complex(initial)
        starts = cmath.polar(value) if polar else (value.real, value.imag)
    pair = [
        parameter(
            name + suffix,
            initial=None if held is not None else start,
            bounds=limits,
            fixed=held,
        )
        for suffix, start, limits, held in zip((first, second), starts, bounds, fixed, strict=True)
    ]
    return polar_complex(*pair) if polar else complex(*pair)


def scalar(name: str) -> Expr:
    """The event column `name`, one real number per event."""
    if not isinstance(name, str) or not name:
        raise ExpressionError(
            f"scalar: needs a non-empty column name, got {name!r}", operation="scalar", shapes=[]
        )
    return Expr.of(make("column", data=name, is_real=True))


def p4_component(name: str, component: str) -> Expr:
    """Component ``e``, ``px``, ``py`` or ``pz`` of the four-momentum `name` of the event.

    It is the column ``<name>_<component>``, in GeV by habit; no unit is checked.
    """
    if component not in P4_COMPONENTS:
        raise ExpressionError(
            f"p4_component: component must be one of {P4_COMPONENTS}, got {component!r}",
            operation="p4_component",
            shapes=[],
        )
    return scalar(f"{name}_{component}")


def complex(real: Any, imag: Any) -> Expr:
    """``real + i imag``; only the real parts of the operands enter."""
    return Expr.of(build.binary_real("complex", as_node(real), as_node(imag)))


def cis(phase: Any) -> Expr:
    """``exp(i phase)`` for a real phase in radians."""
    angle = as_expr(phase).real()
    return complex(angle.cos(), angle.sin())


def polar_complex(magnitude: Any, phase: Any) -> Expr:
    """``magnitude exp(i phase)`` for a real magnitude and a real phase in radians."""
    return as_expr(magnitude) * cis(phase)


def atan2(y: Any, x: Any) -> Expr:
    """Angle of the point (x, y) in [-pi, pi]; only real parts enter."""
    return Expr.of(build.binary_real("atan2", as_node(y), as_node(x)))


def acos(x: Any) -> Expr:
    """Arc cosine; see `Expr.acos`."""
    return as_expr(x).acos()


def vector(elements: Iterable[Any]) -> Expr:
    """A vector of scalar expressions."""
    return Expr.of(build.vector(tuple(as_node(e) for e in elements)))


def matrix(rows: Iterable[Any], shape: tuple[int, int] | None = None) -> Expr:
    """A matrix from its rows, or from its elements row by row.

    Parameters
    ----------
    rows
        Rows: lists of scalars, or vectors. With `shape` the elements themselves.
    shape
        Rows and columns that the elements fill.

    Raises
    ------
    ExpressionError
        No elements, rows of different lengths, or a number of elements that does not fill `shape`.
    """
    if shape is None:
        return Expr.of(build.matrix(tuple(tuple(as_node(e) for e in row) for row in rows)))
    elements = [as_node(e) for e in rows]
    height, width = map(operator.index, shape)
    if min(height, width) < 1 or len(elements) != height * width:
        raise ExpressionError(
            f"matrix: {len(elements)} elements do not fill {height} rows of {width}",
            operation="matrix",
            shapes=[(height, width)],
        )
    starts = range(0, len(elements), width)
    return Expr.of(build.matrix(tuple(tuple(elements[i : i + width]) for i in starts)))


def sum(terms: Iterable[Any]) -> Expr:
    """Sum of scalars, or of vectors or matrices of one shape, from left to right.

    Raises
    ------
    ExpressionError
        No terms, or shapes that differ.
    """
    return Expr.of(build.fold("sum", build.add, [as_node(term) for term in terms]))


def prod(factors: Iterable[Any]) -> Expr:
    """Product of scalars, of which one may be a vector or matrix, from left to right.

    Raises
    ------
    ExpressionError
        No factors, or more than one that is not a scalar.
    """
    return Expr.of(build.fold("prod", build.mul, [as_node(factor) for factor in factors]))


def dot(a: Any, b: Any) -> Expr:
    """Sum of products of two vectors, without conjugation."""
    left, right = as_node(a), as_node(b)
    if len(left.shape) != 1 or left.shape != right.shape:
        raise build.fail("dot", "needs two vectors of one length", left, right)
    return Expr.of(build.matmul(left, right))


def matvec(A: Any, v: Any) -> Expr:
    """Matrix times vector, as ``A @ v``."""
    left, right = as_node(A), as_node(v)
    if (len(left.shape), len(right.shape)) != (2, 1):
        raise build.fail("matvec", "needs a matrix and a vector", left, right)
    return Expr.of(build.matmul(left, right))


def matmul(A: Any, B: Any) -> Expr:
    """Matrix times matrix, as ``A @ B``."""
    left, right = as_node(A), as_node(B)
    if (len(left.shape), len(right.shape)) != (2, 2):
        raise build.fail("matmul", "needs two matrices; see also matvec and dot", left, right)
    return Expr.of(build.matmul(left, right))


def solve(A: Any, b: Any) -> Expr:
    """Solution x of the system of linear equations ``A x = b``.

    Gaussian elimination event by event: along the diagonal where its elements are large enough for
    that, else with partial pivoting. A matrix that is exactly singular at an event makes its value
    infinite or NaN, and the evaluation names the event.

    Parameters
    ----------
    A
        Square matrix, at most 8 x 8.
    b
        Vector of that length.

    Raises
    ------
    ExpressionError
        Shapes that do not fit, or more than 8 unknowns.
    """
    return Expr.of(build.solve(as_node(A), as_node(b)))


def where(condition: Predicate, a: Any, b: Any) -> Expr:
    """`a` where the condition holds, else `b`; the other branch cannot spoil the result."""
    if not isinstance(condition, Predicate):
        raise ExpressionError(
            f"where: the first argument must be a condition such as a < b, got {condition!r}",
            operation="where",
            shapes=[],
        )
    return Expr.of(build.where(condition.node, as_node(a), as_node(b)))


def minimum(a: Any, b: Any) -> Expr:
    """The smaller of two real scalars; NaN if either is.

    The derivative is that of the chosen one, of `b` where both are equal.
    """
    return Expr.of(build.extreme("minimum", as_node(a), as_node(b)))


def maximum(a: Any, b: Any) -> Expr:
    """The larger of two real scalars; otherwise like `minimum`."""
    return Expr.of(build.extreme("maximum", as_node(a), as_node(b)))


def tags(expr: Expr) -> tuple[str, ...]:
    """Every tag in the graph, sorted."""
    return tags_of(expr.node)


def project(expr: Expr, wanted: str | Iterable[str]) -> Expr:
    """The expression with every tagged part that has none of the wanted tags replaced by zero.

    Untagged parts stay, so in ``|a + b + c|**2`` with tags on a and b, projecting on a's tag keeps
    c as well.

    Raises
    ------
    ExpressionError
        A tag that the expression does not have, or no tag at all: projecting on it would silently
        give a model without its tagged parts.
    """
    return Expr.of(project_node(expr.node, wanted))
