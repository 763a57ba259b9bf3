"""Random numbers that belong to a row, whatever is generated around it."""

from __future__ import annotations

import numpy as np

from laddu_dask.data.fragment import Floats

__all__ = ["row_uniforms"]

_WORDS = 4
"""Numbers of 64 bits that one counter of Philox gives."""


def row_uniforms(seed: int, start: int, stop: int, count: int) -> Floats:
    """Uniform random numbers in [0, 1) for the rows [start, stop).

    Parameters
    ----------
    seed
        Chooses the sample; a non-negative integer.
    start, stop
        The rows.
    count
        Numbers of each row.

    Returns
    -------
    ndarray
        float64, shape (count, stop - start), multiples of 2**-53. A number depends on the seed, on
        its row and on `count` alone, so that a sample is the same however it is cut.

    Notes
    -----
    Philox is a function of a counter (J. K. Salmon et al., "Parallel random numbers: as easy as
    1, 2, 3", SC11, 2011): each row has counters of its own, and none before it has to be run
    through.
    """
    counters = -(-count // _WORDS)
    bits = np.random.Philox(key=seed)
    bits.advance(start * counters)
    words = bits.random_raw((stop - start) * counters * _WORDS)
    own = words.reshape(stop - start, counters * _WORDS)[:, :count].T
    return (own >> np.uint64(11)).astype(np.float64) * 2.0**-53
