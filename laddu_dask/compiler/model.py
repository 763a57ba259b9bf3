"""Compiling an expression into the three programs of one reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from laddu_dask.compiler import pairs
from laddu_dask.compiler.algebra import Algebra, Term
from laddu_dask.compiler.assumptions import Assumptions, Check, Guard
from laddu_dask.compiler.boundary import boundary, columns_below, leaf_rows
from laddu_dask.compiler.cost import cost
from laddu_dask.compiler.event_programs import EventPrograms
from laddu_dask.compiler.grouping import Grouping
from laddu_dask.compiler.invariants import Invariants, split_invariants
from laddu_dask.compiler.ir import EVENT, PARAMETER, Graph
from laddu_dask.compiler.layout import ParameterLayout
from laddu_dask.compiler.lower import lower
from laddu_dask.compiler.normalize import normalize
from laddu_dask.compiler.program import cut
from laddu_dask.compiler.reverse import adjoints
from laddu_dask.errors import ExpressionError
from laddu_dask.expr.expression import Expr

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


def compile_model(
    expr: Expr, transform: Transform, assumptions: Assumptions | None = None
) -> CompiledModel:
    """Compile a scalar expression.

    Parameters
    ----------
    expr
        The expression.
    transform
        What a pass computes.
    assumptions
        None: operations are those of the written form, in its order. Otherwise they are regrouped
        so that little is left inside the event loop, and event values are taken to have the
        assumed properties; the cheaper of two forms is chosen.

    Raises
    ------
    ExpressionError
        The expression is not a scalar.
    """
    if expr.shape:
        raise ExpressionError(
            f"a model must be a scalar, got shape {expr.shape}; pick an element or use norm_sqr()",
            operation="model",
            shapes=[expr.shape],
        )
    layout = ParameterLayout.of(expr.node)
    if assumptions is None:
        graph, (root,) = lower(expr.node)
        return _assemble(graph, root, transform, layout)
    algebra, term = normalize(expr.node, assumptions)
    return compile_term(algebra, term, transform, layout)


def compile_term(
    algebra: Algebra, term: Term, transform: Transform, layout: ParameterLayout
) -> CompiledModel:
    """Compile a term in normal form; the cheaper one of two ways to distribute factors."""
    candidates = []
    for distribute in (False, True):
        grouping = Grouping(algebra, distribute=distribute)
        (root,) = grouping.lower(term)
        candidates.append(
            _assemble(
                grouping.graph,
                root,
                transform,
                layout,
                grouping.checks,
                grouping.guards,
                regrouped=True,
            )
        )
    return min(candidates, key=lambda candidate: cost(candidate.programs))


def _assemble(
    graph: Graph,
    root: pairs.Pair,
    transform: Transform,
    layout: ParameterLayout,
    checks: Sequence[Check] = (),
    guards: Sequence[Guard] = (),
    *,
    regrouped: bool = False,
) -> CompiledModel:
    """Cut the three programs out of a lowered graph."""
    guarded: set[int] = set()
    values, reached = _outputs(graph, root, transform, guarded)
    # `complex` differentiates two roots; a frontier value that only one of them reads has no
    # adjoint from the other, which is an exact zero.
    differentiated = sorted({value for found in reached for value in found})
    rows = [found.get(value, graph.const(0.0)) for found in reached for value in differentiated]
    outputs = [*values, *rows]
    loads = boundary(graph, outputs, PARAMETER)
    frontier = differentiated + [value for value in loads if value not in set(differentiated)]
    parameters = {value: i for i, value in enumerate(frontier)}
    cached = boundary(graph, outputs, EVENT)
    inputs = {value: i for i, value in enumerate(cached)}
    checks, guards = list(dict.fromkeys(checks)), list(dict.fromkeys(guards))
    prepared = [*cached, *(check.value for check in checks)]
    columns = columns_below(graph, prepared)
    # Adjoints that other branches leave at zero keep doing so on the way to the parameters.
    optional = [
        i
        for i, value in enumerate(differentiated)
        if guarded.issuperset(found[value] for found in reached if value in found)
    ]
    programs = EventPrograms(
        columns=columns,
        prepare=cut(graph, prepared, leaf_rows(graph, columns), {}),
        value=cut(graph, values, inputs, parameters, weight_row=len(cached)),
        gradient=cut(graph, outputs, inputs, parameters, weight_row=len(cached)),
        n_cached=len(cached),
        checks=tuple(check._replace(value=len(cached) + row) for row, check in enumerate(checks)),
        regrouped=regrouped,
    )
    invariants = split_invariants(graph, frontier, len(differentiated), layout, optional, guards)
    return CompiledModel(layout, invariants, programs)


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
