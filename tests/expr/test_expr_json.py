"""Expressions as JSON text."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import laddu_dask as ld
from laddu_dask.expr.exchange import FORMAT

X = ld.scalar("x")


@pytest.mark.parametrize(
    "expr",
    [
        ld.as_expr(-0.0),
        ld.as_expr(complex(-0.0, 1.0)),
        ld.as_expr(complex(2.0, -0.0)),
        ld.as_expr(math.inf) * ld.as_expr(complex(math.nan, -math.inf)),
        ld.as_expr(0.1 + 0.2),
        ld.parameter("a", initial=(1.0, 3.0), bounds=(0.5, None), scale=0.1, unit="GeV", latex="a"),
        ld.parameter("b", fixed=-2.0, description="held"),
        ld.parameter("c", bounds=(-1.0, 1.0), periodic=True),
        ld.matrix([[1, 2, X], [X, 4, 5j]]),
        ld.vector([X, 1]).tagged("b", "a").named("pair"),
    ],
)
def test_literals_and_definitions_keep_every_bit(expr: ld.Expr) -> None:
    again = ld.Expr.from_json(expr.to_json())
    assert again.node is expr.node
    json.loads(expr.to_json(), parse_constant=pytest.fail)  # strict JSON: no NaN, no Infinity


def test_deep_graphs() -> None:
    expr = X
    for _ in range(10_000):
        expr = (expr + 1).sqrt()
    assert ld.Expr.from_json(expr.to_json()).node is expr.node


def table(*nodes: Any, root: Any = None, **extra: Any) -> str:
    root = len(nodes) - 1 if root is None else root
    return json.dumps({"format": FORMAT, "root": root, "nodes": nodes} | extra)


COLUMN = {"op": "column", "data": "x"}
PAIR = {"op": "vector", "args": [0, 0]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "no JSON"),
        ("[]", "the format must be"),
        (table(COLUMN, format="other"), "the format must be"),
        (table(), "there are no nodes"),
        (table(COLUMN, root=1), "the root 1 is none of 1 nodes"),
        (table(COLUMN, root="0"), "the root '0' is none"),
        (table({"args": []}), "node 0 has no operation"),
        (table(COLUMN, {"op": "neg", "args": [1]}), r"node 1 \(neg\): operands \[1\] do not come"),
        (table(COLUMN, {"op": "neg", "args": [-1]}), "do not come before it"),
        (table(COLUMN, {"op": "neg", "args": [0, 0]}), r"node 1 \(neg\)"),
        (table(COLUMN, {"op": "erf", "args": [0]}), "there is no operation 'erf'"),
        (table(COLUMN, {"op": "pow", "args": [0], "data": 0.5}), "needs an integer, got 0.5"),
        (table(COLUMN, {"op": "pow", "args": [0], "data": 2**31}), "32 bits"),
        (table(COLUMN, PAIR, {"op": "sqrt", "args": [1]}), "sqrt: needs scalars"),
        (table(COLUMN, PAIR, {"op": "element", "args": [1], "data": 2}), "there is no element 2"),
        (table(COLUMN, {"op": "element", "args": [0], "data": 0}), "there is no element 0"),
        (table(COLUMN, {"op": "matrix", "args": [0, 0], "data": [2, 2]}), "do not fill the shape"),
        (table(COLUMN, {"op": "lt", "args": [0, 0]}, {"op": "sin", "args": [1]}), "condition"),
        (table({"op": "column", "data": ""}), "a column needs a name"),
        (table({"op": "const", "data": "x"}), r"node 0 \(const\)"),
        (table({"op": "const", "data": True}), "True is no number"),
        (table({"op": "const", "data": {"re": 1}}), "'im'"),
        (table({"op": "parameter", "data": {"name": ""}}), "non-empty name"),
        (table({"op": "parameter", "data": {"name": "a", "scale": -1}}), "scale must be positive"),
        (table({"op": "parameter", "data": {"name": "a", "colour": 1}}), "colour"),
    ],
)
def test_malformed_tables(text: str, problem: str) -> None:
    """EX-13: which rule broke, and at which node."""
    with pytest.raises(ld.ExpressionError, match=problem):
        ld.Expr.from_json(text)


def test_a_condition_is_no_expression() -> None:
    text = table(COLUMN, {"op": "lt", "args": [0, 0]})
    with pytest.raises(ld.ExpressionError, match="condition"):
        ld.Expr.from_json(text)
