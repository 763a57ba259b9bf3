"""From a lowered graph to the three programs of one reduction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from laddu_dask.compiler import pairs
from laddu_dask.compiler.boundary import boundary
from laddu_dask.compiler.columns import RECOMPUTED, WELL_CONDITIONED, choose_columns
from laddu_dask.compiler.decided import decide, with_decided_conditions
from laddu_dask.compiler.evaluator import Evaluator
from laddu_dask.compiler.event_programs import EventPrograms
from laddu_dask.compiler.excerpt import Excerpt
from laddu_dask.compiler.invariants import Invariants, forward, pullback
from laddu_dask.compiler.ir import EVENT, MIXED, PARAMETER, Graph, live
from laddu_dask.compiler.layout import ParameterLayout
from laddu_dask.compiler.lowered import Lowered
from laddu_dask.compiler.modes import Autodiff, Mode, forward_may_pay, tangent_rows
from laddu_dask.compiler.options import KernelOptions
from laddu_dask.compiler.program import cut
from laddu_dask.compiler.reverse import adjoints

#: What a pass over events computes from the model value I and the weight w of each event.
#: ``linear``: w Re I.  ``log``: w log(Re I).  ``complex``: I itself, event by event. In single
#: precision I and its derivatives are floats; what the transform makes of them are doubles.
Transform = Literal["linear", "log", "complex"]

#: Values of events and parameters from which one program serves both sums of a likelihood, so that
#: machine code is made once: the logarithm taken in vain is less than a hundredth of the work then.
_LONG = 1000


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

    def evaluated_by(self, evaluator: type[Evaluator]) -> CompiledModel:
        """The same with another way of running parameter programs."""
        return replace(self, invariants=replace(self.invariants, evaluator=evaluator))


def modes(lowered: Lowered, transform: Transform, autodiff: Autodiff) -> tuple[Mode, ...]:
    """The modes of differentiation that come into question for a graph."""
    if autodiff != "auto":
        return (autodiff,)
    g, root = lowered.graph.branch(), lowered.root
    roots = [pairs.re(g, root)]
    if transform == "complex":
        roots.append(pairs.im(g, root))
    may_pay = forward_may_pay(g, roots, boundary(g, roots, PARAMETER))
    return ("forward", "reverse") if may_pay else ("reverse",)


def assemble_values(
    graph: Graph,
    roots: Sequence[pairs.Pair],
    layout: ParameterLayout,
    options: KernelOptions,
) -> CompiledModel:
    """Programs of several complex values as written, without derivatives, two rows each."""
    values = [part(graph, root) for root in roots for part in (pairs.re, pairs.im)]
    if options.precision != "f64":
        graph, _, read = decide(graph, values)
        values = [read[value] for value in values]
    lowered = Lowered(graph, pairs.Pair(values[0], None), regrouped=False)
    return _Cuts(lowered, graph, values, [{}], set(), options).compiled(layout, "complex")


class _Cuts:
    """Event programs that compute value rows, and derivatives by each frontier value per root.

    The parameter-only program follows when they have been chosen.
    """

    def __init__(
        self,
        lowered: Lowered,
        graph: Graph,
        values: Sequence[int],
        reached: Sequence[Mapping[int, int]],
        guarded: set[int],
        options: KernelOptions,
    ) -> None:
        precision = options.precision
        # `complex` differentiates two roots; a frontier value that only one of them reads has no
        # adjoint from the other, which is an exact zero.
        differentiated = sorted({value for found in reached for value in found})
        rows = [found.get(value, graph.const(0.0)) for found in reached for value in differentiated]
        outputs = [*values, *rows]
        known = set(differentiated)
        loads = boundary(graph, outputs, PARAMETER)
        frontier = differentiated + [value for value in loads if value not in known]
        parameters = {value: i for i, value in enumerate(frontier)}
        met = boundary(graph, outputs, EVENT)
        # What is computed again in floats must not magnify that its operands are rounded.
        operations = RECOMPUTED if precision == "f64" else WELL_CONDITIONED
        cached = met
        if lowered.regrouped:
            cached = choose_columns(graph, met, options.load, operations)
        inputs = {value: i for i, value in enumerate(cached)}
        # Adjoints that other branches leave at zero keep doing so on the way to the parameters.
        self._optional = tuple(
            i
            for i, value in enumerate(differentiated)
            if guarded.issuperset(found[value] for found in reached if value in found)
        )
        self._lowered, self._graph, self._precision = lowered, graph, precision
        self._differentiated, self._frontier = tuple(differentiated), frontier
        self._excerpt = outputs, inputs, parameters
        value, gradient = (
            cut(graph, wanted, inputs, parameters, weighted=True, precision=precision)
            for wanted in (values, outputs)
        )
        # What meets parameters is checked for its range, also what is computed again.
        ranged = met if lowered.regrouped else None
        self.programs = EventPrograms.of(graph, value, gradient, cached, lowered.checks, ranged)

    def compiled(self, layout: ParameterLayout, transform: Transform) -> CompiledModel:
        """With the parameter-only program, and all that derivatives of these programs need."""
        known, key = self._lowered.pullbacks, (self._differentiated, self._optional)
        if key not in known:
            known[key] = pullback(self._graph, *key, layout)
        back, curved = known[key]
        guards = list(dict.fromkeys(self._lowered.guards))
        ahead, moved = forward(self._graph, self._told(transform), guards, layout)
        invariants = Invariants(
            ahead,
            back,
            len(layout.names),
            len(self._differentiated),
            (moved, curved),
            tuple(guard.property for guard in guards),
            self._precision,
        )
        return CompiledModel(layout, invariants, self._with_excerpt)

    @cached_property
    def _with_excerpt(self) -> EventPrograms:
        return replace(self.programs, excerpt=Excerpt.of(self._graph, *self._excerpt))

    def _told(self, transform: Transform) -> list[int]:
        """The frontier with the number that says which transform is meant."""
        g = self._graph
        known = g.const(1.0 if transform == "log" else 0.0)
        return [known if g.ops[value][0] == "logarithmic" else value for value in self._frontier]


class Draft(_Cuts):
    """The event programs of a form for a transform, differentiated in `mode`."""

    @classmethod
    def of(
        cls, lowered: Lowered, transform: Transform, mode: Mode, options: KernelOptions
    ) -> Draft:
        """The same, made once where both transforms have the same programs."""
        known: Draft | None = None
        if transform != "complex":
            known = lowered.drafts.get((mode, options))
        if known is None:
            known = cls(lowered, transform, mode, options)
            if any(known._graph.ops[value][0] == "logarithmic" for value in known._frontier):
                lowered.drafts[mode, options] = known
        return known

    def __init__(
        self, lowered: Lowered, transform: Transform, mode: Mode, options: KernelOptions
    ) -> None:
        single = options.precision != "f64"
        if single:
            lowered = with_decided_conditions(lowered)
        graph, accepted = lowered.graph.branch(), lowered.accepted
        guarded: set[int] = set()
        outputs = _single_outputs if single else _outputs
        values, reached = outputs(graph, lowered.root, transform, guarded, mode)
        if accepted is not None:
            nothing = graph.const(math.nan)
            values = [graph.select(accepted, value, nothing) for value in values]
        super().__init__(lowered, graph, values, reached, guarded, options)


def _outputs(
    graph: Graph, root: pairs.Pair, transform: Transform, guarded: set[int], mode: Mode
) -> tuple[list[int], list[dict[int, int]]]:
    """Value rows, and for each root that is differentiated its derivatives by frontier value."""
    real = pairs.re(graph, root)
    one = graph.const(1.0)
    seeded = [(real, one)]
    if transform == "complex":
        imag = pairs.im(graph, root)
        seeded.append((imag, one))
        values = [real, imag]
    else:
        value, slope = _transformed(graph, real, transform)
        values, seeded = [value], [(real, slope)]
    return values, _derivatives(graph, seeded, guarded, mode)


def _single_outputs(
    graph: Graph, root: pairs.Pair, transform: Transform, guarded: set[int], mode: Mode
) -> tuple[list[int], list[dict[int, int]]]:
    """The same in single precision.

    The value and its derivatives are floats, whatever the transform; logarithm, reciprocal and
    weight come to them as doubles, or the whole sweep would be one of doubles.
    """
    if transform == "complex":
        return _outputs(graph, root, transform, guarded, mode)
    real = pairs.re(graph, root)
    value, scale = _transformed(graph, graph.call("widen", real), transform)
    (slopes,) = _derivatives(graph, [(real, graph.const(1.0))], guarded, mode)
    rows = {to: graph.mul(scale, graph.call("widen", slope)) for to, slope in slopes.items()}
    guarded.update([rows[to] for to, slope in slopes.items() if slope in guarded])
    return [value], [rows]


def _transformed(graph: Graph, intensity: int, transform: Transform) -> tuple[int, int]:
    """Weighted transform of an intensity, and its derivative by the intensity."""
    weight = graph.emit("weight")
    if sum(graph.kinds[value] == MIXED for value in live(graph, [intensity])) < _LONG:
        if transform == "linear":
            return graph.mul(weight, intensity), weight
        return graph.mul(weight, graph.call("log", intensity)), graph.div(weight, intensity)
    logarithmic = graph.call("lt", graph.const(0.0), graph.emit("logarithmic"))
    value = graph.select(logarithmic, graph.call("log", intensity), intensity)
    slope = graph.select(logarithmic, graph.div(weight, intensity), weight)
    return graph.mul(weight, value), slope


def _derivatives(
    graph: Graph, seeded: Sequence[tuple[int, int]], guarded: set[int], mode: Mode
) -> list[dict[int, int]]:
    """Seed times the derivatives of each root by frontier value."""
    # Reverse mode also finds what is differentiated at all.
    reverse = [adjoints(graph, part, seed, guarded) for part, seed in seeded]
    if mode == "reverse":
        return reverse
    frontier = sorted({value for found in reverse for value in found})
    forward = [tangent_rows(graph, part, frontier, seed) for part, seed in seeded]
    for backward, found in zip(reverse, forward, strict=True):
        guarded.update(found[value] for value in found if backward.get(value) in guarded)
    return forward
