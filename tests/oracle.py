"""An independent evaluator of expression graphs, the truth that other evaluators are tested by.

It walks the graph once, operands first, and does with NumPy exactly what each node says: nothing is
rewritten, folded or reordered. Three rules make its results a definition:

* Values of real kind are float64 arrays all the way, the others complex128. A real operand of a
  complex operation acts on the real and the imaginary part separately (C99, annex G): it is not
  first given an imaginary part, which would turn 0 * inf into NaN and flip signs of zero on the
  branch cuts.
* A node whose kind is not real gives a complex array even where its operands are real: the square
  root of -4.0 is 2i, the logarithm of -1.0 is i pi.
* A zero imaginary part that only roots and logarithms of real values have brought in is +0: were
  their arguments known to be positive, there would be none.

A value with no event in it (literals, parameters) has one column and is broadcast over events.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laddu_dask.expr import Expr, Node, ParameterSpec, Predicate
from laddu_dask.expr.node import walk

Array = NDArray[Any]


def evaluate(
    expr: Expr | Predicate,
    columns: Mapping[str, Array] | None = None,
    parameters: Mapping[str, float] | None = None,
) -> Array:
    """Value of an expression for every event.

    Parameters
    ----------
    expr
        A scalar, vector or matrix expression, or a condition.
    columns
        Event columns by name, one-dimensional and of one length n; extra ones are ignored.
    parameters
        Values of the free parameters by name; extra ones are ignored. Fixed parameters take their
        fixed value unless they are given here.

    Returns
    -------
    ndarray
        complex128 of shape ``(n,)``, ``(rows, n)`` or ``(rows, columns, n)``, events last; bool for
        a condition. n is 1 when the expression needs no column.

    Raises
    ------
    KeyError
        A column or a free parameter that was not given.
    """
    columns = {name: np.asarray(column) for name, column in (columns or {}).items()}
    values: dict[int, Array] = {}
    used: list[int] = [1]
    unsigned: dict[int, bool] = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for node in walk(expr.node):
            if node.op == "column":
                values[id(node)] = np.asarray(columns[str(node.data)], dtype=np.float64)
                used.append(values[id(node)].size)
            elif node.op == "parameter":
                values[id(node)] = np.array([_parameter(node, parameters or {})])
            else:
                operands = [values[id(arg)] for arg in node.args]
                values[id(node)] = _kind(node, _OPERATIONS[node.op](node, *operands))
            unsigned[id(node)] = node.is_real or (
                node.op not in {"const", "complex"} and all(unsigned[id(arg)] for arg in node.args)
            )
            if unsigned[id(node)] and _is_complex(values[id(node)]):
                values[id(node)] = _pair(values[id(node)].real, values[id(node)].imag + 0.0)
    events = max(used) if 0 not in used else 0
    result = np.broadcast_to(values[id(expr.node)], (*expr.node.shape, events)).copy()
    return result if isinstance(expr, Predicate) else result.astype(np.complex128)


def _parameter(node: Node, given: Mapping[str, float]) -> float:
    spec = node.data
    assert isinstance(spec, ParameterSpec)
    if spec.fixed and spec.name not in given:
        return spec.initial
    return float(given[spec.name])


def _kind(node: Node, value: Array) -> Array:
    """Check that an operation gave the kind that its node declares."""
    declared = "f" if node.is_real else "c"
    if node.op in {"lt", "le", "eq", "ne", "and", "or", "not"}:
        declared = "b"
    assert value.dtype.kind == declared, (node.op, value.dtype, node.is_real)
    assert value.shape[:-1] == node.shape, (node.op, value.shape, node.shape)
    return value


def _pair(real: Array, imag: Array) -> Array:
    result = np.empty(np.broadcast_shapes(np.shape(real), np.shape(imag)), dtype=np.complex128)
    result.real, result.imag = real, imag
    return result


def _is_complex(*values: Array) -> bool:
    return any(value.dtype.kind == "c" for value in values)


def _as_complex(value: Array) -> Array:
    return value if _is_complex(value) else _pair(value, np.zeros_like(value))


def _add(a: Array, b: Array) -> Array:
    if _is_complex(a) and not _is_complex(b):
        return _pair(a.real + b, np.broadcast_to(a.imag, np.broadcast_shapes(a.shape, b.shape)))
    if _is_complex(b) and not _is_complex(a):
        return _pair(a + b.real, np.broadcast_to(b.imag, np.broadcast_shapes(a.shape, b.shape)))
    return np.asarray(a + b)


def _neg(a: Array) -> Array:
    return np.asarray(-a)


def _sub(a: Array, b: Array) -> Array:
    return _add(a, _neg(b))


def _mul(a: Array, b: Array) -> Array:
    if _is_complex(a) and not _is_complex(b):
        return _pair(a.real * b, a.imag * b)
    if _is_complex(b) and not _is_complex(a):
        return _pair(a * b.real, a * b.imag)
    if _is_complex(a, b):
        return _pair(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)
    return np.asarray(a * b)


def _div(a: Array, b: Array) -> Array:
    if _is_complex(a) and not _is_complex(b):
        return _pair(a.real / b, a.imag / b)
    return np.asarray(a / b)


def _power(a: Array, exponent: int) -> Array:
    """Binary powers; a negative exponent is the reciprocal of the positive power."""
    result = np.ones_like(a)
    square, left, empty = a, abs(exponent), True
    while left:
        if left & 1:
            result, empty = (square if empty else _mul(result, square)), False
        left >>= 1
        square = _mul(square, square) if left else square
    return _div(np.ones(1), result) if exponent < 0 else result


def _elements(node: Node, *values: Array) -> Array:
    """Stack scalars into a vector or a row-major matrix, events last."""
    if any(v.dtype.kind == "c" for v in values):
        values = tuple(_as_complex(v) for v in values)
    stacked = np.stack(np.broadcast_arrays(*values))
    return stacked.reshape((*node.shape, -1)) if stacked.size else stacked


def _contract(a: Array, b: Array) -> Array:
    """Product over the last element axis of `a` and the first of `b`, in index order."""
    rows = a if a.ndim == 3 else a[np.newaxis]
    columns = b if b.ndim == 3 else b[:, np.newaxis]
    total: Array | None = None
    for k in range(rows.shape[1]):
        term = _mul(rows[:, k][:, np.newaxis], columns[k][np.newaxis])
        total = term if total is None else _add(total, term)
    assert total is not None
    if b.ndim == 2:
        total = total[:, 0]
    return total[0] if a.ndim == 2 else total


def _solve(a: Array, b: Array) -> Array:
    """LAPACK's solution for each event, NaN where the matrix is exactly singular or not finite."""
    events = max(a.shape[-1], b.shape[-1])
    matrices = np.moveaxis(np.broadcast_to(a, (*a.shape[:-1], events)), -1, 0)
    sides = np.moveaxis(np.broadcast_to(b, (*b.shape[:-1], events)), -1, 0)
    result = np.full(sides.shape, np.nan, dtype=np.result_type(a, b))
    for i in range(events):
        if np.isfinite(matrices[i]).all():
            with contextlib.suppress(np.linalg.LinAlgError):
                result[i] = np.linalg.solve(matrices[i], sides[i])
    return np.moveaxis(result, 0, -1)


