"""Compiling an expression: the written form, or the cheapest of several regrouped ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from laddu_dask.compiler.assembly import (
    CompiledModel,
    Draft,
    Transform,
    assemble,
    assemble_values,
    modes,
)
from laddu_dask.compiler.assumptions import Assumptions
from laddu_dask.compiler.cost import LOAD, cost
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.layout import ParameterLayout
from laddu_dask.compiler.lower import lower
from laddu_dask.compiler.lowered import Lowered
from laddu_dask.compiler.modes import Autodiff, Mode
from laddu_dask.compiler.normal_form import NormalForm, as_written, require_scalar
from laddu_dask.compiler.precision import Precision
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
    precision: Precision = "f64",
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
        computed again from fewer columns. No result depends on it in double precision; in single
        precision it decides what is rounded.
    precision
        ``"f32"``: columns, frontier values and the expression are floats; columns and frontier
        values are rounded to that from doubles, and transforms, weights and sums are doubles.

    Raises
    ------
    ExpressionError
        The expression is not a scalar.
    """
    if assumptions is not None:
        return compile_form(
            NormalForm(expr, assumptions), transform, autodiff, load=load, precision=precision
        )
    require_scalar(expr)
    form, layout = as_written(expr), ParameterLayout.of(expr.node)
    best = _cheapest({"as written": form}, transform, autodiff, None, precision)
    return best.draft.compiled(layout)


def compile_elements(expr: Expr, precision: Precision = "f64") -> CompiledModel:
    """Values of all elements of a vector or matrix, as written: two rows each, row-major."""
    graph, elements = lower(expr.node)
    return assemble_values(graph, elements, ParameterLayout.of(expr.node), precision)


def compile_form(
    form: NormalForm,
    transform: Transform,
    autodiff: Autodiff = "auto",
    *,
    load: float = LOAD,
    precision: Precision = "f64",
) -> CompiledModel:
    """The same of a normal form."""
    return cheapest(form.forms, transform, form.layout, autodiff, load=load, precision=precision)


def cheapest(
    forms: Mapping[str, Lowered],
    transform: Transform,
    layout: ParameterLayout,
    autodiff: Autodiff = "auto",
    *,
    load: float = LOAD,
    precision: Precision = "f64",
) -> CompiledModel:
    """Compile the cheapest of several forms.

    The choice does not depend on `load`, or bits would.
    """
    if load != LOAD and len(forms) == 1 and len(_modes(forms, transform, autodiff)) == 1:
        return _cheapest(forms, transform, autodiff, load, precision).draft.compiled(layout)
    best = _cheapest(forms, transform, autodiff, LOAD, precision)
    if load == LOAD:
        return best.draft.compiled(layout)
    return assemble(
        forms[best.name], transform, layout, load=load, mode=best.mode, precision=precision
    )


def compile_candidates(form: NormalForm, transform: Transform) -> list[Candidate]:
    """Every form that was considered, to explain the choice; `compile_form` takes the cheapest."""
    candidates = []
    for name, lowered in form.forms.items():
        best = _cheapest({name: lowered}, transform, "auto", LOAD, "f64")
        model = best.draft.compiled(form.layout)
        candidates.append(Candidate(name, model, best.cost, best.mode))
    return candidates


def probe_forms(forms: Mapping[str, Lowered]) -> list[tuple[Graph, list[int]]]:
    """Event values of several forms that facts may be about."""
    return [(form.graph, event_values(form)) for form in forms.values()]


def probe_model(form: NormalForm) -> Probe:
    """The same of a whole expression, as a program."""
    return probe(probe_forms(form.forms))


class _Choice(NamedTuple):
    """A form and a mode of differentiation."""

    name: str
    mode: Mode
    draft: Draft
    cost: float


def _modes(
    forms: Mapping[str, Lowered], transform: Transform, autodiff: Autodiff
) -> list[tuple[str, Mode]]:
    return [
        (name, mode) for name, form in forms.items() for mode in modes(form, transform, autodiff)
    ]


def _cheapest(
    forms: Mapping[str, Lowered],
    transform: Transform,
    autodiff: Autodiff,
    load: float | None,
    precision: Precision,
) -> _Choice:
    """The cheapest form in its cheapest mode; the first one in a draw, and forward mode."""
    choices = []
    for name, mode in _modes(forms, transform, autodiff):
        draft = Draft(forms[name], transform, load, mode, precision)
        choices.append(_Choice(name, mode, draft, cost(draft.programs)))
    return min(choices, key=lambda choice: choice.cost)
