"""What is drawn for a row: a function of the seed and of the index of the row alone."""

from __future__ import annotations

import math
import operator
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from laddu_dask.data.fragment import Floats
from laddu_dask.errors import DataError

__all__ = ["checked_fraction", "checked_seed", "keyed_uniforms", "poisson_counts"]

_EXP_MINUS_ONE = 0.36787944117144233
_TERMS = [_EXP_MINUS_ONE / math.factorial(count) for count in range(20)]
# The terms left out are below the spacing of the uniform numbers, 2**-53.
_CUMULATIVE = np.array(list(accumulate(_TERMS)))


def checked_seed(seed: int) -> int:
    """The seed, if it is an integer of 64 bits without sign; DataError otherwise."""
    try:
        value = operator.index(seed)
    except TypeError:
        raise DataError(f"a seed is an integer from 0 to 2**64 - 1, not {seed!r}") from None
    if not 0 <= value < 1 << 64:
        raise DataError(f"a seed is an integer from 0 to 2**64 - 1, not {value}")
    return value


def checked_fraction(fraction: float) -> float:
    """A number from 0 to 1; DataError otherwise."""
    try:
        value = float(fraction)
    except (TypeError, ValueError):
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise DataError(f"a fraction of the events is a number from 0 to 1, not {fraction!r}")
    return value


def keyed_uniforms(seed: int, rows: NDArray[np.uint64]) -> Floats:
    """One number in [0, 1) for each of some rows, shape (n,).

    The finalizer of SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom
    number generators", OOPSLA 2014) of seed xor row, its upper 53 bits.
    """
    z = rows ^ np.uint64(seed)
    z += np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def poisson_counts(seed: int, start: int, stop: int) -> Floats:
    """Multiplicities of the rows [start, stop): Poisson numbers of mean one.

    float64, shape (stop - start,), by the inverse of the cumulative distribution. The seed is an
    integer from 0 to 2**64 - 1.
    """
    uniforms = keyed_uniforms(seed, np.arange(start, stop, dtype=np.uint64))
    return np.searchsorted(_CUMULATIVE, uniforms, side="right").astype(np.float64)
