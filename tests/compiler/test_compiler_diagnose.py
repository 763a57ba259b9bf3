"""What went wrong at one event."""

from __future__ import annotations

import math

import pytest

import laddu_dask as ld
from laddu_dask.compiler.diagnose import evaluate_event

A = ld.parameter("a")
X, Y = ld.scalar("x"), ld.scalar("y")


@pytest.mark.parametrize(
    ("expr", "columns", "value", "culprit"),
    [
        (A * X, {"x": 2.0}, 6, None),
        ((A * X).log(), {"x": -1.0}, complex(math.log(3), math.pi), None),
        ((A * X).log() + Y, {"x": 0.0, "y": 1.0}, -math.inf, "log(a * x)"),
        (1 + (1 / (X - A)).norm_sqr(), {"x": 3.0}, math.inf, "1.0 / (x - a)"),
        ((X - A).named("gap") ** -2, {"x": 3.0}, math.inf, "gap**-2"),
        (X * A + 1, {"x": math.nan}, math.nan, "x"),
        ((X * 1000).exp().sin(), {"x": 1.0}, math.nan, "exp(x * 1000.0)"),
        # An infinity that does no harm is not blamed for one that does.
        (1 / (1 / (X * 0)) + Y.log(), {"x": 1.0, "y": 0.0}, -math.inf, "log(y)"),
        (ld.where(X > 0, A, X.log().real()), {"x": 1.0}, 3, None),
        (ld.where(X > 0, A, 1 / X), {"x": 0.0}, math.inf, "1.0 / x"),
        (ld.where(X >= 0, A / Y, 1 / X), {"x": 1.0, "y": 0.0}, math.inf, "a / y"),
        (ld.vector([X, Y]) @ ld.vector([1, 1 / X]), {"x": 0.0, "y": 1.0}, math.inf, "1.0 / x"),
        ((X - 1) * 1j, {"x": 2.0}, 1j, None),
        ((X - A) ** 0.5, {"x": -1.0}, 2j, None),
        (2 + abs(X) ** -0.5, {"x": 0.0}, math.inf, "abs(x)**(-0.5)"),
        (A - (X * 800).sinh(), {"x": 1.0}, -math.inf, "sinh(x * 800.0)"),
        (ld.complex(X, 1).atan(), {"x": 0.0}, complex(0, math.inf), "atan(complex(x, 1.0))"),
        (ld.maximum(X.log().real(), 1), {"x": 0.0}, 1, None),
        # The NaN of one operand, not the infinity of the other.
        (ld.minimum(1 / X, Y / Y), {"x": 0.0, "y": 0.0}, math.nan, "y / y"),
        (ld.minimum(1 / X, 2 / X), {"x": 0.0}, math.inf, "1.0 / x"),
    ],
)
def test_first_part_that_is_not_finite(
    expr: ld.Expr, columns: dict[str, float], value: complex, culprit: str | None
) -> None:
    found, blamed = evaluate_event(expr.node, columns, {"a": 3.0})
    assert blamed == culprit
    if value != value:
        assert math.isnan(found.real)
    else:
        assert found == value


def test_both_branches_bad() -> None:
    """The branch that was taken is blamed."""
    expr = ld.where(X > 0, 1 / Y, 2 / Y)
    for x, text in ((1.0, "1.0 / y"), (-1.0, "2.0 / y")):
        assert evaluate_event(expr.node, {"x": x, "y": 0.0}, {})[1] == text


def test_deep_expression() -> None:
    expr = A / X
    for _ in range(10_000):
        expr = expr + 1
    assert evaluate_event(expr.node, {"x": 0.0}, {"a": 1.0}) == (complex(math.inf), "a / x")
