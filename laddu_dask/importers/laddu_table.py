"""Expressions of laddu, read from the node table that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laddu_dask.errors import LadduError
from laddu_dask.expr import Expr, build
from laddu_dask.expr.node import Node
from laddu_dask.importers.laddu_defects import (
    RIGHT_L6,
    WRONG_L6,
    Kind,
    is_simplified,
    tell,
)
from laddu_dask.importers.laddu_fields import Fields, text
from laddu_dask.importers.laddu_nodes import kind_of, read_node
from laddu_dask.importers.laddu_source import malformed, read_table
from laddu_dask.importers.laddu_wigner import WignerSums


def from_laddu(source: str | Path | Mapping[str, Any] | object) -> Expr:
    """An expression of laddu as one of ours, with the same values.

    Parameters
    ----------
    source
        What ``to_json()`` of an expression or a model of laddu gives (text or parsed), the path of
        a file with it, or the object itself. laddu is not imported. The table is the one of laddu
        0.21.2 to 0.28; 0.20 to 0.21.1 cannot write expressions.

    Returns
    -------
    Expr
        Parameters with their definitions, event columns, names and tags. A component of the
        four-momentum ``p`` is the column ``p_e``, ``p_px``, ``p_py`` or ``p_pz``. Parts that are
        shared, or written twice, are one node.

    Warns
    -----
    LadduDefectWarning
        One for each known defect of laddu that concerns the expression; values here are the right
        ones, so that they differ there. What a table cannot show goes without: a Clebsch-Gordan
        coefficient is a number in it (those of laddu are wrong for m1 = m2 = m = 0 and odd
        j1 + j2 + j, and from j = 9 on), and so is the outcome of degenerate axes.

    Raises
    ------
    ExpressionError
        No table of that format, an unknown kind of node, or operands that do not fit; field
        `json_path` says where.
    OSError
        The file cannot be read.
    TypeError
        No source of that kind.
    """
    table = read_table(source)
    rows, labels = _rows(table)
    nodes: list[Node] = []
    kinds: list[Kind] = []
    found: dict[str, dict[int, None]] = {"D1": {}, "D3": {}, "D8": {}, "D13": {}}
    sums = WignerSums()
    for place, row in enumerate(rows):
        kind, path, content = kind_of(place, row)
        operands, made = read_node(kind, path, content, place)
        op = content.get("op") if isinstance(content, Mapping) else None
        op = op if isinstance(op, str) else None  # a power is an object; of no concern below
        if (kind == "Complex" or op == "Atan2") and any(kinds[one].is_complex for one in operands):
            raise malformed(path, "needs real operands; take .real() of complex ones")
        args = tuple(nodes[one] for one in operands)
        try:
            node = made(args)
        except LadduError as error:
            raise malformed(path, str(error)) from error
        if kind == "Binary" and is_simplified(op, args, [kinds[one] for one in operands]):
            found["D8"][place] = None
        node, loses_digits = sums.replaced(node)
        if loses_digits:
            found["D13"][place] = None
        if kind == "RealConst" and node.data == WRONG_L6:
            node = build.constant(RIGHT_L6)
            found["D3"][place] = None
        of_node = Kind.of(kind, op, node, [kinds[one] for one in operands])
        if of_node.has_free and op not in {"Real", "Atan2"}:
            lost = (one for one in operands if kinds[one].loses_phase(nodes[one]))
            found["D1"].update(dict.fromkeys(lost))
        kinds.append(of_node)
        nodes.append(_labelled(node, f"$.metadata[{place}]", labels[place], place))
    root = table["root"]
    if type(root) is not int or not 0 <= root < len(nodes):
        raise malformed("$.root", f"{root!r:.60} is none of {len(nodes)} nodes")
    if kinds[root].loses_phase(nodes[root]):
        found["D1"][root] = None
    for defect, places in found.items():
        if places:
            tell(defect, sorted(places), stacklevel=2)
    return Expr.of(nodes[root])


def _rows(table: Mapping[str, Any]) -> tuple[list[object], list[object]]:
    rows, labels = table["nodes"], table["metadata"]
    if not isinstance(rows, list) or not rows:
        raise malformed("$.nodes", f"needs a list of nodes, got {rows!r:.60}")
    if not isinstance(labels, list) or len(labels) != len(rows):
        raise malformed("$.metadata", f"needs a list of {len(rows)}, one for each node")
    return rows, labels


def _labelled(node: Node, path: str, label: object, place: int) -> Node:
    """The node under the name and the tags that its metadata give it."""
    fields = Fields(path, label, place, {"source", "name", "tags"}).content
    name, tags = fields["name"], fields["tags"]
    if name is not None:
        node = build.label("named", node, text(f"{path}.name", name))
    if not isinstance(tags, list):
        raise malformed(f"{path}.tags", f"needs a list, got {tags!r:.60}")
    if tags:
        words = {text(f"{path}.tags[{i}]", tag) for i, tag in enumerate(tags)}
        node = build.label("tagged", node, tuple(sorted(words)))
    return node
