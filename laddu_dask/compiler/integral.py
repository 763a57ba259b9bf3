"""The integral of a separable intensity: statistics of events once, then parameters only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from laddu_dask.compiler import pairs
from laddu_dask.compiler.algebra import Algebra
from laddu_dask.compiler.assembly import CompiledModel
from laddu_dask.compiler.assumptions import Assumptions, Check
from laddu_dask.compiler.boundary import boundary
from laddu_dask.compiler.evaluator import Evaluator
from laddu_dask.compiler.event_programs import EventPrograms
from laddu_dask.compiler.grouping import Grouping
from laddu_dask.compiler.invariants import Invariants, forward, pullback
from laddu_dask.compiler.ir import EVENT, Graph
from laddu_dask.compiler.layout import Vector
from laddu_dask.compiler.model import cheapest, probe_forms
from laddu_dask.compiler.normal_form import NormalForm
from laddu_dask.compiler.options import DEFAULT, KernelOptions
from laddu_dask.compiler.probe import Probe, probe
from laddu_dask.compiler.program import cut
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
    invariants
        Parameters -> factors, which are the frontier of this sum.
    terms
        Factor, statistic and number of each product.
    """

    statistics: EventPrograms
    invariants: Invariants
    terms: tuple[tuple[int, int, float], ...]

    def evaluated_by(self, evaluator: type[Evaluator]) -> SeparableIntegral:
        """The same with another way of running parameter programs."""
        return replace(self, invariants=replace(self.invariants, evaluator=evaluator))

    @property
    def n_statistics(self) -> int:
        """Number of statistics."""
        return self.statistics.value.n_outputs

    def of(self, statistics: Sequence[float]) -> IntegratedSum:
        """The sum over events of which these are the statistics."""
        n = len(self.invariants.forward[1]) - len(self.invariants.guards)
        slopes, sizes = [0.0] * n, [0.0] * n
        for factor, statistic, number in self.terms:
            slope = number * statistics[statistic]
            slopes[factor] += slope
            sizes[factor] += abs(slope)
        return IntegratedSum(self.invariants, tuple(slopes), tuple(sizes))


@dataclass(frozen=True)
class IntegratedSum:
    """A sum over events as a function of parameters alone: ``sum P_k A_k``.

    Attributes
    ----------
    invariants
        Parameters -> factors ``P_k``.
    slopes
        ``A_k``.
    sizes
        Sums of the moduli of what ``A_k`` was summed of.
    """

    invariants: Invariants
    slopes: tuple[float, ...]
    sizes: tuple[float, ...]

    def value(self, parameters: Vector) -> float | None:
        """The sum; None where this form is not valid.

        A guard does not hold, a factor may leave the exponent range in a product, or the products
        cancel so far that rounding shows. Derivatives have no say: the value at a point is the same
        number whether they are wanted or not.
        """
        found = self.invariants.weighted(parameters, self._weights)
        if found is None:
            return None
        value, size = found
        valid = size <= MOST_CANCELLATION * abs(value) and math.isfinite(value)
        return value if valid else None

    def products(self, parameters: Vector) -> list[tuple[float, float]]:
        """``(P_k, A_k)``, of which the sum of products is the value before its rounding.

        Where `value` is not None.
        """
        factors = self.invariants.valid_frontier(parameters)
        assert factors is not None, "the caller asked for the value before"
        return list(zip(factors.tolist(), self.slopes, strict=True))

    def gradient(self, parameters: Vector) -> Vector:
        """Derivatives with respect to the free parameters."""
        return self.invariants.gradient(parameters, self._adjoints)

    def curve(self, parameters: Vector, direction: Vector) -> Vector:
        """Product of the matrix of second derivatives with a direction."""
        adjoints = self._adjoints
        none = np.zeros_like(adjoints)
        return self.invariants.second_pullback(parameters, direction, adjoints, none)

    @cached_property
    def _weights(self) -> Vector:
        return np.array([self.slopes, self.sizes], dtype=np.float64)

    @cached_property
    def _adjoints(self) -> Vector:
        return np.array(self.slopes[: self.invariants.n_adjoints], dtype=np.float64)


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
    used = [factor for factor, place in zip(factors, places, strict=True) if place is not None]
    differentiated = list(dict.fromkeys(used))
    # A factor whose product is known to be zero is looked at all the same: it must be finite.
    frontier = list(dict.fromkeys([*used, *factors]))
    position = {value: k for k, value in enumerate(frontier)}
    terms = tuple(
        (position[factor], *place)
        for factor, place in zip(factors, places, strict=True)
        if place is not None
    )
    run, forward_excerpt = forward(g, frontier, guards, layout)
    back, backward_excerpt = pullback(g, differentiated, (), layout)
    invariants = Invariants(
        forward=run,
        pullback=back,
        n_parameters=len(layout.names),
        n_adjoints=len(differentiated),
        excerpts=(forward_excerpt, backward_excerpt),
        guards=tuple(guard.property for guard in guards),
    )
    return IntegralForm(SeparableIntegral(programs, invariants, terms), residual)


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
