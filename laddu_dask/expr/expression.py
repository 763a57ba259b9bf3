"""`Expr` and `Predicate`: what users hold, with operators that grow the graph."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import build
from laddu_dask.expr.exchange import from_json, to_json
from laddu_dask.expr.node import Node, Shape
from laddu_dask.expr.projection import project_node
from laddu_dask.expr.text import equation, tree


def as_node(value: Any) -> Node:
    """The node of an expression, or a literal for a Python or NumPy number."""
    if isinstance(value, Expr):
        return value.node
    if isinstance(value, Predicate):
        raise ExpressionError(
            "a condition is not a number; use where(condition, a, b) to choose a value",
            operation="as_expr",
            shapes=[],
        )
    if isinstance(value, (bool, np.bool_, numbers.Real, np.number)) and not isinstance(
        value, (np.complexfloating,)
    ):
        return build.constant(float(value))
    if isinstance(value, numbers.Complex):
        return build.constant(complex(value))
    raise TypeError(
        f"cannot use {type(value).__name__} {value!r} in an expression; "
        "give a number, an Expr, or ld.scalar('column') for event data"
    )


def as_expr(value: Any) -> Expr:
    """An expression from a number or an expression."""
    return value if isinstance(value, Expr) else Expr(value)


def _operand(value: Any) -> Node | None:
    try:
        return as_node(value)
    except TypeError:
        return None


#: Comparisons of the lower and of the upper end.
_CLOSED = {
    "both": ("le", "le"),
    "neither": ("lt", "lt"),
    "left": ("le", "lt"),
    "right": ("lt", "le"),
}


class Predicate:
    """A condition on events or parameters; combine with ``&``, ``|`` and ``~``."""

    __slots__ = ("node",)
    __hash__ = None  # type: ignore[assignment]  # equality of conditions is not a Python bool
    node: Node

    def __init__(self, node: Node) -> None:
        object.__setattr__(self, "node", node)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("conditions are immutable")

    def __reduce__(self) -> tuple[type[Predicate], tuple[Node]]:
        return Predicate, (self.node,)

    def __copy__(self) -> Predicate:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Predicate:
        return self

    def __and__(self, other: Predicate) -> Predicate:
        return Predicate(build.logical("and", self.node, _condition("&", other)))

    def __or__(self, other: Predicate) -> Predicate:
        return Predicate(build.logical("or", self.node, _condition("|", other)))

    def __invert__(self) -> Predicate:
        return Predicate(build.logical("not", self.node))

    @staticmethod
    def between(value: Any, *, low: Any, high: Any, closed: str = "both") -> Predicate:
        """Whether a real value lies between two others, numbers or expressions; NaN does not.

        Parameters
        ----------
        value, low, high
            Real scalars.
        closed
            Which ends belong to the interval: ``"both"``, ``"neither"``, ``"left"``, ``"right"``.
        """
        if closed not in _CLOSED:
            raise ExpressionError(
                f"between: closed must be one of {', '.join(_CLOSED)}, got {closed!r}",
                operation="between",
                shapes=[],
            )
        above, below = _CLOSED[closed]
        node, least, most = as_node(value), as_node(low), as_node(high)
        return Predicate(
            build.logical(
                "and", build.compare(above, least, node), build.compare(below, node, most)
            )
        )

    def __bool__(self) -> bool:
        raise ExpressionError(
            "a condition on events has no single truth value, so 'a < x < b', 'and', 'or', 'not' "
            "and 'if' cannot work on it; write (a < x) & (x < b), |, ~",
            operation="bool",
            shapes=[],
        )

    def __eq__(self, other: object) -> bool:
        raise ExpressionError(
            "conditions cannot be compared; combine them with &, |, ~, and compare numbers "
            "on either side of & in parentheses",
            operation="comparison",
            shapes=[],
        )

    __ne__ = __eq__

    def __repr__(self) -> str:
        return f"<Predicate {equation(self.node)}>"


def _condition(operator: str, value: Any) -> Node:
    if not isinstance(value, Predicate):
        raise ExpressionError(
            f"{operator} combines conditions, got {type(value).__name__}; comparisons bind weaker "
            "than & and |, so put them in parentheses",
            operation=operator,
            shapes=[],
        )
    return value.node


class Expr:
    """An immutable expression of parameters, event columns and literals.

    Parameters
    ----------
    value
        A number or another expression.
    """

    __slots__ = ("node",)
    __hash__ = None  # type: ignore[assignment]  # == builds a condition
    __array_ufunc__ = None  # NumPy scalars hand over to our operators, arrays are refused
    node: Node

    def __init__(self, value: Any) -> None:
        object.__setattr__(self, "node", as_node(value))

    @classmethod
    def of(cls, node: Node) -> Expr:
        """Wrap a node of the graph."""
        self = cls.__new__(cls)
        object.__setattr__(self, "node", node)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("expressions are immutable")

    def __reduce__(self) -> tuple[Any, tuple[Node]]:
        return Expr.of, (self.node,)

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Expr:
        return self

    def __dask_tokenize__(self) -> tuple[str, str]:
        return ("laddu-dask-expr", self.node.digest.hex())

    @property
    def shape(self) -> Shape:
        """``()``, ``(n,)`` or ``(rows, columns)``."""
        return self.node.shape

    @property
    def is_real(self) -> bool:
        """Whether the value is real by construction."""
        return self.node.is_real

    # arithmetic ----------------------------------------------------------------------------

    def __add__(self, other: Any) -> Expr:
        node = _operand(other)
        return NotImplemented if node is None else Expr.of(build.add(self.node, node))

    def __radd__(self, other: Any) -> Expr:
        node = _operand(other)
        return NotImplemented if node is None else Expr.of(build.add(node, self.node))

    def __sub__(self, other: Any) -> Expr:
        node = _operand(other)
        return NotImplemented if node is None else Expr.of(build.sub(self.node, node))

    def __rsub__(self, other: Any) -> Expr:
        node = _operand(other)
        return NotImplemented if node is None else Expr.of(build.sub(node, self.node))

    def __mul__(self, other: Any) -> Expr:
        node = _operand(other)
        return NotImplemented if node is None else Expr.of(build.mul(self.node, node))

    def __rmul__(self, other: Any) -> Expr:
        node = _operand(other)
        return NotImplemented if node is None else Expr.of(build.mul(node, self.node))

    def __truediv__(self, other: Any) -> Expr:
        node = _operand(other)
        return NotImplemented if node is None else Expr.of(build.div(self.node, node))

    def __rtruediv__(self, other: Any) -> Expr:
        node = _operand(other)
        return NotImplemented if node is None else Expr.of(build.div(node, self.node))

    def __pow__(self, exponent: Any) -> Expr:
        if isinstance(exponent, (bool, np.bool_)):
            raise ExpressionError(
                f"power: the exponent must be a number, got {exponent!r}",
                operation="power",
                shapes=[self.shape],
            )
        if isinstance(exponent, numbers.Integral):
            return Expr.of(build.power(self.node, int(exponent)))
        node = _operand(exponent)
        return NotImplemented if node is None else Expr.of(build.general_power(self.node, node))

    def __rpow__(self, base: Any) -> Expr:
        node = _operand(base)
        return NotImplemented if node is None else Expr.of(build.general_power(node, self.node))

    def __abs__(self) -> Expr:
        """Modulus, real, without overflow; its derivative at zero is zero."""
        return Expr.of(build.unary("abs", self.node))

    def __neg__(self) -> Expr:
        return Expr.of(build.neg(self.node))

    def __pos__(self) -> Expr:
        return self

    def __matmul__(self, other: Any) -> Expr:
        node = _operand(other)
        return NotImplemented if node is None else Expr.of(build.matmul(self.node, node))

    def __bool__(self) -> bool:
        raise ExpressionError(
            "an expression has no truth value before it is evaluated; "
            "use ld.where(condition, a, b)",
            operation="bool",
            shapes=[self.shape],
        )

    # functions -----------------------------------------------------------------------------

    def sqrt(self) -> Expr:
        """Principal square root; complex-typed unless the argument is provably not negative."""
        return Expr.of(build.unary("sqrt", self.node))

    def exp(self) -> Expr:
        """Exponential."""
        return Expr.of(build.unary("exp", self.node))

    def log(self) -> Expr:
        """Principal natural logarithm; complex-typed unless provably not negative."""
        return Expr.of(build.unary("log", self.node))

    def sin(self) -> Expr:
        """Sine."""
        return Expr.of(build.unary("sin", self.node))

    def cos(self) -> Expr:
        """Cosine."""
        return Expr.of(build.unary("cos", self.node))

    def tan(self) -> Expr:
        """Tangent."""
        return Expr.of(build.unary("tan", self.node))

    def sinh(self) -> Expr:
        """Hyperbolic sine."""
        return Expr.of(build.unary("sinh", self.node))

    def cosh(self) -> Expr:
        """Hyperbolic cosine."""
        return Expr.of(build.unary("cosh", self.node))

    def tanh(self) -> Expr:
        """Hyperbolic tangent."""
        return Expr.of(build.unary("tanh", self.node))

    def atan(self) -> Expr:
        """Principal arc tangent; in [-pi/2, pi/2] for a real expression."""
        if self.is_real:
            return Expr.of(build.binary_real("atan2", self.node, build.constant(1.0)))
        return Expr.of(build.unary("atan", self.node))

    def asin(self) -> Expr:
        """Arc sine; of a real expression in [-pi/2, pi/2], beyond +-1 it clamps, NaN stays NaN.

        Built as ``atan2(x, Re sqrt((1 - x) (1 + x)))``, for the reason of `acos`. Of a complex
        expression it is the principal value; ``ld.complex(x, 0).asin()`` is complex beyond +-1.
        """
        if not self.is_real:
            return Expr.of(build.unary("asin", self.node))
        height = ((1 - self) * (1 + self)).sqrt().real()
        return Expr.of(build.binary_real("atan2", self.node, height.node))

    def acos(self) -> Expr:
        """Arc cosine of the real part, in [0, pi]; beyond +-1 it clamps, NaN stays NaN.

        Built as ``atan2(Re sqrt((1 - x) (1 + x)), x)``, so cosines that rounding has pushed past
        one give 0 or pi, and no digit is lost close to one.
        """
        x = self.real()
        return Expr.of(build.binary_real("atan2", ((1 - x) * (1 + x)).sqrt().node, x.node))

    def conj(self) -> Expr:
        """Complex conjugate."""
        return Expr.of(build.part("conj", self.node))

    def real(self) -> Expr:
        """Real part."""
        return Expr.of(build.part("real", self.node))

    def imag(self) -> Expr:
        """Imaginary part."""
        return Expr.of(build.part("imag", self.node))

    def norm_sqr(self) -> Expr:
        """Squared modulus."""
        return Expr.of(build.unary("norm_sqr", self.node))

    # conditions ----------------------------------------------------------------------------

    def __lt__(self, other: Any) -> Predicate:
        return Predicate(build.compare("lt", self.node, as_node(other)))

    def __le__(self, other: Any) -> Predicate:
        return Predicate(build.compare("le", self.node, as_node(other)))

    def __gt__(self, other: Any) -> Predicate:
        return Predicate(build.compare("lt", as_node(other), self.node))

    def __ge__(self, other: Any) -> Predicate:
        return Predicate(build.compare("le", as_node(other), self.node))

    # `object` promises a bool; comparing expressions builds a condition instead.
    def __eq__(self, other: Any) -> Predicate:  # type: ignore[override]  # a condition, no bool
        return Predicate(build.compare("eq", self.node, as_node(other)))

    def __ne__(self, other: Any) -> Predicate:  # type: ignore[override]  # a condition, no bool
        return Predicate(build.compare("ne", self.node, as_node(other)))

    # vectors and matrices ------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of elements of a vector, of rows of a matrix."""
        if not self.shape:
            raise TypeError("a scalar expression has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Expr]:
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, index: int | tuple[int, int]) -> Expr:
        """``v[i]`` of a vector; ``m[i]``, a row, and ``m[i, j]`` of a matrix.

        Negative indices count from the end. One out of range is an `ExpressionError` that is an
        `IndexError` too.
        """
        if isinstance(index, tuple):
            return Expr.of(build.element(self.node, *map(operator.index, index)))
        if len(self.shape) == 2:
            return Expr.of(build.row(self.node, operator.index(index)))
        return Expr.of(build.element(self.node, operator.index(index)))

    def at(self, row: int, column: int) -> Expr:
        """Element of a matrix, as ``m[row, column]``."""
        return Expr.of(build.element(self.node, operator.index(row), operator.index(column)))

    # names and tags ------------------------------------------------------------------------

    def named(self, name: str) -> Expr:
        """The same value under a display name, which error messages use."""
        if not isinstance(name, str) or not name:
            raise ExpressionError(
                f"named: needs a non-empty string, got {name!r}", operation="named", shapes=[]
            )
        return Expr.of(build.label("named", self.node, name))

    def tagged(self, *tags: str) -> Expr:
        """The same value, marked for projections; tags of one expression add up."""
        if not tags or not all(isinstance(tag, str) and tag for tag in tags):
            raise ExpressionError(
                f"tagged: needs non-empty strings, got {tags!r}", operation="tagged", shapes=[]
            )
        node, known = self.node, set(tags)
        if node.op == "tagged" and isinstance(node.data, tuple):
            known.update(node.data)
            (node,) = node.args
        return Expr.of(build.label("tagged", node, tuple(sorted(known))))

    def project(self, tags: str | Iterable[str]) -> Expr:
        """Keep the parts with one of these tags; see `laddu_dask.expr.project`."""
        return Expr.of(project_node(self.node, tags))

    def to_json(self) -> str:
        """The graph as JSON text; see `laddu_dask.expr.exchange`."""
        return to_json(self.node)

    @classmethod
    def from_json(cls, text: str) -> Expr:
        """The expression of a text made by `to_json`.

        Raises
        ------
        ExpressionError
            The text is no such table; names the node and the rule that it breaks.
        """
        return cls.of(from_json(text))

    def tree(self) -> str:
        """Indented listing of the graph, shared parts shown once."""
        return tree(self.node)

    def __repr__(self) -> str:
        return f"<Expr {equation(self.node)}>"