def _where(condition: Array, a: Array, b: Array) -> Array:
    if _is_complex(a, b):
        a, b = _as_complex(a), _as_complex(b)
    return np.where(condition, a, b)


def _branching(function: Callable[[Array], Array]) -> Callable[[Node, Array], Array]:
    """A function with a cut along the negative real axis, continued there from above."""

    def apply(node: Node, a: Array) -> Array:
        return np.asarray(function(a if node.is_real else _as_complex(a)))

    return apply


def _norm_sqr(a: Array) -> Array:
    return np.asarray(a.real * a.real + a.imag * a.imag if _is_complex(a) else a * a)


def _general_power(node: Node, a: Array, b: Array) -> Array:
    """Principal power from polar form, in extended precision; zero to a positive power is zero."""
    if node.is_real:
        return np.asarray(np.power(np.abs(a).astype(np.longdouble), b).astype(np.float64))
    x, y = a.real.astype(np.longdouble), a.imag.astype(np.longdouble)
    r = np.hypot(x, y)
    angle = np.arctan2(y, x) if _is_complex(a) else np.arctan2(np.zeros_like(x), x + 0.0)
    p, q = b.real.astype(np.longdouble), b.imag.astype(np.longdouble)
    log = np.log(r)
    growth = np.where(r > 0, q * log, np.where((q == 0) | (p > 0), 0, np.nan))
    size, phase = np.power(r, p) * np.exp(-q * angle), p * angle + growth
    return _pair(size * np.cos(phase), np.where(phase == 0, 0, size * np.sin(phase)))


