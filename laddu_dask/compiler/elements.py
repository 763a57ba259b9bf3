"""Vectors and matrices as row-major lists of scalars, whatever a scalar is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from laddu_dask.expr.node import Node

Context = TypeVar("Context")
Scalar = TypeVar("Scalar")
ElementRule = Callable[[Context, Node, list[list[Scalar]]], list[Scalar]]


def each(function: Callable[[Context, Scalar], Scalar]) -> ElementRule[Context, Scalar]:
    """A function of one operand, applied to each of its elements."""

    def rule(context: Context, node: Node, operands: list[list[Scalar]]) -> list[Scalar]:
        return [function(context, x) for x in operands[0]]

    return rule


def elementwise(
    function: Callable[[Context, Scalar, Scalar], Scalar],
) -> ElementRule[Context, Scalar]:
    """A function of two operands, applied to pairs of elements; a scalar goes with each."""

    def rule(context: Context, node: Node, operands: list[list[Scalar]]) -> list[Scalar]:
        left, right = operands
        size = max(len(left), len(right))
        left = left * size if len(left) < size else left
        right = right * size if len(right) < size else right
        return [function(context, x, y) for x, y in zip(left, right, strict=True)]

    return rule


def matrix_product(
    dot: Callable[[Context, list[tuple[Scalar, Scalar]]], Scalar],
) -> ElementRule[Context, Scalar]:
    """matmul, matvec and dot, from what adds up the products of pairs. Nothing is conjugated."""

    def rule(context: Context, node: Node, operands: list[list[Scalar]]) -> list[Scalar]:
        left, right = operands
        inner = node.args[0].shape[-1]
        columns = node.args[1].shape[1] if len(node.args[1].shape) == 2 else 1
        return [
            dot(
                context,
                [(left[row * inner + k], right[k * columns + column]) for k in range(inner)],
            )
            for row in range(len(left) // inner)
            for column in range(columns)
        ]

    return rule
