"""Footprints (fixed bytes plus bytes per event) and the rules that fit chunks into a budget."""

from __future__ import annotations

from dataclasses import dataclass

from laddu_dask.errors import MemoryBudgetError
from laddu_dask.memory.sizes import MAX_BYTES, bytes_of, exact_bytes, saturate, whole_number


@dataclass(frozen=True)
class Footprint:
    """Bytes that some work needs: `fixed_bytes + events * bytes_per_event`.

    Arithmetic saturates at 2**64 - 1, which no budget reaches; with `checked=True` it raises
    `MemoryBudgetError` instead, naming the operation.
    """

    fixed_bytes: int
    bytes_per_event: int

    def __post_init__(self) -> None:
        for name in ("fixed_bytes", "bytes_per_event"):
            number = whole_number(getattr(self, name), name)
            object.__setattr__(self, name, saturate(number))

    def plus(self, other: Footprint, *, checked: bool = False) -> Footprint:
        """Return the footprint of both together."""
        return Footprint(
            _limited(self.fixed_bytes + other.fixed_bytes, checked, "addition"),
            _limited(self.bytes_per_event + other.bytes_per_event, checked, "addition"),
        )

    def times(self, factor: int, *, checked: bool = False) -> Footprint:
        """Return the footprint of `factor` copies."""
        copies = whole_number(factor, "the number of copies")
        return Footprint(
            _limited(self.fixed_bytes * copies, checked, "multiplication"),
            _limited(self.bytes_per_event * copies, checked, "multiplication"),
        )

    def peak(self, events: int, *, checked: bool = False) -> int:
        """Return the bytes needed for `events` events at once."""
        return _limited(self.fixed_bytes + self.bytes_per_event * events, checked, "peak")


@dataclass(frozen=True)
class Fit:
    """A chunk that fits: how many events at a time, under which footprint, with which peak."""

    label: str
    fixed_bytes: int
    bytes_per_event: int
    chunk_events: int
    peak_bytes: int


def events_that_fit(footprint: Footprint, available: int, limit: int) -> int:
    """Return the most events, at most `limit`, whose peak stays within `available`; may be 0."""
    room = available - footprint.fixed_bytes
    return max(min(room // max(footprint.bytes_per_event, 1), limit), 0)


def fit_chunk(label: str, footprint: Footprint, available: int, limit: int) -> Fit:
    """Fit the largest chunk of at most `limit` events into `available` bytes.

    Events cost at least one byte each, so that a chunk is always finite. A `limit` of 0 (no
    events) succeeds with a chunk of 0, even where the fixed part alone exceeds the budget.

    Raises
    ------
    MemoryBudgetError
        If not even one event fits; `requested` is the peak of one event.
    """
    priced = Footprint(footprint.fixed_bytes, max(footprint.bytes_per_event, 1))
    chunk = events_that_fit(priced, available, limit)
    if chunk == 0 and limit > 0:
        raise over_budget(label, priced.peak(1), available)
    return Fit(label, priced.fixed_bytes, priced.bytes_per_event, chunk, priced.peak(chunk))


def fit_resident(label: str, footprint: Footprint, available: int, events: int, chunk: int) -> Fit:
    """Fit all `events` events at once, to be filled `chunk` events at a time.

    Raises
    ------
    MemoryBudgetError
        If the peak of all events exceeds `available`; `requested` is that peak.
    """
    peak = footprint.peak(events)
    if peak > available:
        raise over_budget(label, peak, available)
    return Fit(label, footprint.fixed_bytes, footprint.bytes_per_event, chunk, peak)


def over_budget(
    label: str,
    requested: int,
    remaining: int,
    *,
    resource: str = "host",
    doing: str = "holding it",
    cure: str = "raise the memory budget",
) -> MemoryBudgetError:
    """Return the error for work that needs more bytes than remain."""
    return MemoryBudgetError(
        f"{label}: {doing} needs {exact_bytes(requested)} {bytes_of(resource)}, "
        f"{exact_bytes(remaining)} remain; {cure}",
        resource=resource,
        label=label,
        requested=requested,
        remaining=remaining,
    )


def _limited(value: int, checked: bool, operation: str) -> int:
    if checked and value > MAX_BYTES:
        raise MemoryBudgetError(
            f"the {operation} of footprints gives {value} bytes, more than 2**64 - 1; "
            "process fewer events or smaller chunks",
            resource="footprint",
            requested=value,
            remaining=MAX_BYTES,
            operation=operation,
        )
    return saturate(value)
