"""Compiling an expression: the written form, or the cheapest of several regrouped ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from laddu_dask.compiler.assembly import CompiledModel, Draft, Transform, assemble
from laddu_dask.compiler.assumptions import Assumptions
from laddu_dask.compiler.cost import LOAD, cost
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.layout import ParameterLayout
from laddu_dask.compiler.lowered import Lowered
from laddu_dask.compiler.normal_form import NormalForm, as_written, require_scalar
from laddu_dask.compiler.probe import Probe, probe
from laddu_dask.compiler.specialize import event_values
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
    """

    name: str
    model: CompiledModel
    cost: float


def compile_model(
    expr: Expr,
    transform: Transform,
    assumptions: Assumptions | None = None,
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
    load
        Cost of a cached column in nanoseconds per event. A larger one saves memory: more values are
        computed again from fewer columns. No result depends on it.

    Raises
    ------
    ExpressionError
        The expression is not a scalar.
    """
    if assumptions is not None:
        return compile_form(NormalForm(expr, assumptions), transform, load=load)
    require_scalar(expr)
    return assemble(as_written(expr), transform, ParameterLayout.of(expr.node))


def compile_form(form: NormalForm, transform: Transform, *, load: float = LOAD) -> CompiledModel:
    """The same of a normal form."""
    return cheapest(form.forms, transform, form.layout, load=load)


def cheapest(
    forms: Mapping[str, Lowered], transform: Transform, layout: ParameterLayout, *, load: float
) -> CompiledModel:
    """Compile the cheapest of several forms.

    The choice does not depend on `load`, or bits would.
    """
    if load != LOAD and len(forms) == 1:
        (only,) = forms.values()
        return assemble(only, transform, layout, load=load)
    drafts = {name: Draft(form, transform, LOAD) for name, form in forms.items()}
    best = min(drafts, key=lambda name: cost(drafts[name].programs))
    if load == LOAD:
        return drafts[best].compiled(layout)
    return assemble(forms[best], transform, layout, load=load)


def compile_candidates(form: NormalForm, transform: Transform) -> list[Candidate]:
    """Every form that was considered, to explain the choice; `compile_form` takes the cheapest."""
    candidates = []
    for name, lowered in form.forms.items():
        model = assemble(lowered, transform, form.layout, load=LOAD)
        candidates.append(Candidate(name, model, cost(model.programs)))
    return candidates


def probe_forms(forms: Mapping[str, Lowered]) -> list[tuple[Graph, list[int]]]:
    """Event values of several forms that facts may be about."""
    return [(form.graph, event_values(form)) for form in forms.values()]


def probe_model(form: NormalForm) -> Probe:
    """The same of a whole expression, as a program."""
    return probe(probe_forms(form.forms))
