"""From a lowered graph to the three programs of one reduction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from laddu_dask.compiler import pairs
from laddu_dask.compiler.boundary import boundary, columns_below, leaf_rows
from laddu_dask.compiler.columns import choose_columns
from laddu_dask.compiler.event_programs import EventPrograms
from laddu_dask.compiler.invariants import Invariants, forward, pullback
from laddu_dask.compiler.ir import EVENT, PARAMETER, Graph
from laddu_dask.compiler.layout import ParameterLayout
from laddu_dask.compiler.lowered import Lowered
from laddu_dask.compiler.program import cut
from laddu_dask.compiler.reverse import adjoints

#: What a pass over events computes from the model value I and the weight w of each event.
#: ``linear``: w Re I.  ``log``: w log(Re I).  ``complex``: I itself, event by event.
Transform = Literal["linear", "log", "complex"]


@dataclass(frozen=True)
class CompiledModel:
    """An expression compiled for one transform.

    Attributes
    ----------
    layout
        Parameters of the model.
    invariants
        The parameter-only program.
    programs
        The event programs.
    """

    layout: ParameterLayout
    invariants: Invariants
    programs: EventPrograms


def assemble(
    lowered: Lowered,
    transform: Transform,
    layout: ParameterLayout,
    *,
    load: float | None = None,
) -> CompiledModel:
    """Cut the three programs out of a lowered graph.

    `load` is given for regrouped graphs: the cost of a column, see `choose_columns`. Without it
    every event value that meets parameters is kept.
    """
    return Draft(lowered, transform, load).compiled(layout)


class Draft:
    """The event programs of a form, without the parameter-only one, which no choice needs.

    Parameters
    ----------
    lowered, transform, load
        See `assemble`.
    """

    def __init__(self, lowered: Lowered, transform: Transform, load: float | None) -> None:
        graph, accepted = lowered.graph.branch(), lowered.accepted
        guarded: set[int] = set()
        values, reached = _outputs(graph, lowered.root, transform, guarded)
        # `complex` differentiates two roots; a frontier value that only one of them reads has no
        # adjoint from the other, which is an exact zero.
        differentiated = sorted({value for found in reached for value in found})
        if accepted is not None:
            nothing = graph.const(math.nan)
            values = [graph.select(accepted, value, nothing) for value in values]
        rows = [found.get(value, graph.const(0.0)) for found in reached for value in differentiated]
        outputs = [*values, *rows]
        known = set(differentiated)
        loads = boundary(graph, outputs, PARAMETER)
        frontier = differentiated + [value for value in loads if value not in known]
        parameters = {value: i for i, value in enumerate(frontier)}
        met = boundary(graph, outputs, EVENT)
        cached = met if load is None else choose_columns(graph, met, load)
        inputs = {value: i for i, value in enumerate(cached)}
        checks = list(dict.fromkeys(lowered.checks))
        # Values that meet parameters are checked for their range, also those that are not kept.
        checked = [value for check in checks for value in (check.value, check.other)]
        prepared = list(dict.fromkeys(v for v in (*cached, *met, *checked) if v is not None))
        place = {value: row for row, value in enumerate(prepared)}
        columns = columns_below(graph, prepared)
        # Adjoints that other branches leave at zero keep doing so on the way to the parameters.
        self._optional = tuple(
            i
            for i, value in enumerate(differentiated)
            if guarded.issuperset(found[value] for found in reached if value in found)
        )
        self._lowered, self._graph = lowered, graph
        self._differentiated, self._frontier = tuple(differentiated), frontier
        self.programs = EventPrograms(
            columns=columns,
            prepare=cut(graph, prepared, leaf_rows(graph, columns), {}),
            value=cut(graph, values, inputs, parameters, weight_row=len(cached)),
            gradient=cut(graph, outputs, inputs, parameters, weight_row=len(cached)),
            n_cached=len(cached),
            checks=tuple(check.moved(place.__getitem__) for check in checks),
            regrouped=load is not None,
            ranged=() if load is None else tuple(place[value] for value in met),
        )

    def compiled(self, layout: ParameterLayout) -> CompiledModel:
        """With the parameter-only program."""
        known, key = self._lowered.pullbacks, (self._differentiated, self._optional)
        if key not in known:
            known[key] = pullback(self._graph, *key, layout)
        guards = list(dict.fromkeys(self._lowered.guards))
        invariants = Invariants(
            forward(self._graph, self._frontier, guards, layout),
            known[key],
            len(layout.names),
            len(self._differentiated),
            tuple(guard.property for guard in guards),
        )
        return CompiledModel(layout, invariants, self.programs)


def _outputs(
    graph: Graph, root: pairs.Pair, transform: Transform, guarded: set[int]
) -> tuple[list[int], list[dict[int, int]]]:
    """Value rows, and for each root that is differentiated its frontier adjoints."""
    real = pairs.re(graph, root)
    if transform == "complex":
        imag = pairs.im(graph, root)
        one = graph.const(1.0)
        return [real, imag], [adjoints(graph, part, one, guarded) for part in (real, imag)]
    weight = graph.emit("weight")
    if transform == "linear":
        return [graph.mul(weight, real)], [adjoints(graph, real, weight, guarded)]
    value = graph.mul(weight, graph.call("log", real))
    return [value], [adjoints(graph, real, graph.div(weight, real), guarded)]
