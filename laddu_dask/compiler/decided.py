"""Conditions of events decided in double precision, for kernels that work in single precision.

Which side of a threshold an event lies on must not change because its columns are rounded: the
branch for the other side may be the root of a negative number. So the kernel reads the outcome as a
column, 1 or 0, in place of the numbers that are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from laddu_dask.compiler.ir import CONDITIONS, EVENT, MIXED, Graph, live
from laddu_dask.compiler.lowered import Lowered
from laddu_dask.compiler.pairs import Pair


class Decided(NamedTuple):
    """A copy of a graph.

    Attributes
    ----------
    graph
        The copy.
    plain
        Value -> the same value in the copy.
    read
        Value -> what mixed values read instead: for conditions of events a comparison of a column.
    """

    graph: Graph
    plain: dict[int, int]
    read: dict[int, int]


def decide(graph: Graph, outputs: Sequence[int]) -> Decided:
    """The part of a graph below some values with its conditions of events decided."""
    g = Graph()
    one, zero, half = g.const(1.0), g.const(0.0), g.const(0.5)
    found = Decided(g, {}, {})
    for index in live(graph, outputs):
        op, args, payload = graph.ops[index]
        operands = found.read if graph.kinds[index] == MIXED else found.plain
        value = g.emit(op, *(operands[arg] for arg in args), payload=payload)
        found.plain[index] = found.read[index] = value
        if op in CONDITIONS and graph.kinds[index] == EVENT:
            found.read[index] = g.emit("lt", half, g.select(value, one, zero))
    return found


def with_decided_conditions(form: Lowered) -> Lowered:
    """The same of a form."""
    graph, plain, read = decide(form.graph, form.subjects)
    return replace(
        form,
        graph=graph,
        root=Pair(*(None if part is None else read[part] for part in form.root)),
        checks=tuple(check.moved(plain.__getitem__) for check in form.checks),
        guards=tuple(guard._replace(value=plain[guard.value]) for guard in form.guards),
        accepted=None if form.accepted is None else read[form.accepted],
        pullbacks={},
    )
