"""Operators and functions: operand types, shapes, conditions, and errors at build time."""

from __future__ import annotations

import fractions
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracle import evaluate

import laddu_dask as ld

X = ld.scalar("x")
P = ld.parameter("p")
V = ld.vector([X, P, 2])
M = ld.matrix([[X, 1, P], [2, P, 3]])
COLUMNS = {"x": np.array([0.5, -1.25])}
POINT = {"p": 0.75}

NUMBERS = [
    3,
    -2.5,
    True,
    1 - 2j,
    fractions.Fraction(3, 4),
    np.float64(1.5),
    np.float32(0.1),
    np.float16(0.5),
    np.longdouble(0.25),
    np.int64(-7),
    np.uint8(200),
    np.bool_(True),
    np.complex128(0.5 + 2j),
    np.complex64(1j),
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: f"{type(n).__name__} {n}")
@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_numbers_on_both_sides(operation: Callable[[Any, Any], Any], number: Any) -> None:
    value = complex(number)
    x = COLUMNS["x"]
    for expr, expected in (
        (operation(X, number), operation(x, value)),
        (operation(number, X), operation(value, x)),
    ):
        assert isinstance(expr, ld.Expr)
        np.testing.assert_allclose(evaluate(expr, COLUMNS), expected, rtol=1e-15)
        assert expr.is_real == (value.imag == 0)


@pytest.mark.parametrize("number", [2, np.float64(2), np.int32(2)])
def test_comparisons_with_numbers_on_both_sides(number: Any) -> None:
    """A NumPy scalar on the left hands over instead of comparing element by element."""
    x = np.array([1.0, 2.0, 3.0, math.nan])
    for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq):
        for expr, expected in (
            (compare(X, number), compare(x, 2)),
            (compare(number, X), compare(2, x)),
        ):
            assert isinstance(expr, ld.Predicate)
            np.testing.assert_array_equal(evaluate(expr, {"x": x}), expected)


def test_every_comparison_with_nan_is_false() -> None:
    """AX-53, T-65: also !=, unlike IEEE."""
    columns = {"x": np.array([1.0, math.nan])}
    np.testing.assert_array_equal(evaluate(X != 2, columns), [True, False])
    np.testing.assert_array_equal(evaluate(~(X == X), columns), [False, True])


@pytest.mark.parametrize(
    "operation",
    [
        operator.add,
        operator.sub,
        operator.mul,
        operator.truediv,
        operator.matmul,
        operator.pow,
        operator.lt,
        operator.eq,
    ],
)
@pytest.mark.parametrize("array", [np.ones(3), np.ones((2, 2)), np.array(1.0), [1.0, 2.0], "x"])
def test_arrays_and_other_objects_are_refused(
    operation: Callable[[Any, Any], Any], array: Any
) -> None:
    """Neither side makes an object array of expressions."""
    with pytest.raises((TypeError, ld.ExpressionError)):
        operation(X, array)
    with pytest.raises((TypeError, ld.ExpressionError)):
        operation(array, X)


