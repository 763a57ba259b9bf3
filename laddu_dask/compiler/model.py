"""Compiling an expression: the written form, or the cheapest of several regrouped ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from laddu_dask.compiler.assembly import (
    CompiledModel,
    Draft,
    Transform,
    assemble_values,
    modes,
)
from laddu_dask.compiler.assumptions import Assumptions
from laddu_dask.compiler.cost import LOAD, cost
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.layout import ParameterLayout
from laddu_dask.compiler.lower import lower_all
from laddu_dask.compiler.lowered import Lowered
from laddu_dask.compiler.modes import Mode
from laddu_dask.compiler.normal_form import NormalForm, as_written, require_scalar
from laddu_dask.compiler.options import DEFAULT, KernelOptions
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
    options: KernelOptions = DEFAULT,
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
    options
        How kernels are made.

    Raises
    ------
    ExpressionError
        The expression is not a scalar.
    """
    if assumptions is not None:
        return compile_form(NormalForm(expr, assumptions), transform, options)
    require_scalar(expr)
    form, layout = as_written(expr), ParameterLayout.of(expr.node)
    return cheapest({"as written": form}, transform, layout, options)


def compile_elements(exprs: Sequence[Expr], options: KernelOptions = DEFAULT) -> CompiledModel:
    """Values of all elements of several expressions, as written, in one program.

    Two rows for each element, of a matrix row by row. What the expressions share is computed once.

    Raises
    ------
    ParameterError
        One parameter name with two definitions.
    """
    roots = [expr.node for expr in exprs]
    graph, values = lower_all(*roots)
    elements = [element for root in roots for element in values[id(root)]]
    return assemble_values(graph, elements, ParameterLayout.of(*roots), options)


def compile_form(
    form: NormalForm, transform: Transform, options: KernelOptions = DEFAULT
) -> CompiledModel:
    """The cheapest form of an expression whose normal form is known."""
    return cheapest(form.forms, transform, form.layout, options)


def cheapest(
    forms: Mapping[str, Lowered],
    transform: Transform,
    layout: ParameterLayout,
    options: KernelOptions,
) -> CompiledModel:
    """Compile the cheapest of several forms.

    The choice does not depend on the cost of a column in `options`, or bits would.
    """
    compared = replace(options, load=LOAD)
    if compared != options and len(_ways(forms, transform, options)) == 1:
        compared = options
    best = _cheapest(forms, transform, compared)
    if compared == options:
        return best.draft.compiled(layout, transform)
    return Draft.of(forms[best.name], transform, best.mode, options).compiled(layout, transform)


def compile_candidates(form: NormalForm, transform: Transform) -> list[Candidate]:
    """Every form that was considered, to explain the choice; `compile_form` takes the cheapest."""
    candidates = []
    for name, lowered in form.forms.items():
        best = _cheapest({name: lowered}, transform, DEFAULT)
        model = best.draft.compiled(form.layout, transform)
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


def _ways(
    forms: Mapping[str, Lowered], transform: Transform, options: KernelOptions
) -> list[tuple[str, Mode]]:
    """Names of forms with the modes that come into question for them."""
    return [
        (name, mode)
        for name, form in forms.items()
        for mode in modes(form, transform, options.autodiff)
    ]


def _cheapest(
    forms: Mapping[str, Lowered], transform: Transform, options: KernelOptions
) -> _Choice:
    """The cheapest form in its cheapest mode; the first one in a draw, and forward mode."""
    choices = []
    for name, mode in _ways(forms, transform, options):
        draft = Draft.of(forms[name], transform, mode, options)
        choices.append(_Choice(name, mode, draft, cost(draft.programs)))
    return min(choices, key=lambda choice: choice.cost)
