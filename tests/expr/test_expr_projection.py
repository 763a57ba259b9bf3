"""Tags and projections."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracle import evaluate

import laddu_dask as ld
from laddu_dask.expr import project, tags

A = ld.parameter("a", initial=2.0).tagged("A")
B = ld.parameter("b", initial=3.0).tagged("B")
C = ld.parameter("c", initial=5.0)
POINT = {"a": 2.0, "b": 3.0, "c": 5.0}


@pytest.mark.parametrize(
    ("expr", "wanted", "expected"),
    [
        ((A + B).norm_sqr(), ["A"], 4),
        ((A + B).norm_sqr(), "A", 4),
        ((A + B).norm_sqr(), ("A", "B"), 25),
        ((A + B + C).norm_sqr(), ["A"], 49),
        ((C * (A + B)).norm_sqr(), ["A"], 100),
        (A * B, ["A"], 0),
        (A - B, ["B"], -3),
        (A / (A + B), ["A"], 1),
        (C / (A + B), ["A"], 2.5),
        ((A + B).exp(), ["A"], math.exp(2)),
        ((A * 1j + B).sqrt(), ["B"], math.sqrt(3)),
        (ld.atan2(A, B), ["A"], math.pi / 2),
        (ld.complex(A, B).conj(), ["B"], -3j),
        (ld.where(A < B, A, B), ["B"], 0),
        (ld.dot(ld.vector([A, B]), ld.vector([B, C])), ["B"], 15),
        ((A**2 + B**2).log(), ["A"], math.log(4)),
        (ld.vector([A, B]).tagged("V")[0] + ld.vector([C, B])[0], "B", 5),
        (ld.matrix([[A, 1], [2, B]]).tagged("M").at(1, 0) + B, "B", 3),
        ((ld.matrix([[A, 1], [2, B]]) @ ld.vector([C, B]))[0], ["B"], 3),
    ],
)
def test_projection_semantics(expr: ld.Expr, wanted: str | list[str], expected: complex) -> None:
    """Tagged parts without a wanted tag become zero; untagged parts stay."""
    assert evaluate(expr.project(wanted), {}, POINT)[0] == pytest.approx(expected, rel=1e-15)
    assert project(expr, wanted).node is expr.project(wanted).node


def test_tags_of_one_node_add_up() -> None:
    expr = ld.scalar("x").tagged("b", "a").tagged("c")
    assert expr.node.op == "tagged"
    assert expr.node.data == ("a", "b", "c")
    assert expr.node.args[0].op == "column"
    assert expr.tagged("a").node is expr.node
    for tag in "abc":
        assert project(expr, tag).node is expr.node
    assert tags((A + B) * expr) == ("A", "B", "a", "b", "c")
    assert tags(C) == ()


def test_nested_tags() -> None:
    expr = (A + B).tagged("AB") + C
    assert evaluate(project(expr, ["AB", "A"]), {}, POINT)[0] == 7
    assert evaluate(project(expr, ["AB"]), {}, POINT)[0] == 5
    assert evaluate(project(expr, ["A"]), {}, POINT)[0] == 5


def test_unknown_tags_raise() -> None:
    """A misspelt tag would otherwise give a model without its waves."""
    with pytest.raises(ld.ExpressionError, match=r"unknown tags \['a'\]") as caught:
        (A + B).project(["A", "a"])
    assert caught.value.tags == ["A", "B"]
    with pytest.raises(ld.ExpressionError, match="no tag given"):
        (A + B).project([])
    with pytest.raises(ld.ExpressionError, match="unknown tags"):
        C.project("A")


@pytest.mark.parametrize("wrong", [(), ("",), (3,), ("A", None)])
def test_tags_are_non_empty_strings(wrong: tuple[object, ...]) -> None:
    with pytest.raises(ld.ExpressionError, match="tagged: needs non-empty strings"):
        C.tagged(*wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["", None, 3])
def test_names_are_non_empty_strings(wrong: object) -> None:
    with pytest.raises(ld.ExpressionError, match="named: needs a non-empty string"):
        C.named(wrong)  # type: ignore[arg-type]


def test_names_and_tags_do_not_change_values_or_kinds() -> None:
    x = ld.scalar("x")
    for expr in (x**2, x.sqrt(), ld.vector([x, 1])):
        for marked in (expr.named("n"), expr.tagged("t")):
            assert (marked.shape, marked.is_real) == (expr.shape, expr.is_real)
            assert marked.node.is_nonnegative == expr.node.is_nonnegative
            columns = {"x": np.array([2.0, -3.0])}
            np.testing.assert_array_equal(evaluate(marked, columns), evaluate(expr, columns))


def test_projection_is_what_one_would_have_written() -> None:
    """Kinds are those of the remaining parts, and do not depend on which was built first."""
    x = ld.scalar("x")
    projected = (x + ld.complex(x, 1).tagged("Z") + B).project("B")
    assert projected.is_real
    assert projected.node is (x + 0 + B).node
    assert isinstance(projected < 1, ld.Predicate)
    assert ((x**2 + ld.complex(x, 1).tagged("Z")).sqrt() + B).project("B").is_real


def test_projecting_keeps_sharing() -> None:
    expr = A + B
    for _ in range(60):  # 2**60 nodes if sharing were lost
        expr = expr * expr * 0.5
    assert expr.project(["A", "B"]).node is expr.node
    assert expr.project(["A"]).shape == ()