@pytest.mark.parametrize("value", ["x", None, np.ones(1), [1.0], {}, object()])
def test_only_numbers_become_literals(value: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot use .* give a number, an Expr, or ld.scalar"):
        ld.Expr(value)


def test_unary_operators() -> None:
    assert (+X).node is X.node
    np.testing.assert_array_equal(evaluate(-X, COLUMNS), [-0.5, 1.25])
    assert evaluate(-V, COLUMNS, POINT).shape == (3, 2)


@pytest.mark.parametrize("exponent", [0, 1, 2, -3, np.int8(5)])
def test_integer_powers(exponent: Any) -> None:
    expected = COLUMNS["x"] ** float(exponent)
    np.testing.assert_allclose(evaluate(X**exponent, COLUMNS), expected, rtol=1e-15)


@pytest.mark.parametrize("exponent", [2.0, np.float64(2), ld.as_expr(2), 2 + 0j, np.longdouble(2)])
def test_integer_valued_literals_make_integer_powers(exponent: Any) -> None:
    assert (X**exponent).node is (X**2).node


@pytest.mark.parametrize("exponent", [0.25, -0.5, 1.5 - 0.5j, np.float64(0.3), X, ld.as_expr(1j)])
def test_general_powers(exponent: Any) -> None:
    """A base that may be negative gives the principal complex value, another one stays real."""
    power = X**exponent
    assert not power.is_real
    number = evaluate(exponent, COLUMNS) if isinstance(exponent, ld.Expr) else exponent
    expected = COLUMNS["x"].astype(complex) ** number
    np.testing.assert_allclose(evaluate(power, COLUMNS), expected, rtol=4e-15)
    number = np.asarray(number)
    assert ((X * X) ** exponent).is_real == bool((number.imag == 0).all())
    np.testing.assert_allclose(
        evaluate(2.0 ** (X * exponent), COLUMNS), 2.0 ** (COLUMNS["x"] * number), rtol=4e-15
    )
    assert (2.0**X).is_real
    assert (2**X).node is (ld.as_expr(2.0) ** X).node
    assert not ((-2.0) ** X).is_real


def test_kinds_of_functions() -> None:
    """EX-06: real where mathematics says so for every real argument."""
    z = ld.complex(X, P)
    for name in ("tan", "asin", "atan", "sinh", "cosh", "tanh"):
        assert getattr(X, name)().is_real, name
        assert not getattr(z, name)().is_real, name
    assert abs(z).is_real
    for nonnegative in (abs(z), abs(X), X.cosh(), ld.maximum(X, 0), ld.minimum(abs(X), 2.5)):
        assert nonnegative.sqrt().is_real
        assert (nonnegative**0.3).sqrt().is_real
    for other in (X.sinh(), ld.maximum(X, P), ld.minimum(X, 0), ld.maximum(X, -0.0)):
        assert not other.sqrt().is_real
    tagged = (X * X).tagged("a") ** 0.5 + abs(z.tagged("b"))
    assert ld.expr.project(tagged, "a").is_real


@pytest.mark.parametrize(
    ("closed", "expected"),
    [
        ("both", [False, True, True, True, False, False]),
        ("neither", [False, False, True, False, False, False]),
        ("left", [False, True, True, False, False, False]),
        ("right", [False, False, True, True, False, False]),
    ],
)
def test_intervals(closed: str, expected: list[bool]) -> None:
    x = {"x": np.array([-1.5, -1.0, 0.0, 2.0, 2.5, math.nan])}
    for low, high in ((-1, 2.0), (ld.as_expr(-1), 2 * ld.as_expr(1))):
        inside = ld.Predicate.between(X, low=low, high=high, closed=closed)
        np.testing.assert_array_equal(evaluate(inside, x), expected)


def test_interval_errors() -> None:
    with pytest.raises(ld.ExpressionError, match=r"between: closed must be one of both.*'open'"):
        ld.Predicate.between(X, low=0, high=1, closed="open")
    with pytest.raises(ld.ExpressionError, match=r"complex numbers have no order"):
        ld.Predicate.between(X * 1j, low=0, high=1)
    with pytest.raises(ld.ExpressionError, match="needs scalars"):
        ld.Predicate.between(X, low=V, high=1)
    with pytest.raises(TypeError, match="cannot use str"):
        ld.Predicate.between("x", low=0, high=1)


@pytest.mark.parametrize("exponent", [True, np.bool_(True)])
def test_powers_with_truth_values_are_refused(exponent: Any) -> None:
    with pytest.raises(ld.ExpressionError, match=r"exponent must be a number, got .*True"):
        X**exponent


def test_power_limits() -> None:
    """EX-02: exponents have 32 bits."""
    assert (X ** -(2**31)).is_real
    for exponent in (2**31, -(2**31) - 1):
        with pytest.raises(ld.ExpressionError, match="32 bits"):
            X**exponent
        with pytest.raises(ld.ExpressionError, match="32 bits"):
            X ** float(exponent)
    with pytest.raises(TypeError):
        X ** "2"
    with pytest.raises(TypeError):
        "2" ** X
    with pytest.raises(TypeError):
        pow(X, 2, 3)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("build", "operation", "shapes"),
    [
        (lambda: V + ld.vector([1, 2]), "add", [(3,), (2,)]),
        (lambda: V - M, "subtract", [(3,), (2, 3)]),
        (lambda: V * V, "multiply", [(3,), (3,)]),
        (lambda: M * M, "multiply", [(2, 3), (2, 3)]),
        (lambda: X / V, "divide", [(), (3,)]),
        (lambda: V**2, "power", [(3,)]),
        (lambda: V**0.5, "power", [(3,), ()]),
        (lambda: X**V, "power", [(), (3,)]),
        (lambda: abs(V), "abs", [(3,)]),
        (lambda: V.tan(), "tan", [(3,)]),
        (lambda: ld.minimum(X, V), "minimum", [(), (3,)]),
        (lambda: ld.maximum(X * 1j, 2), "maximum", [(), ()]),
        (lambda: M.sqrt(), "sqrt", [(2, 3)]),
        (lambda: V.norm_sqr(), "norm_sqr", [(3,)]),
        (lambda: V.exp(), "exp", [(3,)]),
        (lambda: M @ M, "matmul", [(2, 3), (2, 3)]),
        (lambda: V @ M, "matmul", [(3,), (2, 3)]),
        (lambda: M @ X, "matmul", [(2, 3), ()]),
        (lambda: ld.dot(V, M), "dot", [(3,), (2, 3)]),
        (lambda: ld.dot(V, ld.vector([1, 2])), "dot", [(3,), (2,)]),
        (lambda: ld.atan2(V, X), "atan2", [(3,), ()]),
        (lambda: ld.complex(X, V), "complex", [(), (3,)]),
        (lambda: ld.vector([X, V]), "vector", [(), (3,)]),
        (lambda: ld.matrix([[X, 1], [2]]), "matrix", [(2,), (1,)]),
        (lambda: ld.vector([]), "vector", []),
        (lambda: ld.matrix([]), "matrix", []),
        (lambda: ld.matrix([[]]), "matrix", []),
        (lambda: V[3], "element", [(3,)]),
        (lambda: V[-4], "element", [(3,)]),
        (lambda: M[2], "element", [(2, 3)]),
        (lambda: M[0, 3], "element", [(2, 3)]),
        (lambda: V[0, 0], "element", [(3,)]),
        (lambda: ld.matmul(M, V), "matmul", [(2, 3), (3,)]),
        (lambda: ld.matmul(M, M), "matmul", [(2, 3), (2, 3)]),
        (lambda: ld.matvec(V, M), "matvec", [(3,), (2, 3)]),
        (lambda: ld.matvec(M, ld.vector([1, 2])), "matmul", [(2, 3), (2,)]),
        (lambda: ld.matrix([1, 2, X], (2, 2)), "matrix", [(2, 2)]),
        (lambda: ld.matrix([], (0, 2)), "matrix", [(0, 2)]),
        (lambda: ld.matrix([V, M], (1, 2)), "matrix", [(3,), (2, 3)]),
        (lambda: ld.sum([]), "sum", []),
        (lambda: ld.prod([]), "prod", []),
        (lambda: ld.sum([V, M]), "add", [(3,), (2, 3)]),
        (lambda: ld.prod([V, 2, V]), "multiply", [(3,), (3,)]),
        (lambda: M.at(2, 0), "element", [(2, 3)]),
        (lambda: V.at(0, 0), "element", [(3,)]),
        (lambda: X[0], "element", [()]),
        (lambda: ld.where(X < 1, V, V), "where", [(3,), (3,)]),
        (lambda: V < 1, "comparison", [(3,), ()]),
        (lambda: ld.complex(X, 1) < 1, "comparison", [(), ()]),
    ],
)
def test_shape_errors_name_the_operation_and_the_shapes(
    build: Callable[[], Any], operation: str, shapes: list[tuple[int, ...]]
) -> None:
    with pytest.raises(ld.ExpressionError) as caught:
        build()
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.operation == operation
    assert error.shapes[: len(shapes)] == shapes
    assert str(error).startswith(operation)


