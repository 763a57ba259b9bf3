"""The planner: from sizes and a budget to storage and chunk size, before anything is allocated.

Pure functions of numbers. What a data set costs, with k tasks in flight in the process:

========== ================================================== =================================
storage    kept between passes                                transient of a pass over c at a time
========== ================================================== =================================
resident   cache * events + fixed * chunks                    2 k * source * c + k * scratch * c
spilled    nothing in memory, cache * events on disk          the same + k * (fixed + cache * c)
streaming  nothing                                            the same + k * (fixed + cache * c)
========== ================================================== =================================

Each task holds the source columns of a chunk and those of one that is being read ahead. Passes over
the data sets of a likelihood run one after the other in one process, so transients do not add up:
the peak is everything kept plus the largest transient. What is kept is reserved first, and chunks
are fitted into the rest. A data set may be cut into partitions that are stored differently.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal, TypeAlias, get_args

from laddu_dask.errors import ExecutionError, MemoryBudgetError
from laddu_dask.memory.decision import Decision, Strategy
from laddu_dask.memory.footprint import Footprint, over_budget
from laddu_dask.memory.residency import Load, largest_chunks, least_budget
from laddu_dask.memory.sizes import MAX_BYTES, format_bytes, saturate, whole_number
from laddu_dask.memory.spill_place import SpillPlace

Policy: TypeAlias = Literal["fastest", "resident", "spilled", "streaming"]

COMFORTABLE_TILES: Final = 16
"""Smaller streamed chunks spend their time on overhead, so no other data set may cause them."""


@dataclass(frozen=True)
class DatasetRequest:
    """Sizes of one data set, as the planner needs them.

    Attributes
    ----------
    label
        Names the data set in decisions and errors, such as "signal/data".
    events
        Number of events in this process, known by metadata or by counting.
    cache_bytes_per_event
        Prepared (cached) columns.
    source_bytes_per_event
        Columns as read, once; the planner adds the read-ahead.
    fixed_bytes
        Overhead of one prepared chunk, whatever its size.
    transient_bytes_per_event
        Scratch memory of a task while it works on a chunk.
    tasks_in_flight
        Chunks processed at the same time in this process.
    minimum_chunk
        Fewest events worth a chunk; the planner fails rather than go below.
    tile_events
        Events of a kernel tile. A chunk is a whole number of tiles (rounded down, at least one),
        unless all events fit in one chunk.
    longest_chunk
        Most events worth a chunk, whatever memory there is.
    fragments
        Separately read pieces (row groups); chunks do not span them, so each piece after the
        first may add one partly filled chunk.
    partitions
        Equal parts of which each may be stored in its own way.
    """

    label: str
    events: int
    cache_bytes_per_event: int
    source_bytes_per_event: int
    fixed_bytes: int = 0
    transient_bytes_per_event: int = 0
    tasks_in_flight: int = 1
    minimum_chunk: int = 1
    tile_events: int = 1
    longest_chunk: int = 2**62
    fragments: int = 1
    partitions: int = 1

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            least = 0 if "bytes" in field.name or field.name == "events" else 1
            what = f"{field.name} of {self.label}"
            # Plain ints: NumPy's would overflow.
            number = whole_number(getattr(self, field.name), what, least=least)
            object.__setattr__(self, field.name, number)

    @property
    def smallest_chunk(self) -> int:
        """Fewest events that a chunk may hold."""
        tiles = -(-self.minimum_chunk // self.tile_events)
        return min(tiles * self.tile_events, self.events)

    def largest_chunk(self, user_chunk: int | None) -> int:
        """Most events that a chunk may hold; a user's wish shrinks it, but not below the floor."""
        most = self.longest_chunk if user_chunk is None else min(user_chunk, self.longest_chunk)
        if most >= self.events:
            return self.events
        return max(most - most % self.tile_events, self.smallest_chunk)

    def events_of(self, partitions: int) -> int:
        """Events in the first so many partitions."""
        return self.events * partitions // self.partitions

    def load(self, *, resident: int, user_chunk: int | None) -> Load:
        """Price this data set with `resident` partitions kept (table at the top of the file)."""
        tasks = self.tasks_in_flight
        per_event = 2 * tasks * self.source_bytes_per_event
        per_event += tasks * self.transient_bytes_per_event
        kept = kept_per_chunk = 0
        if resident:
            kept = self.cache_bytes_per_event * self.events_of(resident)
            kept += self.fixed_bytes * (self.fragments - 1)
            kept_per_chunk = self.fixed_bytes
        if resident == self.partitions:
            transient = Footprint(0, per_event)
        else:
            per_event += tasks * self.cache_bytes_per_event
            transient = Footprint(tasks * self.fixed_bytes, per_event)
        return Load(
            events=self.events,
            kept=kept,
            kept_per_chunk=kept_per_chunk,
            transient=transient,
            smallest=self.smallest_chunk,
            largest=self.largest_chunk(user_chunk),
            tile=self.tile_events,
        )


