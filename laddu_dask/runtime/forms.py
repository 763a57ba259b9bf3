"""The form in which a pass over events is evaluated, and what comes out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import Assumptions, CompiledModel, SeparableIntegral, Transform
from laddu_dask.compiler.assumptions import RANGE
from laddu_dask.compiler.cost import LOAD
from laddu_dask.data import Dataset
from laddu_dask.kernels import Accumulator
from laddu_dask.runtime.model import Model
from laddu_dask.runtime.payload import Mode

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

    @property
    def per_event(self) -> tuple[CompiledModel, ...]:
        """What runs over events in every evaluation; the reference last."""
        return tuple(model for model in (self.mixed, self.reference) if model is not None)


def choose_form(
    item: ModelPass,
    assumptions: Assumptions,
    *,
    separate: bool,
    verify: bool,
    load: float = LOAD,
) -> PassForm:
    """Separate an integral if that is wanted and possible; regroup what is left.

    Columns at the ends of the exponent range leave the written form, which multiplies in the order
    of the user. `load` is the cost of a column, see `compile_model`.
    """
    if assumptions.is_open(RANGE):
        return PassForm(None, item.model.compiled(item.transform))
    if item.transform == "linear" and separate:
        form = item.model.integral(assumptions, load=load)
        if form.separable is not None:
            whole = item.model.grouped("linear", assumptions, load=load) if verify else None
            return PassForm(form.separable, form.residual, whole)
    return PassForm(None, item.model.grouped(item.transform, assumptions, load=load))


@dataclass(frozen=True)
class PassSum:
    """The sum of a pass.

    Attributes
    ----------
    value
        The sum.
    gradient
        Its derivative with respect to the model's free parameters, if that was asked for.
    first_bad
        Global index of the first event whose value cannot be summed, if any.
    """

    value: float
    gradient: Array | None
    first_bad: int | None

    @classmethod
    def of(cls, total: Accumulator, model: CompiledModel, parameters: Array, mode: Mode) -> PassSum:
        """Round the sums of a model's rows and lead the adjoints back to the parameters."""
        rows = total.round()
        gradient = None
        if mode == "gradient":
            gradient = model.invariants.gradient(parameters, rows[1:])
        return cls(float(rows[0]), gradient, total.first_bad)

    @classmethod
    def total(cls, parts: Sequence[PassSum]) -> PassSum:
        """Sum of the parts of one pass."""
        first, *others = parts
        for other in others:
            gradient = None
            if first.gradient is not None and other.gradient is not None:
                gradient = first.gradient + other.gradient
            bad = [each for each in (first.first_bad, other.first_bad) if each is not None]
            first = cls(first.value + other.value, gradient, min(bad, default=None))
        return first