def test_error_text_spells_the_shapes() -> None:
    with pytest.raises(ld.ExpressionError, match=r"operands: vector of 3, 2x3 matrix"):
        V + M


def test_shapes() -> None:
    assert X.shape == ()
    assert V.shape == (3,)
    assert M.shape == (2, 3)
    assert (V * X).shape == (X * V).shape == (V + 1).shape == (V / X).shape == (3,)
    assert (M @ V).shape == (2,)
    assert (M @ ld.matrix([[1], [2], [3]])).shape == (2, 1)
    assert (V @ V).shape == ld.dot(V, V).shape == M.at(0, 0).shape == ()
    assert M.conj().shape == M.real().shape == M.imag().shape == M.named("m").shape == (2, 3)


def test_scalars_broadcast_and_products_sum_in_order() -> None:
    """OP-09."""
    x, p = COLUMNS["x"], POINT["p"]
    np.testing.assert_array_equal(
        evaluate(V + 1, COLUMNS, POINT), [x + 1, [p + 1, p + 1], [3.0, 3.0]]
    )
    np.testing.assert_array_equal(
        evaluate(M @ V, COLUMNS, POINT), [x * x + p + p * 2, 2 * x + p * p + 6]
    )


def test_sequence_protocol() -> None:
    """len, iteration and unpacking end; negative indices count from the end."""
    assert len(V) == 3
    first, second, third = V
    assert (first.node, second.node) == (V[0].node, V[-2].node)
    assert third.node is V[2].node is V[np.int64(2)].node
    assert M.at(-1, -1).node is M.at(1, 2).node is M[1, 2].node is M[-1, -1].node
    with pytest.raises(TypeError, match="no length"):
        len(X)
    with pytest.raises(TypeError):
        list(X)
    for index in (0.0, "0", slice(0, 1), None, (0.0, 0)):
        with pytest.raises(TypeError):
            V[index]  # type: ignore[index]