def plan_dataset(
    request: DatasetRequest,
    available: int,
    policy: Policy = "fastest",
    user_chunk: int | None = None,
    *,
    resource: str = "host",
    disk: int = 0,
) -> Decision:
    """Plan one data set; see `plan_datasets`."""
    return plan_datasets((request,), available, policy, user_chunk, resource=resource, disk=disk)[0]


def plan_datasets(
    requests: Sequence[DatasetRequest],
    available: int,
    policy: Policy = "fastest",
    user_chunk: int | None = None,
    *,
    resource: str = "host",
    disk: int = 0,
    place: SpillPlace | None = None,
) -> tuple[Decision, ...]:
    """Plan data sets that one process passes over in turn, within one budget.

    Parameters
    ----------
    requests
        The data sets.
    available
        Bytes for everything together.
    policy
        "resident", "spilled" and "streaming" apply to all. "fastest" keeps all resident if they
        fit. Otherwise it goes through the data sets by the source bytes that a pass would read
        again, most first, equal ones in request order, and keeps as many partitions of each as
        the plan still has room for, provided that every other data set still gets chunks of
        `COMFORTABLE_TILES` tiles. So it never reads more than streaming everything would. In the
        same order it spills as many of the partitions that are left as the disk has room for.
    user_chunk
        Most events in a chunk; can only shrink what is planned, and not below one tile.
    resource
        Name of the memory in errors.
    disk
        Bytes on disk for everything together.
    place
        The folder there, for errors.

    Returns
    -------
    tuple of Decision
        In request order. The sum of `resident_bytes` plus the largest `transient_bytes` is at most
        `available`.

    Raises
    ------
    MemoryBudgetError
        If the smallest chunks do not fit; `label`, `requested` (the bytes with which they would)
        and `remaining` say what is missing.
    ExecutionError
        If the policy is unknown or the user's chunk is below 1.
    """
    if policy not in get_args(Policy):
        raise ExecutionError(
            f"storage={policy!r} is unknown to the memory planner; choose one of "
            f"{', '.join(get_args(Policy))}",
            option="storage",
        )
    if user_chunk is not None and operator.index(user_chunk) < 1:
        raise ExecutionError(
            f"chunk_events={user_chunk!r} is not a chunk size; give at least 1, or None "
            "to let the planner choose",
            option="chunk_events",
        )
    bytes_to_plan = saturate(whole_number(available, "the memory available for data sets"))
    room = whole_number(disk, "the disk available for data sets")
    problem = _Problem(
        [r for r in requests if r.events],
        bytes_to_plan,
        user_chunk,
        resource,
        room,
        place or SpillPlace(),
    )
    planned = iter(problem.solve(policy))
    return tuple(
        next(planned) if request.events else _empty(request, bytes_to_plan, policy)
        for request in requests
    )


