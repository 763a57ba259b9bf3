"""The integral of a separable intensity: statistics of events once, then parameters only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from laddu_dask.compiler import pairs
from laddu_dask.compiler.algebra import Algebra
from laddu_dask.compiler.assembly import CompiledModel
from laddu_dask.compiler.assumptions import Assumptions, Check, Guard, Property
from laddu_dask.compiler.boundary import boundary
from laddu_dask.compiler.event_programs import EventPrograms
from laddu_dask.compiler.excerpt import Excerpt, scalar_tangents
from laddu_dask.compiler.grouping import Grouping
from laddu_dask.compiler.invariants import copy_below, holds, parameter_gradients
from laddu_dask.compiler.ir import EVENT, Graph, Instruction
from laddu_dask.compiler.layout import ParameterLayout, Vector
from laddu_dask.compiler.model import cheapest, probe_forms
from laddu_dask.compiler.normal_form import NormalForm
from laddu_dask.compiler.options import DEFAULT, KernelOptions
from laddu_dask.compiler.precision import is_moderate
from laddu_dask.compiler.probe import Probe, probe
from laddu_dask.compiler.program import Program, cut
from laddu_dask.compiler.scalar import Evaluator
from laddu_dask.compiler.separable import Product
from laddu_dask.compiler.specialize import known_values
from laddu_dask.expr.expression import Expr

#: Sum of moduli over modulus of the sum, to which products may cancel: rounding stays below 1e-12.
MOST_CANCELLATION = 4500.0


@dataclass(frozen=True)
class SeparableIntegral:
    """``sum w Re I`` over events as a function of parameters and statistics.

    Attributes
    ----------
    statistics
        Event programs without parameters: one row ``w E_k`` per statistic.
    instructions, outputs
        Scalar program: parameters, then statistics -> value, sum of moduli, gradient, guarded
        values, parameter factors.
    n_parameters
        Free parameters of the model.
    guards
        Properties that the guarded values must have.
    excerpt
        The gradient before it was cut.
    """

    statistics: EventPrograms
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    n_parameters: int
    guards: tuple[Property, ...]
    excerpt: Excerpt

    @property
    def n_statistics(self) -> int:
        """Number of statistics."""
        return self.statistics.value.n_outputs

    def evaluate(self, parameters: Vector, statistics: Vector) -> tuple[float, Vector] | None:
        """Value and gradient; None where the form is not valid.

        A guard does not hold, a factor may leave the exponent range in a product, or the products
        cancel so far that rounding shows.
        """
        inputs = [*parameters.tolist(), *statistics.tolist()]
        value, size, *others = self._run(inputs)
        gradient = np.array(others[: self.n_parameters], dtype=np.float64)
        rest = others[self.n_parameters :]
        n = len(self.guards)
        valid = all(map(holds, self.guards, rest[:n])) and all(map(is_moderate, rest[n:]))
        if not valid or not size <= MOST_CANCELLATION * abs(value):
            return None
        return (value, gradient) if np.isfinite(gradient).all() else None

    def curve(self, parameters: Vector, statistics: Vector, direction: Vector) -> Vector:
        """Product of the matrix of second derivatives with a direction."""
        inputs = [*parameters.tolist(), *statistics.tolist(), *direction.tolist()]
        return np.array(self._curve(inputs))

    @cached_property
    def _curve(self) -> Evaluator:
        n = self.n_parameters
        program = scalar_tangents(self.excerpt, n + self.n_statistics, n)
        return Evaluator(program.instructions, program.outputs)

    @cached_property
    def _run(self) -> Evaluator:
        return Evaluator(self.instructions, self.outputs)


@dataclass(frozen=True)
class IntegralForm:
    """How an integral over events is evaluated: the sum of both parts, either may be absent."""

    separable: SeparableIntegral | None
    residual: CompiledModel | None


def compile_integral(
    expr: Expr, assumptions: Assumptions, options: KernelOptions = DEFAULT
) -> IntegralForm:
    """Separate what can be integrated once from what needs every event in every evaluation.

    The options are about the latter. Statistics are made in double precision whatever they say: it
    happens once, and they are a few numbers.
    """
    return integrate(NormalForm(expr, assumptions), options)


def integrate(form: NormalForm, options: KernelOptions = DEFAULT) -> IntegralForm:
    """The same of a normal form."""
    layout, rest = form.layout, form.residual_forms
    residual = cheapest(rest, "linear", layout, options) if rest else None
    algebra, products = form.separated
    if not products:
        return IntegralForm(None, residual)
    grouping, factors, events = _lowered(algebra, products)
    g = grouping.graph
    uses, facts = _uses(g, events, form.assumptions)
    statistics = list(dict.fromkeys(value for value, number in uses if number)) or [g.const(1.0)]
    guards = list(dict.fromkeys(grouping.guards))

    weight = g.emit("weight")
    rows = [g.mul(weight, value) for value in statistics]
    cached = boundary(g, rows, EVENT)
    inputs = {value: i for i, value in enumerate(cached)}
    sums = cut(g, rows, inputs, {}, weighted=True)
    programs = EventPrograms.of(g, sums, sums, cached, [*grouping.checks, *facts], ranged=cached)
    row = {value: i for i, value in enumerate(statistics)}
    places = [
        (row[value], product.factor * number) if number else None
        for product, (value, number) in zip(products, uses, strict=True)
    ]
    scalar, excerpt = _scalar_program(g, factors, places, guards, layout)
    return IntegralForm(
        SeparableIntegral(
            programs,
            scalar.instructions,
            scalar.outputs,
            len(layout.names),
            tuple(guard.property for guard in guards),
            excerpt,
        ),
        residual,
    )


def probe_integral(form: NormalForm) -> Probe:
    """Event values of the separated form that facts may be about."""
    grouping, _, events = _lowered(*form.separated)
    subjects = probe_forms(form.residual_forms)
    g = grouping.graph
    return probe([*subjects, (g, [value for value in events if g.kinds[value] == EVENT])])


def _lowered(
    algebra: Algebra, products: Sequence[Product]
) -> tuple[Grouping, list[int], list[int]]:
    """Factors of parameters and of events of all products."""
    grouping = Grouping(algebra, distribute=False)
    lowered = grouping.lower(
        *(product.parameters for product in products), *(product.events for product in products)
    )
    g, n = grouping.graph, len(products)
    factors = [_part(g, pair, p) for pair, p in zip(lowered[:n], products, strict=True)]
    events = [_part(g, pair, p) for pair, p in zip(lowered[n:], products, strict=True)]
    return grouping, factors, events


def _uses(
    g: Graph, events: Sequence[int], assumptions: Assumptions
) -> tuple[list[tuple[int, float]], list[Check]]:
    """The statistic of each product as a value and a number that multiplies it, and their checks.

    Constants share the sum of weights, equal values one sum. A product with the number 0 needs
    none; its factor of parameters is still looked at, since it must be finite.
    """
    signed = [(g.ops[v][1][0], -1.0) if g.ops[v][0] == "neg" else (v, 1.0) for v in events]
    subjects = [v for v in dict.fromkeys(v for v, _ in signed) if g.kinds[v] == EVENT]
    known, one = known_values(g, subjects, assumptions), g.const(1.0)
    uses: list[tuple[int, float]] = []
    for value, sign in signed:
        check, number = known.get(value), g.literal(value)
        if check is not None and check.other is None:
            number = check.number
        if number is not None:
            uses.append((one, sign * number))
        elif check is not None and check.other is not None:
            uses.append((check.other, sign if check.property == "equal" else -sign))
        else:
            uses.append((value, sign))
    return uses, list(known.values())


def _part(g: Graph, pair: pairs.Pair, product: Product) -> int:
    return pairs.re(g, pair) if product.part == "re" else pairs.im(g, pair)


def _scalar_program(
    graph: Graph,
    factors: Sequence[int],
    places: Sequence[tuple[int, float] | None],
    guards: Sequence[Guard],
    layout: ParameterLayout,
) -> tuple[Program, Excerpt]:
    """``sum number P_k S_k`` with its gradient, from parameters and statistics.

    `places` has the statistic and the number of each factor, or None for one that is not needed.
    """
    scalar, renamed = copy_below(graph, [*factors, *(guard.value for guard in guards)])
    guarded_values = [renamed[guard.value] for guard in guards]
    total = size = scalar.const(0.0)
    for factor, place in zip(factors, places, strict=True):
        if place is None:
            continue
        statistic = scalar.emit("column", payload=str(place[0]))
        coefficient = scalar.mul(scalar.const(place[1]), renamed[factor])
        term = scalar.mul(coefficient, statistic)
        total, size = scalar.add(total, term), scalar.add(size, scalar.call("abs", term))
    found = parameter_gradients(scalar, total, set())
    gradient = [found.get(name, scalar.const(0.0)) for name in layout.names]
    position = {name: i for i, name in enumerate(layout.names)}
    leaves = {
        index: position[str(payload)] if op == "parameter" else len(position) + int(str(payload))
        for index, (op, _, payload) in enumerate(scalar.ops)
        if op in {"parameter", "column"}
    }
    parameters = list(dict.fromkeys(renamed[factor] for factor in factors))
    outputs = [total, size, *gradient, *guarded_values, *parameters]
    return cut(scalar, outputs, {}, leaves), Excerpt.of(scalar, gradient, {}, leaves)
