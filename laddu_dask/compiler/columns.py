"""Which event values are kept for every event, and which are computed again in the kernel.

Many values that mixed operations read are a few cheap operations away from others: all pole
factors of a K-matrix follow from s. Loading a value costs its share of memory traffic, computing it
costs its operations and needs its operands; the cheapest choice is a minimum cut.

Each value n has two yes-or-no unknowns: x_n "available in the kernel" and y_n "computed there".
The cost is L x_n - (L - op_n) y_n, and y_n demands x_n and x_m of every operand m. That is the
project selection problem (J. Picard, Management Science 22, 1976): choices are closed sets, and the
best one is the source side of a minimum cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from laddu_dask.compiler.cost import LOAD, OPERATION
from laddu_dask.compiler.flow import UNLIMITED, Network
from laddu_dask.compiler.ir import CONDITIONS, EVENT, Graph

#: Cheap operations. Elementary functions and systems of equations are never computed again.
RECOMPUTED = frozenset({"add", "sub", "mul", "neg", "select", "abs", "copysign", "div", "sqrt"})
#: Those of them that lose at most a few roundings when their operands are rounded.
WELL_CONDITIONED = RECOMPUTED - {"add", "sub", "select"}
_UNITS = 1000  # per nanosecond; capacities are integers


def choose_columns(
    graph: Graph,
    needed: Sequence[int],
    load: float = LOAD,
    recomputed: frozenset[str] = RECOMPUTED,
) -> list[int]:
    """Values to keep, such that everything needed is kept or computed from them at least cost.

    Parameters
    ----------
    graph
        The whole graph.
    needed
        Event values, none of them a condition.
    load
        Cost of a kept value in nanoseconds; larger ones trade operations for memory.
    recomputed
        Operations that may be done in the kernel.
    """
    price = round(load * _UNITS)
    values, computable = _candidates(graph, needed, price, recomputed)
    place = {value: i for i, value in enumerate(values)}
    n = len(values)
    source, sink = 2 * n, 2 * n + 1
    network = Network(2 * n + 2)
    for value in needed:
        network.connect(source, place[value], UNLIMITED)
    for value, x in place.items():
        op, args, _ = graph.ops[value]
        operands = [place[arg] for arg in args if arg in place] if value in computable else []
        if op in CONDITIONS:  # cannot be kept: available means computed
            network.connect(x, sink, _units(op))
            for operand in operands:
                network.connect(x, operand, UNLIMITED)
            continue
        network.connect(x, sink, price)
        if value in computable:
            y = n + x
            network.connect(source, y, price - _units(op))
            for vertex in (x, *operands):
                network.connect(y, vertex, UNLIMITED)
    _, chosen = network.minimum_cut(source, sink)
    return [
        value
        for value, x in place.items()
        if x in chosen and n + x not in chosen and graph.ops[value][0] not in CONDITIONS
    ]


def _units(op: str) -> int:
    return round(OPERATION[op] * _UNITS)


def _candidates(
    graph: Graph, needed: Iterable[int], price: int, recomputed: frozenset[str]
) -> tuple[list[int], set[int]]:
    """Values that an optimal choice may contain, ascending, and those it may compute.

    Computing saves no more than all loads, so no operation further down than that pays.
    """
    cheapest = min(_units(op) for op in recomputed)
    level = set(needed)
    deepest = len(level) * price // cheapest
    seen: set[int] = set(level)
    computable: set[int] = set()
    for _ in range(deepest):
        below: set[int] = set()
        for value in level:
            if _may_be_computed(graph, value, price, recomputed):
                computable.add(value)
                below.update(arg for arg in graph.ops[value][1] if graph.kinds[arg] == EVENT)
        level = below - seen
        if not level:
            break
        seen |= level
    return sorted(seen), computable


def _may_be_computed(graph: Graph, value: int, price: int, recomputed: frozenset[str]) -> bool:
    op, args, _ = graph.ops[value]
    if op in CONDITIONS:
        return True
    return (
        op in recomputed
        and _units(op) < price
        and all(graph.kinds[arg] == EVENT or graph.ops[arg][0] == "const" for arg in args)
    )
