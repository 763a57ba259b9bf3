"""Projections: the part of a model that carries certain tags."""

from __future__ import annotations

from collections.abc import Iterable

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import build
from laddu_dask.expr.node import Node, walk


def tags_of(root: Node) -> tuple[str, ...]:
    """Every tag in the graph, sorted."""
    found: set[str] = set()
    for node in walk(root):
        if node.op == "tagged" and isinstance(node.data, tuple):
            found.update(node.data)
    return tuple(sorted(found))


def project_node(root: Node, wanted: str | Iterable[str]) -> Node:
    """Replace every tagged node that has none of the wanted tags by zero.

    Raises
    ------
    ExpressionError
        As `laddu_dask.expr.functions.project` does, which also says what stays.
    """
    names = {wanted} if isinstance(wanted, str) else set(wanted)
    known = tags_of(root)
    unknown = sorted(names - set(known))
    if unknown or not names:
        raise ExpressionError(
            f"project: unknown tags {unknown}" if unknown else "project: no tag given",
            operation="project",
            shapes=[root.shape],
            tags=list(known),
        )
    done: dict[int, Node] = {}
    for node in walk(root):
        args = tuple(done[id(arg)] for arg in node.args)
        if node.op == "tagged" and isinstance(node.data, tuple) and not names & set(node.data):
            done[id(node)] = _zero(node)
        else:
            done[id(node)] = build.rebuild(node, args)
    return done[id(root)]


def _zero(node: Node) -> Node:
    zero = build.constant(0.0)
    if len(node.shape) == 1:
        return build.vector((zero,) * node.shape[0])
    if len(node.shape) == 2:
        return build.matrix(((zero,) * node.shape[1],) * node.shape[0])
    return zero