def test_rows_of_a_matrix() -> None:
    """A matrix is a sequence of its rows, each a vector."""
    assert len(M) == 2
    first, second = M
    assert first.shape == (3,)
    assert first.node is M[0].node is M[-2].node
    for i, row in enumerate(M):
        for j, element in enumerate(row):
            np.testing.assert_array_equal(
                evaluate(element, COLUMNS, POINT), evaluate(M.at(i, j), COLUMNS, POINT)
            )
    np.testing.assert_array_equal(evaluate(second, COLUMNS, POINT), evaluate(M, COLUMNS, POINT)[1])
    assert ld.matrix(M).shape == M.shape
    assert ld.matrix([*V, *V], (2, 3)).node is ld.matrix([V, V]).node


@pytest.mark.parametrize("get", [lambda i: V[i], lambda i: M[i], lambda i: M[0, i]])
def test_an_index_out_of_range_is_an_index_error_too(get: Callable[[int], Any]) -> None:
    """So that whatever steps through indices, as `reversed` and old iteration do, comes to an end.

    A worker may raise it: it survives pickling.
    """
    for index in (3, -4, 2**70):
        with pytest.raises(IndexError, match=f"element: index {index} is out of range") as caught:
            get(index)
        assert isinstance(caught.value, ld.ExpressionError)
        again = pickle.loads(pickle.dumps(caught.value))
        assert isinstance(again, IndexError)
        assert again.operation == "element"
    assert [e.node for e in reversed(V)] == [V[2].node, V[1].node, V[0].node]


def test_sums_and_products_of_many() -> None:
    """From left to right, whatever they are summed from; one operand is itself."""
    x, p = COLUMNS["x"], POINT["p"]
    assert ld.sum([X, P, 2]).node is (X + P + 2).node
    assert ld.sum(V).node is (V[0] + V[1] + V[2]).node
    assert ld.prod(iter([X, P, 2])).node is (X * P * 2).node
    assert ld.sum([X]).node is ld.prod([X]).node is X.node
    assert ld.sum(M).node is (M[0] + M[1]).node
    np.testing.assert_array_equal(
        evaluate(ld.prod([2, V, X]), COLUMNS, POINT), 2 * x * [x, [p, p], [2, 2]]
    )
    long = ld.sum(X * k for k in range(10_000)) + ld.prod([X] * 10_000)
    assert long.is_real


def test_named_products() -> None:
    """matvec and matmul are @ for operands of one kind."""
    assert ld.matvec(M, V).node is (M @ V).node
    square = ld.matrix([[1, X], [P, 2]])
    assert ld.matmul(square, M).node is (square @ M).node