def _modulus(a: Array) -> Array:
    return np.asarray(np.hypot(a.real, a.imag) if _is_complex(a) else np.abs(a))


def _imag(a: Array) -> Array:
    return a.imag.copy() if _is_complex(a) else np.zeros_like(a)


_OPERATIONS: dict[str, Callable[..., Array]] = {
    "const": lambda node: np.array([node.data]),
    "add": lambda _, a, b: _add(a, b),
    "sub": lambda _, a, b: _sub(a, b),
    "mul": lambda _, a, b: _mul(a, b),
    "div": lambda _, a, b: _div(a, b),
    "neg": lambda _, a: _neg(a),
    "pow": lambda node, a: _power(a, node.data),
    "sqrt": _branching(np.sqrt),
    "log": _branching(np.log),
    "exp": lambda _, a: np.asarray(np.exp(a)),
    "sin": lambda _, a: np.asarray(np.sin(a)),
    "cos": lambda _, a: np.asarray(np.cos(a)),
    "tan": lambda _, a: np.asarray(np.tan(a)),
    "sinh": lambda _, a: np.asarray(np.sinh(a)),
    "cosh": lambda _, a: np.asarray(np.cosh(a)),
    "tanh": lambda _, a: np.asarray(np.tanh(a)),
    "asin": _branching(np.arcsin),
    "atan": _branching(np.arctan),
    "power": _general_power,
    "abs": lambda _, a: _modulus(a),
    "minimum": lambda _, a, b: np.where((a < b) | np.isnan(a), a, b),
    "maximum": lambda _, a, b: np.where((b < a) | np.isnan(a), a, b),
    "norm_sqr": lambda _, a: _norm_sqr(a),
    "real": lambda _, a: a.real.copy(),
    "imag": lambda _, a: _imag(a),
    "conj": lambda _, a: np.asarray(np.conj(a)),
    "complex": lambda _, a, b: _pair(a, b),
    "atan2": lambda _, a, b: np.asarray(np.arctan2(a, b)),
    "vector": _elements,
    "matrix": _elements,
    "element": lambda node, a: a.reshape((-1, a.shape[-1]))[node.data],
    "dot": lambda _, a, b: _contract(a, b),
    "solve": lambda _, a, b: _solve(a, b),
    "matvec": lambda _, a, b: _contract(a, b),
    "matmul": lambda _, a, b: _contract(a, b),
    "lt": lambda _, a, b: np.asarray(a < b),
    "le": lambda _, a, b: np.asarray(a <= b),
    "eq": lambda _, a, b: np.asarray(a == b),
    # Not the complement of eq: every comparison with NaN is false, this one too.
    "ne": lambda _, a, b: np.asarray((a < b) | (a > b)),
    "and": lambda _, a, b: a & b,
    "or": lambda _, a, b: a | b,
    "not": lambda _, a: ~a,
    "where": lambda _, condition, a, b: _where(condition, a, b),
    "named": lambda _, a: a,
    "tagged": lambda _, a: a,
}
