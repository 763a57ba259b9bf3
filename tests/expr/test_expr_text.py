"""Expressions as text."""

from __future__ import annotations

import pytest

import laddu_dask as ld
from laddu_dask.expr.text import equation

X, Y = ld.scalar("x"), ld.scalar("y")
A = ld.parameter("a")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (X, "x"),
        (A * X + 2, "(a * x) + 2.0"),
        (-(X + Y), "-(x + y)"),
        (-X, "-x"),
        ((-X).__neg__(), "-(-x)"),
        ((X + Y) ** 2, "(x + y)**2"),
        ((-X) ** 2, "(-x)**2"),
        (ld.Expr(-2) ** 2, "(-2.0)**2"),
        ((X**2) ** 3, "(x**2)**3"),
        (-(X**2), "-(x**2)"),
        (X.sqrt(), "sqrt(x)"),
        (ld.atan2(Y, X), "atan2(y, x)"),
        (ld.where((X < 1) & ~(Y == X), X, Y), "where((x < 1.0) & (~(y == x)), x, y)"),
        ((X + Y).tagged("t") * A, "(x + y) * a"),
        ((X + Y).named("sum") * A, "sum * a"),
        ((ld.vector([X, Y]) + 1)[0], "(vector(x, y) + 1.0)[0]"),
        (X * 1j, "x * 1j"),
        ((X + Y) ** 0.25, "(x + y)**0.25"),
        ((X**A) ** (A + 1), "(x**a)**(a + 1.0)"),
        ((-2.0) ** X, "(-2.0)**x"),
        (ld.minimum(abs(X), Y.tanh()), "minimum(abs(x), tanh(y))"),
    ],
)
def test_equation(expr: ld.Expr, text: str) -> None:
    assert equation(expr.node) == text
    assert repr(expr) == f"<Expr {text}>"


def test_condition_prints() -> None:
    assert repr((X < 1) | (A >= X)) == "<Predicate (x < 1.0) | (x <= a)>"


def test_tree_shows_shared_parts_once() -> None:
    shared = (X + Y).named("sum")
    assert (shared * shared.sin()).tree().splitlines() == [
        "mul",
        "  #1 named sum",
        "    add",
        "      x",
        "      y",
        "  sin",
        "    #1 (above)",
    ]


def test_deep_graphs_print_in_bounded_space() -> None:
    """AX-64: linear in the number of operations, and no recursion."""
    expr = X
    for _ in range(10_000):
        expr = (expr + A).sin()
    assert len(repr(expr)) < 500
    lines = expr.tree().splitlines()
    assert len(lines) == 30_001
    assert max(map(len, lines)) < 120
    assert lines[-1].strip().endswith("a")
    assert lines[:3] == ["sin", "  add", "    sin"]
    assert lines[41] == "  " * 40 + "[41] add"


def test_shared_graphs_print_in_bounded_space() -> None:
    expr = X
    for _ in range(200):
        expr = expr * expr
    assert len(repr(expr)) < 500
    assert len(expr.tree().splitlines()) == 401
