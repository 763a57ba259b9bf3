"""What is asked about prepared events: comparisons whose answers need no event to be kept.

The answers of a part of the events are bits, those of all events the bits of all parts together.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

#: ``large``: bit 0 if a modulus is not at most `high`; NaN is not.
#: ``sign``: bit 0 if a number is at least zero, bit 1 if one is below.
#: ``differs``: bit 0 if a number is not `low`.
#: ``unequal``, ``unopposite``: bit 0 if it is not that of row `other`, or not its negative; two NaN
#: are equal and opposite.
#: ``extreme``: bit 0 if a modulus is below `low` and not zero, or above `high` and finite.
Kind = Literal["large", "sign", "differs", "unequal", "unopposite", "extreme"]
KINDS: tuple[Kind, ...] = ("large", "sign", "differs", "unequal", "unopposite", "extreme")


class Question(NamedTuple):
    """A question about one row of numbers, or about two.

    Attributes
    ----------
    kind
        What is asked, see `Kind`.
    row, other
        Numbers of the rows.
    low, high
        What they are compared to; moduli are compared to finite ones.
    """

    kind: Kind
    row: int
    other: int = 0
    low: float = 0.0
    high: float = 0.0

    def answer(self, rows: npt.NDArray[np.float64]) -> int:
        """The bits, as NumPy finds them."""
        values = rows[self.row]
        with np.errstate(invalid="ignore"):
            if self.kind == "sign":
                return int((values >= 0).any()) + 2 * int((values < 0).any())
            return int(self._found(values, rows[self.other]).any())

    def _found(self, values: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> Any:
        sizes = np.abs(values)
        if self.kind == "large":
            return ~(sizes <= self.high)
        if self.kind == "differs":
            return values != self.low
        if self.kind == "extreme":
            small = (sizes < self.low) & (sizes > 0)
            return small | ((sizes > self.high) & (sizes < np.inf))
        same = values == (others if self.kind == "unequal" else np.negative(others))
        return ~(same | (np.isnan(values) & np.isnan(others)))