@dataclass(frozen=True)
class _Problem:
    """Data sets with events, and the budgets for them."""

    requests: list[DatasetRequest]
    available: int
    user_chunk: int | None
    resource: str
    disk: int
    place: SpillPlace

    def loads(self, resident: Sequence[int]) -> list[Load]:
        """Price all data sets with so many partitions of each kept."""
        return [
            request.load(resident=partitions, user_chunk=self.user_chunk)
            for request, partitions in zip(self.requests, resident, strict=True)
        ]

    @property
    def everything(self) -> list[int]:
        return [request.partitions for request in self.requests]

    @property
    def nothing(self) -> list[int]:
        return [0 for _ in self.requests]

    @property
    def by_reading(self) -> list[int]:
        """Numbers of the data sets, those of which a pass would read most again first."""
        reread = [request.events * request.source_bytes_per_event for request in self.requests]
        return sorted(range(len(reread)), key=lambda number: (-reread[number], number))

    def solve(self, policy: Policy) -> list[Decision]:
        if policy == "resident":
            resident = self.everything
        elif policy == "fastest":
            resident = self.fastest()
        else:
            resident = self.nothing
        spilled = self.nothing
        if policy in ("fastest", "spilled"):
            spilled = self.spilled(resident)
            if policy == "spilled" and spilled != self.everything:
                raise self.disk_error()
        loads = self.loads(resident)
        chunks = largest_chunks(loads, self.available)
        if chunks is None:
            raise self.resident_error(loads) if policy == "resident" else self.streaming_error()
        kept = [load.kept_with(chunk) for load, chunk in zip(loads, chunks, strict=True)]
        return [
            self.decision(number, resident[number], spilled[number], load, chunk, sum(kept), policy)
            for number, (load, chunk) in enumerate(zip(loads, chunks, strict=True))
        ]

    def fastest(self) -> list[int]:
        """Choose how many partitions of each to keep; the rule is in `plan_datasets`."""
        if largest_chunks(self.loads(self.everything), self.available) is not None:
            return self.everything
        # With several tasks in flight a small data set can cost more streamed than kept whole.
        resident = [
            request.partitions if load.least_transient() > self.available else 0
            for request, load in zip(self.requests, self.loads(self.nothing), strict=True)
        ]
        for number in self.by_reading:
            if not resident[number]:
                resident[number] = self.most_kept(number, resident)
        return resident

    def most_kept(self, number: int, resident: Sequence[int]) -> int:
        """The most partitions of a data set that can be kept beside the others."""

        def fits(partitions: int) -> bool:
            wanted = [*resident]
            wanted[number] = partitions
            return self.is_comfortable(wanted)

        everything = self.requests[number].partitions
        if fits(everything):  # may need less in passing than all but one
            return everything
        return bisect_left(range(1, everything), True, key=lambda kept: not fits(kept))

    def is_comfortable(self, resident: Sequence[int]) -> bool:
        """Whether this choice fits and leaves the other data sets chunks of a decent size."""
        chunks = largest_chunks(self.loads(resident), self.available)
        return chunks is not None and all(
            kept == request.partitions
            or chunk >= min(COMFORTABLE_TILES * request.tile_events, request.events)
            for kept, request, chunk in zip(resident, self.requests, chunks, strict=True)
        )

    def spilled(self, resident: Sequence[int]) -> list[int]:
        """How many of the other partitions of each go to disk."""
        spilled, room = self.nothing, self.disk
        for number in self.by_reading:
            request = self.requests[number]
            left = request.partitions - resident[number]
            each = -(-request.events // request.partitions) * request.cache_bytes_per_event
            spilled[number] = left if not each else min(left, room // each)
            room -= spilled[number] * each
        return spilled

    def decision(
        self,
        number: int,
        resident: int,
        spilled: int,
        load: Load,
        chunk: int,
        kept: int,
        policy: Policy,
    ) -> Decision:
        request, own = self.requests[number], load.kept_with(chunk)
        per_event = max(load.transient.bytes_per_event, 1)
        resident_events = request.events_of(resident)
        spilled_events = request.events_of(resident + spilled) - resident_events
        return Decision(
            label=request.label,
            strategy=_strategy(resident, spilled, request.partitions),
            events=load.events,
            chunk_events=chunk,
            resident_bytes=own,
            peak_bytes=own + load.transient.fixed_bytes + per_event * chunk,
            available_bytes=self.available - (kept - own),
            reason=self.reason(number, resident, spilled, policy)
            + self.chunk_note(number, chunk, load),
            fixed_bytes=load.transient.fixed_bytes,
            bytes_per_event=per_event,
            resident_events=resident_events,
            spilled_events=spilled_events,
            spilled_bytes=spilled_events * request.cache_bytes_per_event,
        )

    def reason(self, number: int, resident: int, spilled: int, policy: Policy) -> str:
        if policy != "fastest":
            return f"{policy} storage was asked for and fits"
        request = self.requests[number]
        left = request.partitions - resident - spilled
        if resident == request.partitions:
            return "its prepared columns fit in memory, so every pass reuses them"
        if resident:
            kept = f"{resident} of {request.partitions} partitions fit in memory"
            spill = f", {spilled} are kept on disk" if spilled else ""
            return kept + spill + (f", every pass reads {left} again" if left else "")
        then = "every pass reads it again"
        if spilled:
            then = "it is kept on disk"
            if left:
                then = f"{spilled} of {request.partitions} partitions are kept on disk and every "
                then += "pass reads the others again"
        alone = least_budget(
            [request.load(resident=request.partitions, user_chunk=self.user_chunk)]
        )
        if alone > self.available:
            return (
                f"keeping it resident takes at least {format_bytes(saturate(alone))}, more than "
                f"the budget, so {then}"
            )
        return f"beside the other data sets no room is left to keep it, so {then}"

    def chunk_note(self, number: int, chunk: int, load: Load) -> str:
        wish, longest = self.user_chunk, self.requests[number].longest_chunk
        if wish is None or wish >= min(load.events, longest) or chunk < load.largest:
            return ""
        if chunk > wish:
            return f"; a chunk has at least {chunk} events, more than the {wish} asked for"
        return f"; chunks are limited to {wish} events as asked"

    def streaming_error(self) -> MemoryBudgetError:
        """Name the data set whose smallest streamed chunk needs the most."""
        needs = [load.least_transient() for load in self.loads(self.nothing)]
        request = self.requests[needs.index(max(needs))]
        return over_budget(
            request.label,
            saturate(max(needs)),
            self.available,
            resource=self.resource,
            doing=f"streaming it in the smallest chunks ({request.smallest_chunk} events, "
            f"tasks in flight: {request.tasks_in_flight})",
            cure="raise the memory budget, or run fewer threads or worker processes per machine",
        )

    def disk_error(self) -> MemoryBudgetError:
        """Name what the disk has no room for: the largest."""
        needs = [request.events * request.cache_bytes_per_event for request in self.requests]
        return over_budget(
            self.requests[needs.index(max(needs))].label,
            saturate(sum(needs)),
            self.disk,
            resource="disk",
            doing="spilling it and the other data sets" if len(needs) > 1 else "spilling it",
            cure=self.place.cure(saturate(sum(needs))),
        )

    def resident_error(self, loads: list[Load]) -> MemoryBudgetError:
        """Name what cannot be kept: the first data set too large alone, else all together."""
        alone = [least_budget([load]) for load in loads]
        culprits = [number for number, need in enumerate(alone) if need > self.available]
        chosen = culprits[:1] or list(range(len(loads)))
        need = least_budget([loads[number] for number in chosen])
        several = len(chosen) > 1
        wish = "" if self.user_chunk is None else "allow larger chunks (chunk_events), "
        return over_budget(
            ", ".join(self.requests[number].label for number in chosen),
            saturate(need),
            self.available,
            resource=self.resource,
            doing="keeping them resident together" if several else "keeping it resident",
            cure=f'raise the memory budget, {wish}choose storage="fastest" or "streaming", or '
            "spread the events over more workers",
        )


def _strategy(resident: int, spilled: int, partitions: int) -> Strategy:
    if partitions == resident:
        return "resident"
    if partitions == spilled:
        return "spilled"
    return "mixed" if resident or spilled else "streaming"


def _empty(request: DatasetRequest, available: int, policy: Policy) -> Decision:
    """Decide for a data set without events, which needs no memory under any policy."""
    return Decision(
        label=request.label,
        strategy="streaming" if policy == "streaming" else "resident",
        events=0,
        chunk_events=1,
        resident_bytes=0,
        peak_bytes=0,
        available_bytes=min(available, MAX_BYTES),
        reason="it has no events, so nothing is held",
    )
