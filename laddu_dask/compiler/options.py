"""What may be chosen about kernels; no choice changes what they compute beyond rounding."""

from __future__ import annotations

from dataclasses import dataclass

from laddu_dask.compiler.cost import LOAD
from laddu_dask.compiler.modes import Autodiff
from laddu_dask.compiler.precision import Precision


@dataclass(frozen=True)
class KernelOptions:
    """How the kernels that run over all events in every evaluation are made.

    Attributes
    ----------
    autodiff
        How the value is differentiated.
    load
        Cost of a cached column in nanoseconds per event. A larger one saves memory: more values are
        computed again from fewer columns. No result depends on it in double precision; in single
        precision it decides what is rounded. The written form keeps all columns whatever it is.
    precision
        ``"f32"``: columns, frontier values and the expression are floats; columns and frontier
        values are rounded to that from doubles, and transforms, weights and sums are doubles.
    """

    autodiff: Autodiff = "auto"
    load: float = LOAD
    precision: Precision = "f64"


#: Both modes of differentiation tried, the measured cost of a column, double precision.
DEFAULT = KernelOptions()
