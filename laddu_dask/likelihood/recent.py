"""The sums over events at the last few points, which differences are made of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from laddu_dask.runtime.forms import PassSum

Vector = npt.NDArray[np.float64]
Sums = Sequence[PassSum]

#: Points that are remembered: the last steps of a fit, which compares them.
MOST = 8


class RecentSums:
    """Sums by parameter point, to the last bit of its parameters; the latest ones only.

    They are numbers that the point determines. That they are kept saves a pass and changes nothing.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Sums] = OrderedDict()

    def remember(self, vector: Vector, sums: Sums) -> None:
        """Keep the sums at a point; a few microseconds, since every evaluation does it."""
        key = vector.tobytes()
        self._kept[key] = sums
        self._kept.move_to_end(key)
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)

    def recall(self, vectors: Iterable[Vector]) -> dict[bytes, Sums]:
        """What is known at some points; who compares with one will do so again."""
        found = {}
        for vector in vectors:
            key = vector.tobytes()
            if key in self._kept:
                self._kept.move_to_end(key)
                found[key] = self._kept[key]
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
