"""Compiling an expression: the written form, or the cheapest of several regrouped ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from laddu_dask.compiler.algebra import Algebra, Term
from laddu_dask.compiler.assembly import (
    CompiledModel,
    Transform,
    assemble,
    assemble_values,
    modes,
)
from laddu_dask.compiler.assumptions import Assumptions
from laddu_dask.compiler.cost import LOAD, cost
from laddu_dask.compiler.forms import regrouped_forms
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.layout import ParameterLayout
from laddu_dask.compiler.lower import lower
from laddu_dask.compiler.lowered import Lowered
from laddu_dask.compiler.modes import Autodiff, Mode
from laddu_dask.compiler.normalize import normalize
from laddu_dask.compiler.probe import Probe, probe
from laddu_dask.compiler.specialize import event_values
from laddu_dask.errors import ExpressionError
from laddu_dask.expr.expression import Expr


@dataclass(frozen=True)
class Candidate:
    """A regrouped form.

    Attributes
    ----------
    name
        How its sums are arranged.
    model
        The form, compiled.
    cost
        Estimate that decides, in nanoseconds per event; see `laddu_dask.compiler.cost`.
    mode
        How it is differentiated.
    """

    name: str
    model: CompiledModel
    cost: float
    mode: Mode


def compile_model(
    expr: Expr,
    transform: Transform,
    assumptions: Assumptions | None = None,
    autodiff: Autodiff = "auto",
    *,
    load: float = LOAD,
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
        assumed properties; the cheapest of several forms is chosen.
    autodiff
        How the value is differentiated.
    load
        Cost of a cached column in nanoseconds per event. A larger one saves memory: more values are
        computed again from fewer columns. No result depends on it.

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
        return _cheapest("as written", Lowered(graph, root), transform, layout, autodiff).model
    algebra, term = normalize(expr.node, assumptions)
    return compile_term(algebra, term, transform, layout, autodiff, load=load)


def compile_elements(expr: Expr) -> CompiledModel:
    """Values of all elements of a vector or matrix, as written: two rows each, row-major."""
    graph, elements = lower(expr.node)
    return assemble_values(graph, elements, ParameterLayout.of(expr.node))


def compile_term(
    algebra: Algebra,
    term: Term,
    transform: Transform,
    layout: ParameterLayout,
    autodiff: Autodiff = "auto",
    *,
    load: float = LOAD,
) -> CompiledModel:
    """The cheapest form of a term in normal form.

    The choice does not depend on `load`, or bits would.
    """
    forms = regrouped_forms(algebra, term)
    candidates = _ranked(forms, transform, layout, autodiff)
    best = min(candidates, key=lambda candidate: candidate.cost)
    if load == LOAD:
        return best.model
    return assemble(forms[best.name], transform, layout, load=load, mode=best.mode)


def compile_candidates(
    expr: Expr, transform: Transform, assumptions: Assumptions
) -> list[Candidate]:
    """Every form that was considered, to explain the choice; `compile_model` takes the cheapest."""
    layout = ParameterLayout.of(expr.node)
    return _ranked(regrouped_forms(*normalize(expr.node, assumptions)), transform, layout, "auto")


def probe_term(algebra: Algebra, term: Term) -> list[tuple[Graph, list[int]]]:
    """Event values of a term that facts may be about."""
    return [(form.graph, event_values(form)) for form in regrouped_forms(algebra, term).values()]


def probe_model(expr: Expr, assumptions: Assumptions) -> Probe:
    """The same of an expression, as a program."""
    return probe(probe_term(*normalize(expr.node, assumptions)))


def _ranked(
    forms: Mapping[str, Lowered],
    transform: Transform,
    layout: ParameterLayout,
    autodiff: Autodiff,
) -> list[Candidate]:
    return [
        _cheapest(name, form, transform, layout, autodiff, load=LOAD)
        for name, form in forms.items()
    ]


def _cheapest(
    name: str,
    form: Lowered,
    transform: Transform,
    layout: ParameterLayout,
    autodiff: Autodiff,
    *,
    load: float | None = None,
) -> Candidate:
    """A form with the cheapest mode of differentiation, forward mode in a draw."""
    candidates = []
    for mode in modes(form, transform, autodiff):
        model = assemble(form, transform, layout, load=load, mode=mode)
        candidates.append(Candidate(name, model, cost(model.programs), mode))
    return min(candidates, key=lambda candidate: candidate.cost)
