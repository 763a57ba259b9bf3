"""Where the classes of a graph meet: what becomes a column, a frontier value or a check."""

from __future__ import annotations

from collections.abc import Sequence

from laddu_dask.compiler.ir import CONDITIONS, MIXED, Graph, live


def boundary(graph: Graph, outputs: Sequence[int], kind: int) -> list[int]:
    """Values of one class that mixed values read, or that are outputs themselves."""
    found = {output for output in outputs if graph.kinds[output] == kind}
    for index in _mixed(graph, outputs):
        found.update(arg for arg in graph.ops[index][1] if graph.kinds[arg] == kind)
    return _without_conditions(graph, sorted(found))


def _mixed(graph: Graph, outputs: Sequence[int]) -> list[int]:
    return [index for index in live(graph, outputs) if graph.kinds[index] == MIXED]


def _without_conditions(graph: Graph, values: list[int]) -> list[int]:
    """Replace conditions by the numbers they compare: a column or parameter holds numbers."""
    kept: set[int] = set()
    stack = list(values)
    while stack:
        index = stack.pop()
        op, args, _ = graph.ops[index]
        if op in CONDITIONS:
            stack.extend(arg for arg in args if graph.kinds[arg])
        else:
            kept.add(index)
    return sorted(kept)


def columns_below(graph: Graph, cached: Sequence[int]) -> tuple[str, ...]:
    """Event columns that the values need."""
    return tuple(
        str(graph.ops[index][2]) for index in live(graph, cached) if graph.ops[index][0] == "column"
    )


def leaf_rows(graph: Graph, columns: Sequence[str]) -> dict[int, int]:
    """Row of each column's value, when the columns are the input rows in order."""
    position = {name: row for row, name in enumerate(columns)}
    return {
        index: position[str(payload)]
        for index, (op, _, payload) in enumerate(graph.ops)
        if op == "column" and payload in position
    }
