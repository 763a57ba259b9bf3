"""Typed constructors of graph nodes: every shape rule and every kind rule in one place."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence

from laddu_dask.errors import ExpressionError
from laddu_dask.expr.node import PREDICATES, Node, Shape, make
from laddu_dask.expr.parameters import ParameterSpec

_INT32 = 2**31
#: Largest system of linear equations; elimination is unrolled in the kernel.
MAX_UNKNOWNS = 8


def constant(value: complex | float) -> Node:
    """A literal; its bits are never altered.

    A complex literal counts as real only when its imaginary part is +0.0: with -0.0 it lies on the
    other side of a branch cut.
    """
    if isinstance(value, complex):
        if value.imag != 0 or math.copysign(1.0, value.imag) < 0:
            return make("const", data=value)
        value = value.real
    number = float(value)
    return make("const", data=number, is_real=True, is_nonnegative=is_positive_or_zero(number))


def parameter(spec: ParameterSpec) -> Node:
    """A parameter; a fixed one is known not to be negative, or not."""
    nonnegative = spec.fixed and is_positive_or_zero(spec.initial)
    return make("parameter", data=spec, is_real=True, is_nonnegative=nonnegative)


def is_positive_or_zero(number: float) -> bool:
    """Whether a literal is at least +0.0; -0.0 is not, since its reciprocal is negative."""
    return number > 0 or (number == 0 and math.copysign(1.0, number) > 0)


def is_predicate(node: Node) -> bool:
    """Whether the node is a condition rather than a number."""
    return node.op in PREDICATES


def fail(operation: str, problem: str, *nodes: Node) -> ExpressionError:
    """An error that names the operation and the operand shapes."""
    shapes = [node.shape for node in nodes]
    listed = ", ".join(describe_shape(shape) for shape in shapes)
    return ExpressionError(
        f"{operation}: {problem} (operands: {listed})", operation=operation, shapes=shapes
    )


def describe_shape(shape: Shape) -> str:
    """``scalar``, ``vector of 3`` or ``2x3 matrix``."""
    if not shape:
        return "scalar"
    if len(shape) == 1:
        return f"vector of {shape[0]}"
    return f"{shape[0]}x{shape[1]} matrix"


def _numbers(operation: str, *nodes: Node) -> None:
    for node in nodes:
        if is_predicate(node):
            raise fail(
                operation,
                "a condition is not a number; use where(condition, a, b) to choose a value",
                *nodes,
            )


def _scalars(operation: str, *nodes: Node) -> None:
    _numbers(operation, *nodes)
    if any(node.shape for node in nodes):
        raise fail(operation, "needs scalars", *nodes)


def _broadcast(operation: str, a: Node, b: Node) -> Shape:
    _numbers(operation, a, b)
    if a.shape and b.shape and a.shape != b.shape:
        raise fail(operation, "shapes differ", a, b)
    return a.shape or b.shape


def fold(operation: str, step: Callable[[Node, Node], Node], operands: Sequence[Node]) -> Node:
    """Operands joined from left to right; there has to be one."""
    if not operands:
        raise ExpressionError(
            f"{operation}: no operands, so that the shape is unknown; start from a number",
            operation=operation,
            shapes=[],
        )
    return functools.reduce(step, operands)


def add(a: Node, b: Node) -> Node:
    """Sum; a scalar is added to every element."""
    return make(
        "add",
        (a, b),
        shape=_broadcast("add", a, b),
        is_real=a.is_real and b.is_real,
        is_nonnegative=a.is_nonnegative and b.is_nonnegative,
    )


def sub(a: Node, b: Node) -> Node:
    """Difference."""
    return make("sub", (a, b), shape=_broadcast("subtract", a, b), is_real=a.is_real and b.is_real)


def mul(a: Node, b: Node) -> Node:
    """Product with at least one scalar factor; matrices multiply by ``@``."""
    _numbers("multiply", a, b)
    if a.shape and b.shape:
        raise fail("multiply", "one factor must be a scalar; use @ or dot() for products", a, b)
    both = a.is_nonnegative and b.is_nonnegative
    return make(
        "mul",
        (a, b),
        shape=a.shape or b.shape,
        is_real=a.is_real and b.is_real,
        is_nonnegative=both or (a is b and a.is_real),
    )


def div(a: Node, b: Node) -> Node:
    """Quotient by a scalar."""
    _numbers("divide", a, b)
    if b.shape:
        raise fail("divide", "the divisor must be a scalar", a, b)
    return make(
        "div",
        (a, b),
        shape=a.shape,
        is_real=a.is_real and b.is_real,
        is_nonnegative=a.is_nonnegative and b.is_nonnegative,
    )


def neg(a: Node) -> Node:
    """Negative, of any shape."""
    _numbers("negate", a)
    return make("neg", (a,), shape=a.shape, is_real=a.is_real)


def power(a: Node, exponent: int) -> Node:
    """Integer power of a scalar; ``x**0`` is 1 for every x."""
    _scalars("power", a)
    if not -_INT32 <= exponent < _INT32:
        raise fail("power", f"exponent {exponent} does not fit 32 bits", a)
    return make(
        "pow",
        (a,),
        int(exponent),
        is_real=a.is_real,
        is_nonnegative=a.is_real and (exponent % 2 == 0 or a.is_nonnegative),
    )


def general_power(a: Node, exponent: Node) -> Node:
    """``a**exponent`` on the principal branch; an integer-valued literal makes an integer power.

    Real for a base that is provably not negative and a real exponent.
    """
    _scalars("power", a, exponent)
    value = exponent.data
    if exponent.op == "const" and isinstance(value, float) and value.is_integer():
        return power(a, int(value))
    real = a.is_real and a.is_nonnegative and exponent.is_real
    return make("power", (a, exponent), is_real=real, is_nonnegative=real)


def extreme(op: str, a: Node, b: Node) -> Node:
    """``minimum`` or ``maximum`` of two real scalars."""
    _scalars(op, a, b)
    if not (a.is_real and b.is_real):
        raise fail(op, "complex numbers have no order; take .real() or abs()", a, b)
    either = op == "maximum" and (a.is_nonnegative or b.is_nonnegative)
    both = a.is_nonnegative and b.is_nonnegative
    return make(op, (a, b), is_real=True, is_nonnegative=either or both)


def unary(op: str, a: Node) -> Node:
    """A function of one scalar by name.

    ``sqrt exp log sin cos tan sinh cosh tanh`` and the principal complex ``asin atan`` keep the
    kind where the result does; ``norm_sqr`` and ``abs`` are real.
    """
    _scalars(op, a)
    if op in {"sqrt", "log"}:
        real = a.is_real and a.is_nonnegative
        return make(op, (a,), is_real=real, is_nonnegative=real and op == "sqrt")
    if op in {"norm_sqr", "abs"}:
        return make(op, (a,), is_real=True, is_nonnegative=True)
    if op in {"asin", "atan"}:  # those of real values are angles, by atan2
        return make(op, (a,))
    return make(op, (a,), is_real=a.is_real, is_nonnegative=a.is_real and op in {"exp", "cosh"})


def part(op: str, a: Node) -> Node:
    """``real``, ``imag`` or ``conj``, element by element."""
    _numbers(op, a)
    if a.is_real and op != "imag":
        return a
    return make(op, (a,), shape=a.shape, is_real=op != "conj")


def binary_real(op: str, a: Node, b: Node) -> Node:
    """``atan2(y, x)`` and ``complex(re, im)``: only real parts of the operands enter."""
    _scalars(op, a, b)
    return make(op, (part("real", a), part("real", b)), is_real=op == "atan2")


def vector(elements: tuple[Node, ...]) -> Node:
    """A vector of scalars."""
    if not elements:
        raise ExpressionError("vector: needs at least one element", operation="vector", shapes=[])
    _scalars("vector", *elements)
    return make(
        "vector", elements, shape=(len(elements),), is_real=all(e.is_real for e in elements)
    )


def matrix(rows: tuple[tuple[Node, ...], ...]) -> Node:
    """A row-major matrix of scalars."""
    if not rows or not rows[0]:
        raise ExpressionError("matrix: needs at least one element", operation="matrix", shapes=[])
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise ExpressionError(
            f"matrix: rows have different lengths {[len(row) for row in rows]}",
            operation="matrix",
            shapes=[(len(row),) for row in rows],
        )
    elements = tuple(element for row in rows for element in row)
    _scalars("matrix", *elements)
    shape = (len(rows), len(rows[0]))
    return make(
        "matrix",
        elements,
        shape,  # content: the same elements make matrices of several shapes
        shape=shape,
        is_real=all(e.is_real for e in elements),
    )


class ElementIndexError(ExpressionError, IndexError):
    """An index beyond the end, by which iteration, unpacking and `reversed` know where to stop."""


def element(a: Node, *index: int) -> Node:
    """One element of a vector or matrix; negative indices count from the end."""
    if len(index) != len(a.shape) or not a.shape:
        raise fail("element", f"index {index} does not fit", a)
    flat = 0
    for i, size in zip(index, a.shape, strict=True):
        flat = flat * size + _position(a, i, size)
    return _item(a, flat)


def row(a: Node, index: int) -> Node:
    """One row of a matrix, as a vector."""
    rows, columns = a.shape
    first = _position(a, index, rows) * columns
    return vector(tuple(_item(a, first + column) for column in range(columns)))


def _position(a: Node, index: int, size: int) -> int:
    if not -size <= index < size:
        raise ElementIndexError(
            f"element: index {index} is out of range for {describe_shape(a.shape)}",
            operation="element",
            shapes=[a.shape],
        )
    return index % size


def _item(a: Node, flat: int) -> Node:
    return make("element", (a,), flat, is_real=a.is_real)


def matmul(a: Node, b: Node) -> Node:
    """Matrix-matrix, matrix-vector, or vector-vector product (no conjugation)."""
    _numbers("matmul", a, b)
    shapes = (len(a.shape), len(b.shape))
    real = a.is_real and b.is_real
    if shapes == (1, 1) and a.shape == b.shape:
        return make("dot", (a, b), is_real=real)
    if shapes == (2, 1) and a.shape[1] == b.shape[0]:
        return make("matvec", (a, b), shape=(a.shape[0],), is_real=real)
    if shapes == (2, 2) and a.shape[1] == b.shape[0]:
        return make("matmul", (a, b), shape=(a.shape[0], b.shape[1]), is_real=real)
    raise fail("matmul", "shapes do not chain", a, b)


def solve(a: Node, b: Node) -> Node:
    """Solution x of ``a x = b``."""
    _numbers("solve", a, b)
    if len(a.shape) != 2 or a.shape[0] != a.shape[1]:
        raise fail("solve", "the first operand must be a square matrix", a, b)
    if b.shape != a.shape[:1]:
        raise fail("solve", f"the right-hand side must be a vector of {a.shape[0]}", a, b)
    if a.shape[0] > MAX_UNKNOWNS:
        raise fail("solve", f"at most {MAX_UNKNOWNS} unknowns are supported", a, b)
    return make("solve", (a, b), shape=b.shape, is_real=a.is_real and b.is_real)


def compare(op: str, a: Node, b: Node) -> Node:
    """``lt le eq ne`` of two real scalars; any comparison with NaN is false, ``ne`` included."""
    _scalars("comparison", a, b)
    if not (a.is_real and b.is_real):
        problem = "complex numbers have no order; compare .real() or .norm_sqr()"
        raise fail("comparison", problem, a, b)
    return make(op, (a, b))


def logical(op: str, *nodes: Node) -> Node:
    """``and or not`` of conditions."""
    for node in nodes:
        if not is_predicate(node):
            raise fail(op, "needs conditions such as a < b", *nodes)
    return make(op, nodes)


def where(condition: Node, a: Node, b: Node) -> Node:
    """`a` where the condition holds, else `b`."""
    if not is_predicate(condition):
        raise fail("where", "the first argument must be a condition such as a < b", condition)
    _scalars("where", a, b)
    return make(
        "where",
        (condition, a, b),
        is_real=a.is_real and b.is_real,
        is_nonnegative=a.is_nonnegative and b.is_nonnegative,
    )


def label(op: str, a: Node, data: Hashable) -> Node:
    """``named`` or ``tagged``: the same value with a name or with tags."""
    return make(op, (a,), data, shape=a.shape, is_real=a.is_real, is_nonnegative=a.is_nonnegative)


def rebuild(node: Node, args: tuple[Node, ...]) -> Node:
    """The operation of `node` on other operands of the same shapes.

    Kinds are worked out anew: a sum whose complex term is gone is real. They have to be, because
    equal contents are one node, however it was made.
    """
    if all(new is old for new, old in zip(args, node.args, strict=True)):
        return node
    return operation(node.op, args, node.data)


def operation(op: str, args: tuple[Node, ...], data: Hashable) -> Node:
    """A node by the name of its operation, with every check of shapes and kinds.

    Raises
    ------
    ExpressionError
        Unknown operation, or operands that it refuses.
    TypeError
        Wrong number of operands, or data of a wrong type.
    """
    if op == "pow":
        (a,) = args
        return power(a, _integer(data))
    if op == "element":
        (a,) = args
        flat = _integer(data)
        if not 0 <= flat < math.prod(a.shape) or not a.shape:
            raise fail("element", f"there is no element {flat}", a)
        return _item(a, flat)
    if op == "matrix":
        if not isinstance(data, tuple) or len(data) != 2 or math.prod(data) != len(args):
            raise TypeError(f"{len(args)} elements do not fill the shape {data!r}")
        columns = max(data[1], 1)
        return matrix(tuple(args[i : i + columns] for i in range(0, len(args), columns)))
    if op == "vector":
        return vector(args)
    if op in {"named", "tagged"}:
        (a,) = args
        return label(op, a, data)
    if op in {"real", "imag", "conj"}:
        return part(op, *args)
    if op in {"complex", "atan2"}:
        return binary_real(op, *args)
    if op in {"minimum", "maximum"}:
        return extreme(op, *args)
    if op in {"and", "or", "not"}:
        return logical(op, *args)
    if op in PREDICATES:
        return compare(op, *args)
    if op in _BY_NAME:
        return _BY_NAME[op](*args)
    if op not in _UNARY:
        raise ExpressionError(f"there is no operation {op!r}", operation=op, shapes=[])
    return unary(op, *args)


def _integer(data: Hashable) -> int:
    if not isinstance(data, int) or isinstance(data, bool):
        raise TypeError(f"needs an integer, got {data!r}")
    return data


#: Functions of one scalar.
_UNARY = frozenset({"sqrt", "exp", "log", "norm_sqr", "abs"}) | frozenset(
    {"sin", "cos", "tan", "asin", "atan", "sinh", "cosh", "tanh"}
)
_BY_NAME: dict[str, Callable[..., Node]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "power": general_power,
    "neg": neg,
    "dot": matmul,
    "matvec": matmul,
    "matmul": matmul,
    "solve": solve,
    "where": where,
}
