"""What a fit needs to know of a likelihood.

The fit room never sees events, expressions or workers: it talks to anything that has named
parameters and can return -2 ln L with its gradient. `laddu_dask.likelihood` provides the real one,
tests provide closed forms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from laddu_dask.errors import ParameterError

F64: TypeAlias = npt.NDArray[np.float64]
"""A float64 array; parameter vectors have shape (n_free,), Hessians (n_free, n_free)."""


class Parameter(Protocol):
    """Definition of one free parameter, as the minimiser uses it."""

    @property
    def name(self) -> str:
        """Unique name."""

    @property
    def bounds(self) -> tuple[float | None, float | None] | None:
        """Inclusive limits; either end may be open."""

    @property
    def scale(self) -> float | None:
        """Typical size of a change, or None when the user gave none."""

    @property
    def periodic(self) -> bool:
        """Whether the two bounds are the same point (an angle)."""

    @property
    def unit(self) -> str | None:
        """Unit for printing, for example "GeV"."""

    @property
    def latex(self) -> str | None:
        """LaTeX source of the symbol."""


class Objective(Protocol):
    """-2 ln L as a function of the free parameters.

    `value` and `value_and_gradient` raise `EvaluationError` where an intensity is not positive or
    not finite. A change of the objective by one is one standard deviation (Minuit's errordef 1).
    """

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the free parameters, in the order of every vector."""

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Definitions; may contain fixed parameters too, which a fit does not look at."""

    @property
    def default_parameters(self) -> F64:
        """Start values, shape (n_free,)."""

    def value(self, p: F64, /) -> float:
        """Return the objective at `p`."""

    def value_and_gradient(self, p: F64, /) -> tuple[float, F64]:
        """Return the objective and its derivatives by each free parameter, shape (n_free,)."""


@runtime_checkable
class TwiceDifferentiable(Protocol):
    """An objective that knows its second derivatives."""

    def hessian(self, p: F64, /) -> F64:
        """Return the exact Hessian at `p`, shape (n_free, n_free), symmetric.

        Raises `EvaluationError` where there is none.
        """


@runtime_checkable
class Comparable(Protocol):
    """An objective that knows differences of itself better than its values tell."""

    def delta(self, p: F64, q: F64, /) -> float:
        """Return the objective at `p` less that at `q`, without cancellation."""


@runtime_checkable
class Identified(Protocol):
    """An objective that can say what it is."""

    def identity(self) -> Mapping[str, str]:
        """Return all that its numbers depend on, by what it is called in messages.

        For example ``{"the events of 'signal/data'": "1200"}``. A checkpoint of a fit is refused
        where any of it differs.
        """


def free_parameters(objective: Objective) -> tuple[Parameter, ...]:
    """Return the definitions of the free parameters in the order of `parameter_names`.

    Raises
    ------
    ParameterError
        When a free parameter has no definition.
    """
    by_name = {parameter.name: parameter for parameter in objective.parameters}
    missing = [name for name in objective.parameter_names if name not in by_name]
    if missing:
        raise ParameterError(
            f"free parameters without a definition: {', '.join(missing)}", names=missing
        )
    return tuple(by_name[name] for name in objective.parameter_names)
