"""Wigner functions that a laddu table writes out are found again where digits would be lost."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracle import evaluate

import laddu_dask as ld
from laddu_dask.physics import WignerD


def written_out(j: Fraction, m_prime: Fraction, m: Fraction, scale: float = 1.0) -> dict[str, Any]:
    """The table of ``d^j_{m'm}(theta)`` as laddu writes it, coefficients rounded to doubles."""
    nodes: list[Any] = [{"RealConst": 0.0}, {"RealConst": 0.5}, {"EventScalar": "theta"}]
    nodes.append({"Binary": {"op": "Mul", "lhs": 1, "rhs": 2}})
    nodes += [{"Unary": {"op": "Cos", "input": 3}}, {"Unary": {"op": "Sin", "input": 3}}]
    total = 0
    f = math.factorial
    parts = [int(one) for one in (j + m_prime, j - m_prime, j + m, j - m)]
    root = math.prod(f(part) for part in parts)
    for k in range(max(0, int(m - m_prime)), int(min(j + m, j - m_prime)) + 1):
        shift = int(m_prime - m) + k
        below = f(parts[2] - k) * f(k) * f(shift) * f(parts[1] - k)
        coefficient = math.sqrt(Fraction(root, below**2)) * (-1) ** shift * scale
        nodes.append({"RealConst": coefficient})
        for of, power in ((4, int(2 * j) - shift - k), (5, shift + k)):
            if power:
                nodes.append({"Unary": {"op": {"PowI": power}, "input": of}})
                product = {"op": "Mul", "lhs": len(nodes) - 2, "rhs": len(nodes) - 1}
                nodes.append({"Binary": product})
        nodes.append({"Binary": {"op": "Add", "lhs": total, "rhs": len(nodes) - 1}})
        total = len(nodes) - 1
    label = {"source": "Unary", "name": None, "tags": []}
    return {"root": total, "nodes": nodes, "metadata": [label] * len(nodes)}


def imported(table: dict[str, Any]) -> tuple[ld.Expr, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        expr = ld.from_laddu(table)
    return expr, [entry.message.defect for entry in caught]


@st.composite
def labels(draw: st.DrawFn) -> tuple[Fraction, Fraction, Fraction]:
    two_j = draw(st.integers(21, 40))
    projections = st.integers(0, two_j).map(lambda steps: Fraction(two_j, 2) - steps)
    return Fraction(two_j, 2), draw(projections), draw(projections)


@given(labels())
def test_sums_of_high_j_are_the_function(jmm: tuple[Fraction, Fraction, Fraction]) -> None:  # D13
    j, m_prime, m = jmm
    expr, defects = imported(written_out(*jmm))
    theta = ld.scalar("theta")
    same = {WignerD(j, m_prime, m).d(theta).node, WignerD(j, -m, -m_prime).d(theta).node}
    if j in (abs(m_prime), abs(m)):  # one term, in which nothing cancels
        assert defects == []
    else:
        sign = (-1) ** int(m_prime - m)
        mirrored = {WignerD(j, m, m_prime).d(theta).node, WignerD(j, -m_prime, -m).d(theta).node}
        assert defects == ["D13"]
        assert expr.node in same | (mirrored if sign == 1 else set())


def test_sums_that_are_no_function_stay() -> None:
    for table in (
        written_out(Fraction(14), Fraction(3), Fraction(-2), scale=1.5),
        written_out(Fraction(10), Fraction(3), Fraction(-2)),
    ):
        expr, defects = imported(table)
        assert defects == []
        assert expr.node.op == "add"


def test_digits_are_not_lost() -> None:
    expr, _ = imported(written_out(Fraction(70), Fraction(1), Fraction(2)))
    found = evaluate(expr, {"theta": np.array([0.7])})
    assert abs(found[0] - -0.11735457108935954) < 1e-14  # laddu 0.28.1: -1.263


def test_what_no_function_offers_is_told_and_stays() -> None:
    expr, defects = imported(written_out(Fraction(71), Fraction(3), Fraction(1)))
    assert defects == ["D13"]
    assert expr.node.op == "add"
