"""The largest chunks with which several data sets fit into one budget together.

Each data set of a likelihood is a `Load`: bytes it keeps (some for every chunk), and bytes that a
pass over it needs in passing. Passes run one after the other in a process, so

    peak = sum of kept bytes + largest transient.

Larger chunks keep less (fewer of them) and need more in passing. Let T be the bytes left for a
pass. The chunk of each data set, the largest that T allows, fixes its number of chunks, hence what
is kept, hence how much is really left for a pass: T -> available - kept(T). That map rises with T.
Iterating it from the top therefore falls monotonically onto its greatest fixed point, which has
the largest possible chunk for every data set at once, and meets no fixed point exactly if nothing
fits. Every round adds at least one chunk and takes at least one tile off the chunk size of some
data set, so for n data sets of E events there are a few times n E**(1/4) rounds, in practice two
to four. No limit on the number of rounds is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laddu_dask.memory.footprint import Footprint, events_that_fit
from laddu_dask.memory.sizes import MAX_BYTES


@dataclass(frozen=True)
class Load:
    """One data set, under one storage strategy, in bytes and events.

    Attributes
    ----------
    events
        At least 1.
    kept, kept_per_chunk
        What stays between passes: `kept + kept_per_chunk * ceil(events / chunk)`.
    transient
        What a pass needs besides, as a function of the chunk.
    smallest, largest, tile
        Bounds of the chunk in events, `smallest <= largest <= events`; a chunk below `largest` is
        a multiple of `tile`.
    """

    events: int
    kept: int
    kept_per_chunk: int
    transient: Footprint
    smallest: int
    largest: int
    tile: int = 1

    def chunk_within(self, room: int) -> int:
        """Return the largest chunk whose transient is at most `room` bytes; 0 if none is."""
        chunk = events_that_fit(self.transient, room, self.largest)
        if chunk < self.largest:
            chunk -= chunk % self.tile
        return chunk if chunk >= self.smallest else 0

    def kept_with(self, chunk: int) -> int:
        """Return the bytes that stay between passes."""
        return self.kept + self.kept_per_chunk * -(-self.events // chunk)

    def least_transient(self) -> int:
        """Return the transient of the smallest chunk."""
        return self.transient.fixed_bytes + max(self.transient.bytes_per_event, 1) * self.smallest


def largest_chunks(loads: Sequence[Load], available: int) -> tuple[int, ...] | None:
    """Return the largest chunk of every data set such that all fit into `available` bytes.

    `None` if they do not fit with any chunks. See the top of the file for the method.
    """
    chunks = [load.largest for load in loads]
    while True:
        kept = sum(load.kept_with(chunk) for load, chunk in zip(loads, chunks, strict=True))
        allowed = [load.chunk_within(available - kept) for load in loads]
        if 0 in allowed:
            return None
        if allowed == chunks:
            return tuple(chunks)
        chunks = allowed


def least_budget(loads: Sequence[Load]) -> int:
    """Return the smallest budget in which the data sets fit together."""
    low = 0
    high = sum(load.kept_with(load.smallest) for load in loads)
    high += max((load.least_transient() for load in loads), default=0)
    while low < high:
        middle = (low + high) // 2
        if largest_chunks(loads, middle) is None:
            low = middle + 1
        else:
            high = middle
    return low


def resident_cache_plan(
    fixed_per_chunk: int,
    cache_per_event: int,
    source_per_event: int,
    events: int,
    available: int,
) -> tuple[int, int] | None:
    """Plan one resident data set.

    Parameters
    ----------
    fixed_per_chunk, cache_per_event
        Bytes that prepared columns keep for each chunk and each event.
    source_per_event
        Bytes per event of source columns in flight while preparing, read-ahead included.
    events, available
        Events in all; budget in bytes.

    Returns
    -------
    tuple of int, or None
        `(resident bytes, chunk events)` with the largest chunk for which
        `resident + source * chunk <= available`, `resident = cache * events + fixed *
        ceil(events / chunk)`; `None` if no chunk fits. Without events `(fixed_per_chunk, 1)`.
    """
    if events == 0:
        return fixed_per_chunk, 1
    load = Load(
        events=events,
        kept=cache_per_event * events,
        kept_per_chunk=fixed_per_chunk,
        transient=Footprint(0, source_per_event),
        smallest=1,
        largest=events,
    )
    chunks = largest_chunks([load], min(available, MAX_BYTES))
    return None if chunks is None else (load.kept_with(chunks[0]), chunks[0])
