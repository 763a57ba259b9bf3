"""The node of linear systems: shapes, kinds, text, identity."""

from __future__ import annotations

import pickle

import pytest

import laddu_dask as ld
from laddu_dask.expr import build, project

X, P = ld.scalar("x"), ld.parameter("p")
REAL = ld.matrix([[X, 1.0], [P, 2.0]])
COMPLEX = ld.matrix([[X, 1j], [P, 2.0]])
RHS = ld.vector([P, 1.0])


def test_shape_and_kind() -> None:
    """EX-01, EX-06: a vector as long as the right-hand side, real if both operands are."""
    solution = ld.solve(REAL, RHS)
    assert solution.shape == (2,)
    assert len(solution) == 2
    assert solution.is_real
    assert solution[1].is_real
    assert not ld.solve(COMPLEX, RHS).is_real
    assert not ld.solve(REAL, ld.vector([1j, 1.0])).is_real


@pytest.mark.parametrize(
    ("a", "b", "problem"),
    [
        (ld.matrix([[X, 1, 2], [P, 2, 3]]), RHS, "first operand must be a square matrix"),
        (RHS, RHS, "first operand must be a square matrix"),
        (X, RHS, "first operand must be a square matrix"),
        (REAL, ld.vector([1, 2, 3]), "right-hand side must be a vector of 2"),
        (REAL, X, "right-hand side must be a vector of 2"),
        (REAL, REAL, "right-hand side must be a vector of 2"),
        (
            ld.matrix([[float(i == j) for j in range(9)] for i in range(9)]),
            ld.vector(range(9)),
            "at most 8 unknowns",
        ),
    ],
)
def test_shapes_are_checked_when_built(a: ld.Expr, b: ld.Expr, problem: str) -> None:
    """EX-08: the error names the operation and both shapes."""
    with pytest.raises(ld.ExpressionError, match=problem) as caught:
        ld.solve(a, b)
    assert caught.value.operation == "solve"
    assert caught.value.shapes == [a.shape, b.shape]


def test_conditions_are_not_numbers() -> None:
    with pytest.raises(ld.ExpressionError, match="a condition is not a number"):
        ld.solve(REAL, X < P)


def test_identity() -> None:
    """Equal systems are one node, also after a round trip through pickle."""
    solution = ld.solve(REAL, RHS)
    assert ld.solve(REAL, RHS).node is solution.node
    assert pickle.loads(pickle.dumps(solution)).node is solution.node
    assert ld.solve(COMPLEX, RHS).node is not solution.node


def test_text() -> None:
    text = repr(ld.solve(REAL, RHS)[0])
    assert text == "<Expr solve(matrix(x, 1.0, p, 2.0), vector(p, 1.0))[0]>"


def test_other_operands() -> None:
    """Projections rebuild the node, with the kind of the new operands."""
    wave = ld.solve(REAL, ld.vector([P, (1j * P).tagged("a")]) + ld.vector([P.tagged("b"), 0]))
    assert not wave.is_real
    kept = project(wave, "b")
    assert kept.is_real
    assert kept.node is build.solve(
        REAL.node, (ld.vector([P, 0.0]) + ld.vector([P.tagged("b"), 0])).node
    )
