"""The integral of a separable intensity: statistics of events once, then parameters only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from laddu_dask.compiler import pairs
from laddu_dask.compiler.algebra import Algebra
from laddu_dask.compiler.assembly import CompiledModel
from laddu_dask.compiler.assumptions import Assumptions, Guard, Property, is_moderate
from laddu_dask.compiler.boundary import boundary, columns_below, leaf_rows
from laddu_dask.compiler.event_programs import EventPrograms
from laddu_dask.compiler.grouping import Grouping
from laddu_dask.compiler.invariants import copy_below, holds, parameter_gradients, run_scalar
from laddu_dask.compiler.ir import EVENT, Graph, Instruction
from laddu_dask.compiler.layout import ParameterLayout, Vector
from laddu_dask.compiler.model import compile_term, probe_term
from laddu_dask.compiler.normalize import normalize
from laddu_dask.compiler.probe import Probe, probe
from laddu_dask.compiler.program import cut
from laddu_dask.compiler.separable import Product, separate
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
    """

    statistics: EventPrograms
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    n_parameters: int
    guards: tuple[Property, ...]

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
        value, size, *others = run_scalar(self.instructions, inputs, self.outputs)
        gradient = np.array(others[: self.n_parameters], dtype=np.float64)
        rest = others[self.n_parameters :]
        n = len(self.guards)
        valid = all(map(holds, self.guards, rest[:n])) and all(map(is_moderate, rest[n:]))
        if not valid or not size <= MOST_CANCELLATION * abs(value):
            return None
        return (value, gradient) if np.isfinite(gradient).all() else None


@dataclass(frozen=True)
class IntegralForm:
    """How an integral over events is evaluated: the sum of both parts, either may be absent."""

    separable: SeparableIntegral | None
    residual: CompiledModel | None


def compile_integral(expr: Expr, assumptions: Assumptions) -> IntegralForm:
    """Separate what can be integrated once from what needs every event in every evaluation."""
    layout = ParameterLayout.of(expr.node)
    algebra, root = normalize(expr.node, assumptions)
    products, rest = separate(algebra, root)
    residual = None if rest is None else compile_term(algebra, rest, "linear", layout)
    if not products:
        return IntegralForm(None, residual)
    grouping, factors, events = _lowered(algebra, products)
    g = grouping.graph
    statistics = list(dict.fromkeys(events))
    checks = list(dict.fromkeys(grouping.checks))
    guards = list(dict.fromkeys(grouping.guards))

    weight = g.emit("weight")
    rows = [g.mul(weight, value) for value in statistics]
    cached = boundary(g, rows, EVENT)
    prepared = list(dict.fromkeys([*cached, *(check.value for check in checks)]))
    place = {value: row for row, value in enumerate(prepared)}
    columns = columns_below(g, prepared)
    inputs = {value: i for i, value in enumerate(cached)}
    sums = cut(g, rows, inputs, {}, weight_row=len(cached))
    programs = EventPrograms(
        columns=columns,
        prepare=cut(g, prepared, leaf_rows(g, columns), {}),
        value=sums,
        gradient=sums,
        n_cached=len(cached),
        checks=tuple(check.moved(place.__getitem__) for check in checks),
        regrouped=True,
    )
    places = [statistics.index(value) for value in events]
    instructions, outputs = _scalar_program(g, products, factors, places, guards, layout)
    return IntegralForm(
        SeparableIntegral(
            programs,
            instructions,
            outputs,
            len(layout.names),
            tuple(guard.property for guard in guards),
        ),
        residual,
    )


def probe_integral(expr: Expr, assumptions: Assumptions) -> Probe:
    """Event values of the separated form that facts may be about."""
    algebra, root = normalize(expr.node, assumptions)
    products, rest = separate(algebra, root)
    grouping, _, events = _lowered(algebra, products)
    subjects = [] if rest is None else probe_term(algebra, rest)
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


def _part(g: Graph, pair: pairs.Pair, product: Product) -> int:
    return pairs.re(g, pair) if product.part == "re" else pairs.im(g, pair)


def _scalar_program(
    graph: Graph,
    products: Sequence[Product],
    factors: Sequence[int],
    places: Sequence[int],
    guards: Sequence[Guard],
    layout: ParameterLayout,
) -> tuple[tuple[Instruction, ...], tuple[int, ...]]:
    """``sum factor P_k S_k`` with its gradient, from parameters and statistics."""
    scalar, renamed = copy_below(graph, [*factors, *(guard.value for guard in guards)])
    guarded_values = [renamed[guard.value] for guard in guards]
    total = size = scalar.const(0.0)
    for product, factor, place in zip(products, factors, places, strict=True):
        statistic = scalar.emit("column", payload=str(place))
        coefficient = scalar.mul(scalar.const(product.factor), renamed[factor])
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
    program = cut(scalar, outputs, {}, leaves)
    return program.instructions, program.outputs
