"""How the data sets of a session are cut, dealt out and kept, decided before an event is read.

Processes that are alike, such as most workers of a cluster, are planned for once, as a group.
Groups differ: one with little memory gets fewer partitions and may stream some of them while
another keeps all of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import cycle

from laddu_dask.compiler import EventPrograms
from laddu_dask.compiler.precision import BYTES
from laddu_dask.data import ArrayFragment, Dataset
from laddu_dask.errors import MemoryBudgetError
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.memory import DatasetRequest, Decision, Storage, plan_datasets
from laddu_dask.memory.shares import apportion, deal, fair_shares
from laddu_dask.memory.sizes import exact_bytes
from laddu_dask.runtime.capacity import Capacity, Group
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.partitions import Partition, partition_dataset

#: Smaller partitions cost more in dispatch than they gain in balance.
SMALLEST_PARTITION = 16384
#: Partitions per thread: enough to even out threads of different speed. A single thread has none to
#: wait for.
PARTITIONS_PER_THREAD = 2
#: The same where not everything fits in memory: the smaller they are, the more of them do.
PARTITIONS_PER_THREAD_MIXED = 16
#: To begin a chunk takes a decoder 20 us a column, and all else a tenth of a millisecond: an event
#: of two columns took 24 ns in a streaming pass with chunks of 16 tiles, 13 ns with the longest.
#: Longer ones save no time. Nor do those with many columns from some bytes on, and the next chunk
#: is in memory beside the one in use.
LONGEST_CHUNK, SHORTEST_CHUNK = 128 * TILE, 16 * TILE
CHUNK_BYTES = 1 << 24
#: A long chunk takes at most such a share of a thread's memory. Allocators keep for a while what
#: one thread asked for and another gave back, more of it in larger pieces: passes with a budget of
#: 12 MiB took 35 MiB in chunks of 16 tiles, and 70 MiB in chunks of 20.
CHUNK_SHARE = 32
#: Bookkeeping of one prepared chunk.
FIXED_BYTES = 1024


@dataclass(frozen=True)
class Pass:
    """One data set and the programs that run over it.

    Attributes
    ----------
    label
        Names the pass in plans and errors, for example ``signal/data``.
    dataset
        The events.
    programs
        The event programs.
    """

    label: str
    dataset: Dataset
    programs: EventPrograms


@dataclass(frozen=True)
class GroupPlan:
    """What is planned for each process of a group.

    Attributes
    ----------
    group
        The processes.
    decisions
        One per pass, for the process with the largest share.
    """

    group: Group
    decisions: tuple[Decision, ...]

    @property
    def is_resident(self) -> bool:
        """Whether everything stays in memory."""
        return all(d.resident_events == d.events for d in self.decisions)

    @property
    def resident_bytes(self) -> int:
        """Bytes that stay in memory between passes."""
        return sum(d.resident_bytes for d in self.decisions)

    @property
    def spilled_bytes(self) -> int:
        """Bytes that stay on disk."""
        return sum(d.spilled_bytes for d in self.decisions)

    @property
    def transient_bytes(self) -> int:
        """Bytes needed beside these while events are prepared."""
        return max((d.transient_bytes for d in self.decisions), default=0)


@dataclass(frozen=True)
class SessionPlan:
    """Everything that is decided before a session begins.

    Attributes
    ----------
    partitions
        The partitions of each pass.
    groups
        The plan of each group of processes.
    receivers
        Group of each partition of each pass.
    """

    partitions: tuple[tuple[Partition, ...], ...]
    groups: tuple[GroupPlan, ...]
    receivers: tuple[tuple[int, ...], ...]

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """One per pass: that of the group with the most events of it in one process.

        Its strategy is "mixed" where groups keep the pass in different ways, and its chunks are
        those of all groups.
        """
        return tuple(self._decision(index) for index in range(len(self.partitions)))

    def _decision(self, index: int) -> Decision:
        own = [plan.decisions[index] for plan in self.groups]
        largest = max(own, key=lambda decision: decision.events)
        strategies = {decision.strategy for decision in own if decision.events}
        told = largest if len(strategies) < 2 else replace(largest, strategy="mixed")
        shorter = largest.chunk_events - self.chunk_events(index)
        return replace(
            told,
            chunk_events=told.chunk_events - shorter,
            peak_bytes=told.peak_bytes - shorter * told.bytes_per_event,
        )

    def chunk_events(self, index: int) -> int:
        """Most events of a pass that are prepared at once: one number for all groups."""
        own = [plan.decisions[index] for plan in self.groups]
        return min((d.chunk_events for d in own if d.events), default=1)

    @property
    def is_resident(self) -> bool:
        """Whether everything stays in memory everywhere."""
        return all(plan.is_resident for plan in self.groups)

    def tiers(self, index: int) -> list[Storage]:
        """The planned storage of each partition of a pass."""
        partitions, receivers = self.partitions[index], self.receivers[index]
        planned: list[Storage] = ["streaming"] * len(partitions)
        for number, plan in enumerate(self.groups):
            mine = [p for p, receiver in enumerate(receivers) if receiver == number]
            sizes = [partitions[p].events for p in mine]
            for p, tier in zip(mine, plan.decisions[index].tiers(sizes), strict=True):
                planned[p] = tier
        return planned

    def wishes(self) -> list[str] | None:
        """The process that each partition is meant for, pass after pass; None if all are alike."""
        if len(self.groups) < 2:
            return None
        turns = [cycle(plan.group.turns) for plan in self.groups]
        return [next(turns[receiver]) for own in self.receivers for receiver in own]


def plan_session(
    passes: Sequence[Pass], execution: Execution, capacity: Capacity, *, mixed: bool = False
) -> SessionPlan:
    """Cut, deal out and plan.

    Parameters
    ----------
    passes
        What is evaluated.
    execution
        The user's wishes.
    capacity
        The processes.
    mixed
        Cut more finely, because not everything fits in memory.

    Raises
    ------
    MemoryBudgetError
        The budget of a process is too small for the smallest chunk, or for the storage that was
        asked for; `worker` says which, if it is one.
    """
    partitions = tuple(
        partition_dataset(
            item.dataset,
            _partition_count(item.dataset, execution, capacity.total_threads, mixed=mixed),
            execution.partitioning,
        )
        for item in passes
    )
    groups = capacity.groups
    shares = _shares(passes, partitions, execution, groups)
    counts = [apportion(len(own), shares) for own in partitions]
    plans = []
    for number, group in enumerate(groups):
        requests = []
        for item, own, count in zip(passes, partitions, counts, strict=True):
            most = -(-count[number] // group.processes)
            sizes = sorted((partition.events for partition in own), reverse=True)[:most]
            requests.append(_request(item, sizes, group.threads, group.budget))
        plan = GroupPlan(group, _decide(requests, group, execution))
        left = _beside_arrays(passes, group)
        if left != group:
            plan = GroupPlan(left, _decide(requests, left, execution))
        plans.append(plan)
    receivers = tuple(tuple(deal(count)) for count in counts)
    return SessionPlan(partitions, tuple(plans), receivers)


def _beside_arrays(passes: Sequence[Pass], group: Group) -> Group:
    """What a budget leaves beside events that are arrays of the client: each worker gets them all.

    Raises
    ------
    MemoryBudgetError
        Nothing.
    """
    name = group.turns[0]
    arrays = [
        fragment
        for item in passes
        for fragment in item.dataset.fragments
        if isinstance(fragment, ArrayFragment)
    ]
    if not name or not arrays:
        return group
    travels = sum(
        fragment.values.nbytes + (0 if fragment.weights is None else fragment.weights.nbytes)
        for fragment in arrays
    )
    if travels >= group.budget:
        raise MemoryBudgetError(
            f"{', '.join(item.label for item in passes)}: the events are arrays of this process, "
            f"so each worker gets {exact_bytes(travels)} of them, and {exact_bytes(group.budget)} "
            f"remain on worker {name}; write them to Parquet files that the workers can read, or "
            "raise the memory budget",
            resource="host",
            worker=name,
            requested=travels,
            remaining=group.budget,
        )
    return replace(group, budget=group.budget - travels)


def _decide(
    requests: Sequence[DatasetRequest], group: Group, execution: Execution
) -> tuple[Decision, ...]:
    try:
        return plan_datasets(
            requests,
            group.budget,
            execution.storage,
            execution.chunk_events,
            disk=group.disk,
            place=group.place,
        )
    except MemoryBudgetError as error:
        name = group.turns[0]
        if not name:
            raise
        raise MemoryBudgetError(
            f"{error} (on worker {name})", **{**error.context, "worker": name}
        ) from error


def _shares(
    passes: Sequence[Pass],
    partitions: Sequence[Sequence[Partition]],
    execution: Execution,
    groups: Sequence[Group],
) -> list[Fraction]:
    """The share of all partitions that each group gets."""
    each = [_request(item, [1], 1, 0).cache_bytes_per_event for item in passes]
    kept = sum(n * item.dataset.n_events for n, item in zip(each, passes, strict=True))
    # Shares are rounded to whole partitions, which may be one more of each pass.
    rounding = sum(
        n * max((partition.events for partition in own), default=0)
        for n, own in zip(each, partitions, strict=True)
    )
    rooms = []
    for group in groups:
        if execution.storage == "streaming":
            room = kept
        elif execution.storage == "spilled":
            room = group.disk - rounding
        else:
            sizes = [(item, [item.dataset.n_events]) for item in passes]
            requests = [_request(*of, group.threads, group.budget) for of in sizes]
            loads = [request.load(resident=0, user_chunk=SHORTEST_CHUNK) for request in requests]
            beside = max((load.transient.peak(load.largest) for load in loads), default=0)
            room = group.budget - beside - rounding
        rooms.append(max(room, 0) * group.processes)
    return fair_shares([group.threads * group.processes for group in groups], rooms, kept)


def _request(item: Pass, sizes: Sequence[int], threads: int, budget: int) -> DatasetRequest:
    """Sizes of what a process gets of a pass: partitions of so many events."""
    programs = item.programs
    columns = BYTES[programs.precision] * programs.n_cached
    cached = columns + 8 * item.dataset.schema.has_weight
    source = 8 * (item.dataset.decoded_columns(programs.columns) + 1)
    prepared = 8 * (programs.prepare.n_outputs + 1)
    fitting = min(CHUNK_BYTES, budget // CHUNK_SHARE // threads) // source // TILE * TILE
    return DatasetRequest(
        label=item.label,
        events=sum(sizes),
        cache_bytes_per_event=cached,
        source_bytes_per_event=source,
        fixed_bytes=FIXED_BYTES,
        # A prepared chunk; and source and prepared columns of a block, which is no longer than it.
        transient_bytes_per_event=2 * prepared + source,
        tasks_in_flight=threads,
        tile_events=TILE,
        longest_chunk=min(max(fitting, SHORTEST_CHUNK), LONGEST_CHUNK),
        fragments=max(len(item.dataset.fragments), 1),
        partitions=max(len(sizes), 1),
    )


def _partition_count(
    dataset: Dataset, execution: Execution, threads: int, *, mixed: bool
) -> int | None:
    if execution.partitions is not None or execution.partitioning == "file_groups":
        return execution.partitions
    if threads == 1 and not mixed:
        return 1
    per_thread = PARTITIONS_PER_THREAD_MIXED if mixed else PARTITIONS_PER_THREAD
    return max(min(per_thread * threads, -(-dataset.n_events // SMALLEST_PARTITION)), 1)
