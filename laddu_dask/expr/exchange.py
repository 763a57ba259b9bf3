"""Expressions as JSON text: the node table, with every rule of construction checked on reading.

The text holds what a person wrote: operations, operands by number, literals, definitions of
parameters. Shapes and kinds are worked out anew, so a table that was edited cannot lie about them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from laddu_dask.errors import ExpressionError, LadduError
from laddu_dask.expr import build
from laddu_dask.expr.node import Node, make, walk
from laddu_dask.expr.parameters import ParameterSpec, define_parameter

FORMAT = "laddu-dask expression 1"


def to_json(root: Node) -> str:
    """The graph as JSON; equal graphs give equal text."""
    index: dict[int, int] = {}
    nodes: list[dict[str, Any]] = []
    for node in walk(root):
        index[id(node)] = len(nodes)
        row: dict[str, Any] = {"op": node.op}
        if node.args:
            row["args"] = [index[id(arg)] for arg in node.args]
        if node.data is not None:
            row["data"] = _written(node.data)
        nodes.append(row)
    return json.dumps({"format": FORMAT, "root": len(nodes) - 1, "nodes": nodes}, allow_nan=False)


def from_json(text: str) -> Node:
    """The graph of a text made by `to_json`.

    Raises
    ------
    ExpressionError
        The text is no such table; names the node and the rule that it breaks.
    """
    try:
        table = json.loads(text)
    except ValueError as error:
        raise _malformed(f"no JSON: {error}") from None
    if not isinstance(table, dict) or table.get("format") != FORMAT:
        raise _malformed(f"the format must be {FORMAT!r}")
    rows, root = table.get("nodes"), table.get("root")
    if not isinstance(rows, list) or not rows:
        raise _malformed("there are no nodes")
    nodes: list[Node] = []
    for place, row in enumerate(rows):
        if not isinstance(row, dict) or not isinstance(row.get("op"), str):
            raise _malformed(f"node {place} has no operation")
        args = row.get("args", [])
        if not isinstance(args, list) or not all(
            type(arg) is int and 0 <= arg < place for arg in args
        ):
            raise _malformed(f"node {place} ({row['op']}): operands {args!r} do not come before it")
        try:
            nodes.append(_node(row["op"], tuple(nodes[arg] for arg in args), row.get("data")))
        except (LadduError, TypeError, ValueError, KeyError) as error:
            raise _malformed(f"node {place} ({row['op']}): {error}") from error
    if type(root) is not int or not 0 <= root < len(nodes):
        raise _malformed(f"the root {root!r} is none of {len(nodes)} nodes")
    if build.is_predicate(nodes[root]):
        raise _malformed("the root is a condition, and a condition is not a number")
    return nodes[root]


def _malformed(problem: str) -> ExpressionError:
    return ExpressionError(f"from_json: {problem}", operation="from_json", shapes=[])


def _written(data: Any) -> Any:
    if isinstance(data, ParameterSpec):
        named = {field.name: getattr(data, field.name) for field in fields(data)}
        return {name: value for name, value in named.items() if value is not None}
    if isinstance(data, complex):
        return {"re": _written(data.real), "im": _written(data.imag)}
    if isinstance(data, float) and not math.isfinite(data):
        return repr(data)
    return list(data) if isinstance(data, tuple) else data


def _node(op: str, args: tuple[Node, ...], data: Any) -> Node:
    if op == "const":
        return build.constant(_number(data))
    if op == "column":
        if not isinstance(data, str) or not data:
            raise ValueError(f"a column needs a name, got {data!r}")
        return make("column", data=data, is_real=True)
    if op == "parameter":
        return build.parameter(_specification(data))
    return build.operation(op, args, tuple(data) if isinstance(data, list) else data)


def _number(data: Any) -> complex | float:
    if isinstance(data, Mapping):
        re, im = _number(data["re"]), _number(data["im"])
        assert isinstance(re, float)
        assert isinstance(im, float)
        return complex(re, im)
    if isinstance(data, bool) or not isinstance(data, (int, float, str)):
        raise TypeError(f"{data!r} is no number")
    return float(data)


def _specification(data: Any) -> ParameterSpec:
    options = dict(data)
    fixed, initial = options.pop("fixed", False), options.pop("initial", 0.0)
    span = options.pop("initial_range", None)
    start = {"fixed": initial} if fixed else {"initial": initial if span is None else span}
    return define_parameter(**options, **start)
