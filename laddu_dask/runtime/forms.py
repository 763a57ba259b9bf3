"""The form in which a pass over events is evaluated, and what comes out of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import (
    Assumptions,
    CompiledModel,
    IntegratedSum,
    KernelOptions,
    SeparableIntegral,
    Transform,
)
from laddu_dask.compiler.assumptions import RANGE
from laddu_dask.compiler.evaluator import Evaluator
from laddu_dask.compiler.scalar import run_scalar
from laddu_dask.data import Dataset
from laddu_dask.kernels import Accumulator
from laddu_dask.kernels.exact import NOTHING, Exact
from laddu_dask.runtime.payload import Mode

if TYPE_CHECKING:
    from laddu_dask.runtime.model import Model

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ModelPass:
    """A reduction of a model over a data set.

    Attributes
    ----------
    label
        Names the pass in plans and errors, for example ``signal/data``.
    dataset
        The events.
    model
        The model.
    transform
        What is summed.
    """

    label: str
    dataset: Dataset
    model: Model
    transform: Transform


@dataclass(frozen=True)
class PassForm:
    """How a pass is evaluated.

    Attributes
    ----------
    separable
        The part that needs no event once its statistics are known, if any.
    mixed
        The part that needs every event in every evaluation, if any.
    reference
        The whole, to compare with.
    """

    separable: SeparableIntegral | None
    mixed: CompiledModel | None
    reference: CompiledModel | None = None

    def evaluated_by(self, evaluator: type[Evaluator]) -> PassForm:
        """The same with another way of running parameter programs."""
        return PassForm(
            self.separable and self.separable.evaluated_by(evaluator),
            self.mixed and self.mixed.evaluated_by(evaluator),
            self.reference and self.reference.evaluated_by(evaluator),
        )

    @cached_property
    def per_event(self) -> tuple[CompiledModel, ...]:
        """What runs over events in every evaluation; the reference last."""
        return tuple(model for model in (self.mixed, self.reference) if model is not None)


def choose_form(
    item: ModelPass,
    assumptions: Assumptions,
    options: KernelOptions,
    *,
    separate: bool,
    verify: bool,
) -> PassForm:
    """Separate an integral if that is wanted and possible; regroup what is left.

    Columns at the ends of the exponent range leave the written form, which multiplies in the order
    of the user.
    """
    model, transform = item.model, item.transform
    if assumptions.is_open(RANGE):
        return PassForm(None, model.compiled(transform, options))

    def grouped() -> CompiledModel:
        return model.grouped(transform, assumptions, options)

    if transform == "linear" and separate:
        form = model.integral(assumptions, options)
        if form.separable is not None:
            return PassForm(form.separable, form.residual, grouped() if verify else None)
    return PassForm(None, grouped())


class PassSum(NamedTuple):
    """The sum of a pass.

    Attributes
    ----------
    value
        The sum.
    gradient
        Its derivative with respect to the model's free parameters, if that was asked for.
    first_bad
        Global index of the first event whose value cannot be summed, if any.
    curved
        Products of the matrix of second derivatives with the directions that were asked for, shape
        (directions, parameters).
    unrounded
        What gives the parts of the sum before they were rounded, if all events could be summed.
    """

    value: float
    gradient: Array | None
    first_bad: int | None
    curved: Array | None = None
    unrounded: tuple[Callable[[], Exact], ...] = ()

    def exact(self) -> Exact:
        """The sum before it was rounded; that of its parts, which `value` rounds one by one."""
        total = NOTHING
        for part in self.unrounded:
            total = total.plus(part())
        return total

    @property
    def has_finite_gradient(self) -> bool:
        """Whether every derivative that was asked for is finite."""
        return self.gradient is None or all(map(math.isfinite, self.gradient.tolist()))

    @classmethod
    def of(cls, total: Accumulator, model: CompiledModel, parameters: Array, mode: Mode) -> PassSum:
        """Round the sums of a model's rows and lead the adjoints back to the parameters."""
        rows = total.round()
        gradient = None
        if mode == "gradient":
            gradient = model.invariants.gradient(parameters, np.array(rows[1:]))
        return cls(rows[0], gradient, total.first_bad, unrounded=(partial(total.exact, 0),))

    @classmethod
    def integrated(cls, integral: IntegratedSum, parameters: Array, mode: Mode) -> PassSum | None:
        """The sum of statistics; None where this form is not valid."""
        value = integral.value(parameters)
        if value is None:
            return None
        gradient = None if mode == "value" else integral.gradient(parameters)
        return cls(value, gradient, None, unrounded=(partial(_summed, integral, parameters),))

    @classmethod
    def curved_along(
        cls,
        sums: Sequence[Accumulator],
        model: CompiledModel,
        parameters: Array,
        directions: Array,
    ) -> PassSum:
        """The same with second derivatives, from one set of sums per direction."""
        n = model.invariants.n_adjoints
        curved = np.empty(directions.shape)
        for row, total, direction in zip(curved, sums, directions, strict=True):
            _, adjoints, tangents = np.split(np.array(total.round()), [1, 1 + n])
            row[:] = model.invariants.second_pullback(parameters, direction, adjoints, tangents)
        value, adjoints, _ = np.split(np.array(sums[0].round()), [1, 1 + n])
        gradient = model.invariants.gradient(parameters, adjoints)
        # A second derivative may be infinite at other events, depending on the direction.
        bad = [total.first_bad for total in sums if total.first_bad is not None]
        return cls(float(value[0]), gradient, min(bad, default=None), curved)

    @classmethod
    def total(cls, parts: Sequence[PassSum]) -> PassSum:
        """Sum of the parts of one pass."""
        first, *others = parts
        for other in others:
            bad = [each for each in (first.first_bad, other.first_bad) if each is not None]
            first = cls(
                first.value + other.value,
                _sum(first.gradient, other.gradient),
                min(bad, default=None),
                _sum(first.curved, other.curved),
                (*first.unrounded, *other.unrounded),
            )
        return first


def _summed(integral: IntegratedSum, parameters: Array) -> Exact:
    total = NOTHING
    for factor, slope in integral.products(parameters):
        total = total.plus(Exact.of(factor).times(Exact.of(slope)))
    return total


def _sum(a: Array | None, b: Array | None) -> Array | None:
    return None if a is None or b is None else a + b


def frontier_of(model: CompiledModel, parameters: Array) -> Array | None:
    """What a model's kernels read of the parameters; None where its form is not valid."""
    invariants = model.invariants
    if model.programs.regrouped:
        return invariants.valid_frontier(parameters)
    return invariants.frontier(parameters)


def curvature_frontiers(model: CompiledModel, parameters: Array, directions: Array) -> Array | None:
    """The same for second derivatives, a row per direction."""
    frontier = frontier_of(model, parameters)
    if frontier is None:
        return None
    scalars = model.programs.curvature.scalars
    rows = np.empty((len(directions), scalars.n_outputs))
    for row, direction in zip(rows, directions, strict=True):
        tangents = model.invariants.pushforward(parameters, direction)
        inputs = [*frontier.tolist(), *tangents.tolist()]
        row[:] = run_scalar(scalars.instructions, inputs, scalars.outputs)
    return rows


def stacked(rows: Sequence[Array]) -> Array:
    """Vectors as rows; a single one, the usual case, is not copied."""
    return rows[0][np.newaxis] if len(rows) == 1 else np.stack(rows)
