"""How prepared events are kept: in memory, on disk, or not at all.

All kinds give the same chunks of cached columns, so a reduction does not know which it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from laddu_dask.errors import AssumptionError, MemoryBudgetError
from laddu_dask.kernels import Accumulator, Backend, column_layout, get_backend
from laddu_dask.kernels.backend import Kernel, Reduction, Rows
from laddu_dask.memory import Storage
from laddu_dask.memory.room import Hold, Room
from laddu_dask.runtime.chunk_preparation import NUMBERS, Place
from laddu_dask.runtime.partitions import Partition
from laddu_dask.runtime.preparation import Chunk, Recipe, bound, prepare_chunks, source_of
from laddu_dask.runtime.spill_folder import spill_folder
from laddu_dask.runtime.spilled import SpilledPartition

Array = npt.NDArray[np.float64]
#: Prepared events of so many bytes stay in the cache of a core until they have been summed.
PART_BYTES = 1 << 22


class _Weights:
    """Weights of a partition; most often all are one, and then nothing is kept.

    They are summed as they come: a pass for it would read them from memory again.

    Parameters
    ----------
    room
        Where they lie that are not 1.0 for a whole chunk, shape (padded events,).
    backend
        Sums them.
    """

    def __init__(self, room: Array, backend: Backend) -> None:
        self._room, self._backend = room, backend
        self._equal = True
        self._done = 0
        self.total = Accumulator(1)

    def add(self, chunk: Chunk) -> None:
        """The next events."""
        done, self._done = self._done, self._done + chunk.events
        if isinstance(chunk.weights, float):
            self.total.add_ones(chunk.events)
            if not self._equal:
                self._room[done : self._done] = 1.0
            return
        self._backend.add_numbers(chunk.weights, chunk.first_event, self.total)
        if self._equal:
            self._equal = False
            self._room[:done] = 1.0

    def kept(self) -> Array | float:
        """All of them, zero in the padding; or 1.0."""
        if self._equal:
            return 1.0
        self._room[self._done :] = 0.0
        return self._room


class ResidentPartition:
    """Cached columns in memory."""

    tier: ClassVar[Storage] = "resident"

    def __init__(
        self,
        first_event: int,
        events: int,
        columns: Rows,
        weights: Array | float,
        total: Accumulator,
        hold: Hold | None = None,
    ) -> None:
        self.first_event, self.events = first_event, events
        self._columns, self._weights, self._total = columns, weights, total
        self._hold = hold  # given back with the partition
        self._bound: dict[str, list[Reduction]] = {}

    def __reduce__(self) -> tuple[type[ResidentPartition], tuple[object, ...]]:
        """Machine code stays where it is."""
        kept = self._columns, self._weights, self._total
        return ResidentPartition, (self.first_event, self.events, *kept)

    def chunks(self) -> Iterable[Chunk]:
        """Everything at once; a resident chunk costs nothing more."""
        if not self.events:
            return ()
        return (Chunk(self.first_event, self.events, self._columns, self._weights),)

    def reductions(self, use: str, kernel: Callable[[], Kernel]) -> Sequence[Reduction]:
        """The chunks bound to the kernel of a use, which is asked for once."""
        if use not in self._bound:
            self._bound[use] = [bound(kernel(), chunk) for chunk in self.chunks()]
        return self._bound[use]

    def weight_sum(self, backend: Backend) -> Accumulator:
        """The exact sum of the weights."""
        return copy(self._total)

    def __sizeof__(self) -> int:
        """Bytes held; Dask accounts for the partition by it."""
        kept = 0 if isinstance(self._weights, float) else self._weights.nbytes
        return object.__sizeof__(self) + int(self._columns.nbytes + kept)


class StreamingPartition:
    """A recipe that is followed again in every pass."""

    tier: ClassVar[Storage] = "streaming"

    def __init__(self, recipe: Recipe, partition: Partition) -> None:
        self.recipe, self.partition = recipe, partition
        self.first_event = partition.first_event

    def chunks(self) -> Iterator[Chunk]:
        """Read and prepare, one chunk after the other."""
        return prepare_chunks(self.recipe, self.partition, part_bytes=PART_BYTES)

    def reductions(self, use: str, kernel: Callable[[], Kernel]) -> Iterator[Reduction]:
        """The chunks bound to a kernel, one after the other."""
        ready = kernel()
        return map(partial(bound, ready), self.chunks())

    def weight_sum(self, backend: Backend) -> Accumulator:
        """The exact sum of the weights; no other column is read."""
        total, first = Accumulator(1), self.first_event
        for piece in source_of(self.recipe, self.partition, ()).pieces():
            if piece.weights is None:
                total.add_ones(piece.rows)
            else:
                backend.add_numbers(piece.weights, first, total)
            first += piece.rows
        return total


class RejectedPartition:
    """Events that contradict what the programs take for granted; every use says so."""

    first_event = 0

    def __init__(self, error: AssumptionError) -> None:
        self.error = error

    def reductions(self, use: str, kernel: Callable[[], Kernel]) -> Iterator[Reduction]:
        """Raise the contradiction."""
        raise self.error

    def weight_sum(self, backend: Backend) -> Accumulator:
        """Raise the contradiction."""
        raise self.error


KeptPartition = ResidentPartition | SpilledPartition | StreamingPartition
PreparedPartition = KeptPartition | RejectedPartition


def prepare(
    recipe: Recipe,
    partition: Partition,
    tiers: Sequence[Storage],
    room: Room,
    lacking: Callable[[Storage, MemoryBudgetError], None] = lambda tier, error: None,
) -> KeptPartition:
    """A partition in the first of `tiers` that there is room for.

    Parameters
    ----------
    recipe, partition
        What is prepared.
    tiers, room
        Where it may be kept.
    lacking
        Is told of every tier without room, and why.

    Raises
    ------
    MemoryBudgetError
        There is none in the last of them either.
    """
    for tier in tiers[:-1]:
        try:
            return _prepare(recipe, partition, tier, room)
        except MemoryBudgetError as error:
            lacking(tier, error)
    return _prepare(recipe, partition, tiers[-1], room)


def _prepare(recipe: Recipe, partition: Partition, tier: Storage, room: Room) -> KeptPartition:
    if tier == "streaming":
        return StreamingPartition(recipe, partition)
    label = f"{recipe.label}, events from {partition.first_event} on"
    hold = room.reserve(tier, recipe.kept_bytes(partition.events), label)
    try:
        if tier == "resident":
            return _resident(recipe, partition, hold)
        spilled = SpilledPartition(recipe, partition, spill_folder(), hold)
        spilled.write()
    except BaseException:
        hold.release()
        raise
    return spilled


def _resident(recipe: Recipe, partition: Partition, hold: Hold) -> ResidentPartition:
    backend, count = get_backend(recipe.backend), recipe.programs.n_cached
    columns = column_layout.empty_columns(
        count,
        partition.events,
        vectors=backend.by_vectors(count),
        dtype=NUMBERS[recipe.programs.precision],
    )
    place = Place(columns, column_layout.aligned_empty((column_layout.capacity(columns),)))
    weights = _Weights(place.weights, backend)
    done = 0
    for chunk in prepare_chunks(recipe, partition, into=place):
        weights.add(chunk)
        done += chunk.events
    return ResidentPartition(
        partition.first_event, done, columns, weights.kept(), weights.total, hold
    )
