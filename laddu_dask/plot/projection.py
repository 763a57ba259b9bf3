"""Weighted histograms of one quantity: data, fit, and the difference in standard deviations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from laddu_dask.errors import DataError

F64: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Histogram:
    """Sums of weights in bins.

    Attributes
    ----------
    edges
        Bin limits, ascending, shape (n + 1,). A bin holds its lower edge; the last also its upper.
    counts
        Sum of weights per bin, shape (n,).
    variances
        Sum of squared weights per bin, shape (n,).
    underflow, overflow
        Sum of weights below the first and above the last edge.
    """

    edges: F64
    counts: F64
    variances: F64
    underflow: float
    overflow: float

    @property
    def errors(self) -> F64:
        """Standard deviations of the counts, sqrt(sum w^2), shape (n,)."""
        return np.asarray(np.sqrt(self.variances))

    def __add__(self, other: Histogram) -> Histogram:
        """Return the histogram of both samples.

        Raises
        ------
        DataError
            When the edges differ.
        """
        if not np.array_equal(self.edges, other.edges):
            raise DataError("histograms with different edges cannot be added")
        return Histogram(
            self.edges,
            self.counts + other.counts,
            self.variances + other.variances,
            self.underflow + other.underflow,
            self.overflow + other.overflow,
        )


def weighted_histogram(
    values: npt.ArrayLike, weights: npt.ArrayLike | None, edges: npt.ArrayLike
) -> Histogram:
    """Sum weights in bins of a quantity.

    Parameters
    ----------
    values
        The quantity per event, shape (n_events,).
    weights
        Weight per event, shape (n_events,), of any sign; None for one each.
    edges
        Bin limits, ascending, shape (n + 1,).

    Raises
    ------
    DataError
        Edges that do not ascend, shapes that differ, a value that is NaN (names the event).
    """
    limits = checked_edges(edges)
    x = np.asarray(values, dtype=np.float64)
    w = np.ones_like(x) if weights is None else np.asarray(weights, dtype=np.float64)
    if x.ndim != 1 or x.shape != w.shape:
        raise DataError(f"histogram of values of shape {x.shape} with weights of shape {w.shape}")
    bad = np.flatnonzero(np.isnan(x) | ~np.isfinite(w))
    if len(bad):
        event = int(bad[0])
        raise DataError(
            f"histogram: event {event} has value {x[event]} and weight {w[event]}; "
            f"{len(bad)} of {len(x)} events are like that",
            event=event,
        )
    counts = np.histogram(x, limits, weights=w)[0]
    variances = np.histogram(x, limits, weights=w * w)[0]
    return Histogram(
        limits,
        counts.astype(np.float64),
        variances.astype(np.float64),
        float(w[x < limits[0]].sum()),
        float(w[x > limits[-1]].sum()),
    )


def pulls(data: F64, errors: F64, fit: F64) -> F64:
    """Return (data - fit) / error per bin, shape (n,); NaN where the error is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(errors > 0, (data - fit) / errors, np.nan)


def checked_edges(edges: npt.ArrayLike) -> F64:
    """Return bin limits as an array.

    Raises
    ------
    DataError
        When there are fewer than two, or they are not finite and strictly ascending.
    """
    limits = np.array(edges, dtype=np.float64)
    if limits.ndim != 1 or len(limits) < 2:
        raise DataError(f"bin edges have shape {limits.shape}; give at least two numbers")
    if not np.isfinite(limits).all() or not (np.diff(limits) > 0).all():
        raise DataError("bin edges must be finite and strictly ascending")
    return limits