def test_conditions_have_no_truth_value() -> None:
    """`and`, `or`, `not`, `if` and chains raise instead of keeping one operand silently."""
    for use in (
        lambda: bool(X < 1),
        lambda: 0 < X < 1,
        lambda: X < P <= 2,
        lambda: (X < 1) and (P < 1),
        lambda: (X < 1) or (P < 1),
        lambda: not (X < 1),
        lambda: 1 if X == P else 2,
        lambda: X in [P],
        lambda: (X < 1) == (P < 1),
        lambda: (X < 1) != True,  # noqa: E712
    ):
        with pytest.raises(ld.ExpressionError, match="condition"):
            use()
    with pytest.raises(ld.ExpressionError, match="no truth value"):
        bool(X)
    with pytest.raises(ld.ExpressionError, match="no truth value"):
        bool(X and P)


def test_conditions_are_not_numbers() -> None:
    condition = X < 1
    for use in (
        lambda: condition + 1,
        lambda: 1 * condition,
        lambda: X + condition,
        lambda: condition < X,
        lambda: ld.Expr(condition),
        lambda: ld.vector([condition]),
        lambda: condition & 1,
        lambda: condition & True,
        lambda: condition | X,
        lambda: True & condition,
        lambda: X & condition,
    ):
        with pytest.raises((TypeError, ld.ExpressionError)):
            use()
    with pytest.raises(ld.ExpressionError, match="parentheses"):
        condition & 2  # type: ignore[operator]
    for wrong in (X, True, np.array([True])):
        with pytest.raises(ld.ExpressionError, match="must be a condition"):
            ld.where(wrong, 1, 2)  # type: ignore[arg-type]


def test_conditions_combine() -> None:
    columns = {"x": np.array([-1.0, 0.0, 1.0, 2.0])}
    inside = (X >= 0) & (X < 2)
    np.testing.assert_array_equal(evaluate(inside, columns), [False, True, True, False])
    np.testing.assert_array_equal(evaluate(~inside | (X == 1), columns), [True, False, True, True])
    picked = evaluate(ld.where(inside, X * 10, -X), columns).real
    np.testing.assert_array_equal(picked, [1, 0, 10, -2])


def test_event_inputs() -> None:
    """EX-15: the components of four-momenta are columns with fixed endings."""
    names = [ld.p4_component("ks1", c).node.data for c in ("e", "px", "py", "pz")]
    assert names == ["ks1_e", "ks1_px", "ks1_py", "ks1_pz"]
    for component in ("E", "pt", "", 0):
        with pytest.raises(ld.ExpressionError, match="component must be one of"):
            ld.p4_component("ks1", component)  # type: ignore[arg-type]
    for name in ("", None, 3):
        with pytest.raises(ld.ExpressionError, match="column name"):
            ld.scalar(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (ld.complex(3, 4), 3 + 4j),
        (ld.complex(ld.complex(1, 5), 2), 1 + 2j),
        (ld.cis(0.5), complex(math.cos(0.5), math.sin(0.5))),
        (ld.polar_complex(2, 0.25), 2 * complex(math.cos(0.25), math.sin(0.25))),
        (ld.atan2(-1, -1), -0.75 * math.pi),
        (ld.atan2(0, 0), 0),
        (ld.atan2(ld.complex(1, 7), ld.complex(1, -3)), math.pi / 4),
        (ld.acos(0.5), math.pi / 3),
        (ld.acos(1.0000001), 0),
        (ld.acos(-1.0000001), math.pi),
        (ld.acos(2), 0),
        (ld.acos(-2), math.pi),
        (ld.acos(ld.complex(0.5, 9)), math.pi / 3),
        (ld.dot(ld.vector([1j]), ld.vector([1j])), -1),
        (ld.matrix([[1, 2], [3, 4]]).at(0, 1), 2),
        (ld.Expr(0) ** 0, 1),
        (ld.Expr(0.8) ** -2, 1.5625),
        (ld.Expr(-4).sqrt(), 2j),
        (ld.complex(-4, 0.0).sqrt(), 2j),
        (ld.complex(-4, -0.0).sqrt(), -2j),
        (ld.Expr(-1).log(), 1j * math.pi),
    ],
)
def test_functions_of_numbers(expr: ld.Expr, expected: complex) -> None:
    """AX-61, AX-62, OP-07; acos clamps just beyond one."""
    value = complex(evaluate(expr)[0])
    assert value.real == pytest.approx(expected.real, abs=1e-15, rel=1e-15)
    assert value.imag == pytest.approx(expected.imag, abs=1e-15, rel=1e-15)
