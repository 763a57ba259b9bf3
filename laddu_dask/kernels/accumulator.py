"""Order-free exact accumulation.

Bin j of a fixed grid has unit u_j = 2**(40 j). A number v is cut into digits from above,
``d_j = round(rest / u_j)``, ``rest -= d_j u_j``; both steps are exact, and d_j depends on v alone.
A state at level L keeps, for j = L, L-1, L-2, the sum of d_j over events as an exact integer. L is
the least level whose top bin holds every |v| seen, so the whole state is a function of the multiset
of values: no order, tile, lane, thread, chunk or worker appears in it. States merge exactly and are
rounded once, at the root. What three bins drop is below ``N 2**-80 max|v|``.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from laddu_dask.errors import LadduError
from laddu_dask.kernels.exact import Exact

BIN_BITS = 40
FOLDS = 3
LEVEL_MIN, LEVEL_MAX = -25, 24
#: Values from here on, infinities and NaN are bad: they are located, not summed.
LIMIT = 2.0**999
NO_EVENT = 2**63 - 1
#: Integers are kept as ``high * 2**26 + low``.
LOW_BITS = 26
#: Numbers of a state that are not about a single quantity.
_META = 2

#: A reduction first sums the events of a tile in fixed lanes: event i goes to lane i modulo LANES,
#: in order. Tiles begin at multiples of TILE events of the data set, so the sums do not depend on
#: how the data set is cut, as long as cuts are multiples of TILE.
TILE = 1024
LANES = 8
#: The first rows of a reduction, the value, keep the rounding errors of their lane sums as well.
#: For the others, the adjoints, that would cost half of the speed.
COMPENSATED = 1
#: `LIMIT` for the events of a tile, so that no lane sum reaches `LIMIT`.
TILE_LIMIT = LIMIT / TILE

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def _magic(j: int) -> float:
    """Adding and subtracting it rounds to a multiple of u_j; below the grid nothing is cut off."""
    exponent = 52 + BIN_BITS * j
    return math.ldexp(1.5, exponent) if exponent > -1074 else 0.0


_BINS = range(LEVEL_MIN - FOLDS + 1, LEVEL_MAX + 1)
#: Rounding constants by bin, starting at bin LEVEL_MIN - FOLDS + 1.
MAGIC: Array = np.array([_magic(j) for j in _BINS])
#: 1/u_j as two exact powers of two, whose product may lie outside the double range.
INVERSE_UNIT: Array = np.array(
    [
        (
            math.ldexp(1.0, (-BIN_BITS * j) // 2),
            math.ldexp(1.0, -BIN_BITS * j - (-BIN_BITS * j) // 2),
        )
        for j in _BINS
    ]
)
#: Values at level L must be smaller than this, starting at LEVEL_MIN.
LEVEL_LIMIT: Array = np.array(
    [math.ldexp(1.0, BIN_BITS * (level + 1) - 1) for level in range(LEVEL_MIN, LEVEL_MAX + 1)]
)


@functools.cache
def _nothing(size: int) -> tuple[Any, bytes]:
    """State of a sum over no event, and the type of memory that holds it."""
    state = np.zeros(_META + size * (1 + 2 * FOLDS), dtype=np.int64)
    state[1] = NO_EVENT
    state[_META : _META + size] = LEVEL_MIN
    return ctypes.c_int64 * len(state), state.tobytes()


class Accumulator:
    """Exact sums of several quantities over the same events.

    Attributes
    ----------
    state
        All numbers, int64 (2 + 7 n,): `meta`, `levels`, `words`, which are views of it.
    memory
        Where they lie, for machine code.
    """

    __slots__ = ("memory", "size", "state")

    def __init__(self, size: int) -> None:
        self.size = size
        kind, nothing = _nothing(size)
        self.memory = kind.from_buffer_copy(nothing)
        self.state: Integers = np.frombuffer(self.memory, np.int64)

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        """By value: state and memory of a copy are one."""
        return Accumulator.from_bytes, (self.to_bytes(),)

    def __len__(self) -> int:
        return self.size

    @property
    def meta(self) -> Integers:
        """Number of good events, and index of the first bad one; int64 (2,)."""
        return self.state[:_META]

    @property
    def levels(self) -> Integers:
        """Level of each quantity, int64 (n,)."""
        return self.state[_META : _META + self.size]

    @property
    def words(self) -> Integers:
        """Digit sums as (high, low) words from the top bin down, int64 (n, 3, 2)."""
        return self.state[_META + self.size :].reshape(self.size, FOLDS, 2)

    @property
    def count(self) -> int:
        """Events summed."""
        return self.state.item(0)

    @property
    def first_bad(self) -> int | None:
        """Global index of the first event with a value that cannot be summed, if any."""
        bad = self.state.item(1)
        return None if bad == NO_EVENT else bad

    def merge(self, other: Accumulator) -> None:
        """Add another state to this one, exactly."""
        if len(other) != len(self):
            raise LadduError(f"cannot merge accumulators of {len(self)} and {len(other)} sums")
        target = np.maximum(self.levels, other.levels)
        self._raise_to(target)
        words = self.words
        words += _raised(other.words, other.levels, target)
        # Keep the low words short, so that any number of merges stays within 64 bits.
        words[..., 0] += words[..., 1] >> LOW_BITS
        words[..., 1] &= (1 << LOW_BITS) - 1
        self.state[0] += other.state[0]
        self.state[1] = min(self.state[1], other.state[1])

    def _raise_to(self, target: Integers) -> None:
        if (target != self.levels).any():
            self.words[:] = _raised(self.words, self.levels, target)
            self.levels[:] = target

    def add_rows(self, rows: Array, first_event: int) -> None:
        """Add every value of every event exactly; rows have shape (n, events).

        An event with any value that is not below `LIMIT` in modulus is left out whole and recorded.
        """
        good = self._record_bad(rows, first_event, LIMIT)
        self._fold(rows if good is None else rows[:, good])

    def add_ones(self, events: int) -> None:
        """Add 1 for every event to each sum."""
        if not events:
            return
        ones = Accumulator(self.size)
        ones._fold(np.ones((self.size, 1)))
        ones.words[...] *= events
        ones.state[0] = events
        self.merge(ones)

    def add_tiles(self, rows: Array, first_event: int) -> None:
        """Add the lane sums of tiles; the first event begins a tile.

        Bad events as in `add_rows`, with `TILE_LIMIT`. This is what compiled reductions do, in
        NumPy.
        """
        good = self._record_bad(rows, first_event, TILE_LIMIT)
        self._fold(lane_sums(rows if good is None else np.where(good, rows, 0.0)))

    def _record_bad(
        self, rows: Array, first_event: int, limit: float
    ) -> npt.NDArray[np.bool_] | None:
        """Count events; the mask of good ones if there are others."""
        with np.errstate(invalid="ignore"):
            good = np.all(np.abs(rows) < limit, axis=0)
        self.state[0] += int(good.sum())
        if good.all():
            return None
        bad = first_event + int(np.argmin(good))
        self.state[1] = min(int(self.state[1]), bad)
        return np.asarray(good, dtype=np.bool_)

    def _fold(self, rows: Array) -> None:
        """Add finite values, shape (n, values), digit by digit."""
        if rows.shape[1] == 0:
            return
        largest = np.abs(rows).max(axis=1)
        needed = LEVEL_MIN + np.searchsorted(LEVEL_LIMIT, largest, side="right")
        self._raise_to(np.maximum(self.levels, needed))
        levels, words = self.levels, self.words
        for j in range(len(self)):
            rest = rows[j]
            for k in range(FOLDS):
                index = int(levels[j]) - k - LEVEL_MIN + FOLDS - 1
                digits = (rest + MAGIC[index]) - MAGIC[index]
                rest = rest - digits
                u0, u1 = INVERSE_UNIT[index]
                total = int((digits * u0 * u1).astype(np.int64).sum())
                words[j, k, 0] += total >> LOW_BITS
                words[j, k, 1] += total & ((1 << LOW_BITS) - 1)

    def round(self) -> list[float]:
        """The sums, each rounded once to the nearest double; +0 for a sum of zero."""
        numbers, step = self.state.tolist(), 2 * FOLDS
        first = _META + self.size
        return [
            _rounded(numbers[_META + j], numbers[first + j * step : first + (j + 1) * step])
            for j in range(self.size)
        ]

    def exact(self, row: int) -> Exact:
        """One of the sums, not rounded."""
        words = self.words[row].ravel().tolist()
        return Exact(_integer(words), _exponent(self.levels.item(row)))

    def __eq__(self, other: object) -> bool:
        """Equality of the states as integers."""
        if not isinstance(other, Accumulator) or len(self) != len(other):
            return NotImplemented
        return self._integers() == other._integers()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def _integers(self) -> tuple[object, ...]:
        flat = self.words.reshape(-1, 2).tolist()
        sums = tuple((high << LOW_BITS) + low for high, low in flat)
        return (tuple(self.levels.tolist()), sums, tuple(self.meta.tolist()))

    def to_bytes(self) -> bytes:
        """Fixed-size little-endian record: size, meta, levels, words."""
        return struct.pack("<q", len(self)) + self.state.astype("<i8").tobytes()

    @staticmethod
    def record_bytes(size: int) -> int:
        """Length of the record of `size` sums."""
        return 8 * (1 + _META + size * (1 + 2 * FOLDS))

    @classmethod
    def from_bytes(cls, record: bytes) -> Accumulator:
        """Inverse of `to_bytes`."""
        numbers = np.frombuffer(record, dtype="<i8")
        size = int(numbers[0])
        if len(record) != cls.record_bytes(size):
            raise LadduError(f"accumulator record of {len(record)} bytes does not hold {size} sums")
        self = cls(size)
        self.state[:] = numbers[1:]
        return self


def _integer(words: list[int]) -> int:
    """Digits, (high, low) words from the top bin down, in units of the lowest bin."""
    total = 0
    for k in range(0, 2 * FOLDS, 2):
        total = (total << BIN_BITS) + (words[k] << LOW_BITS) + words[k + 1]
    return total


def _exponent(level: int) -> int:
    """Of two, in the unit of the lowest bin of a level."""
    return BIN_BITS * (level - FOLDS + 1)


def _rounded(level: int, words: list[int]) -> float:
    """A sum of digits, (high, low) words from the top bin down, rounded once."""
    total, exponent = _integer(words), _exponent(level)
    try:
        # All round once: integers do, to the nearest double, in division too; and a power of two
        # changes no digit of a number that stays far above the smallest ones.
        if exponent > -900:
            return math.ldexp(total, exponent)
        return total / (1 << -exponent)
    except OverflowError:
        return math.copysign(math.inf, total)


def lane_sums(rows: Array) -> Array:
    """Lane sums of tiles and their rounding errors, in the order of the compiled loop.

    Shape (n, tiles * 2 LANES); the errors are zero behind the first `COMPENSATED` rows.
    """
    n, events = rows.shape
    tiles = -(-events // TILE)
    padded = np.zeros((n, tiles * TILE))
    padded[:, :events] = rows
    steps = padded.reshape(n, tiles, TILE // LANES, LANES)
    result = np.zeros((n, tiles, 2, LANES))
    sums, errors = result[:, :, 0], result[:COMPENSATED, :, 1]
    for step in range(TILE // LANES):
        x, total = steps[:, :, step], sums[:COMPENSATED].copy()
        sums += x
        new, part = sums[:COMPENSATED], sums[:COMPENSATED] - total
        errors += (total - (new - part)) + (x[:COMPENSATED] - part)
    return result.reshape(n, tiles * 2 * LANES)


def _raised(words: Integers, levels: Integers, target: Integers) -> Integers:
    """Words at higher levels: low bins are dropped, empty ones come in on top."""
    if (levels == target).all():
        return words
    result = np.zeros_like(words)
    for j, shift in enumerate((target - levels).tolist()):
        if shift < FOLDS:
            result[j, shift:] = words[j, : FOLDS - shift]
    return result
