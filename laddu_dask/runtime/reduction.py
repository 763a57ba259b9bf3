"""Sums over the events of several data sets, wherever they lie.

The reducer plans, opens a session when it is first needed, and turns the sums of the partitions
into one exact accumulator per pass. It checks in every evaluation that no event was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import EventPrograms
from laddu_dask.compiler.precision import BYTES
from laddu_dask.data import Dataset
from laddu_dask.errors import DataError, ExecutionError
from laddu_dask.kernels import Accumulator
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.memory import (
    DatasetRequest,
    Decision,
    LeasePool,
    LocalRoom,
    MemoryReport,
    Storage,
    plan_datasets,
)
from laddu_dask.runtime.capacity import Capacity, cluster_capacity, local_capacity
from laddu_dask.runtime.counting import count_events
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.local import LocalSession, Session
from laddu_dask.runtime.partitions import Partition, partition_dataset
from laddu_dask.runtime.payload import Mode, ReductionPayload, Task
from laddu_dask.runtime.preparation import Recipe
from laddu_dask.runtime.wire import RemotePayload, RemoteSession
from laddu_dask.runtime.worker_info import WorkerInfo

Array = npt.NDArray[np.float64]

#: Smaller partitions cost more in dispatch than they gain in balance.
SMALLEST_PARTITION = 16384
#: Partitions per thread: enough to even out threads of different speed. A single thread has none to
#: wait for.
PARTITIONS_PER_THREAD = 2
#: The same where not everything fits in memory: the smaller they are, the more of them do.
PARTITIONS_PER_THREAD_MIXED = 16
#: Larger chunks save no time, and what is prepared at once is in memory beside what is kept: 10**6
#: events in chunks of this length took half the time and half the memory that one chunk took.
CHUNK_EVENTS = 16 * TILE
#: How much longer than a usual pass takes one with second derivatives, at most.
_EFFORT: dict[Mode, float] = {"curvature": 8.0}
#: Ways to keep prepared events, the fastest first.
TIERS: tuple[Storage, ...] = get_args(Storage)
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


class Reducer:
    """Plans and evaluates passes.

    Parameters
    ----------
    passes
        The passes; their order is that of all results.
    execution
        Where and how.
    once
        Whether the events are reduced once: on a cluster nothing is set up to do it again.
    """

    def __init__(self, passes: Sequence[Pass], execution: Execution, *, once: bool = False) -> None:
        self.passes = tuple(passes)
        self.execution = execution
        self.once = once
        self._session: Session | None = None
        self._client: Any = None
        self._owns_client = False
        self._capacity: Capacity | None = None
        self._plan: MemoryReport | None = None
        self._partitions: list[tuple[Partition, ...]] = []
        self._pool: LeasePool | None = None

    # planning ------------------------------------------------------------------------------

    def capacity(self) -> Capacity:
        """Threads and budget; connects to the cluster if there is one."""
        if self._capacity is None:
            if self.execution.cluster is None:
                self._capacity = local_capacity(self.execution)
            else:
                if self._client is None:
                    # Imported here: without a cluster nobody pays for it.
                    from laddu_dask.runtime.cluster_link import connect

                    self._client, self._owns_client = connect(self.execution.cluster)
                self._capacity = cluster_capacity(self._client, self.execution)
        return self._capacity

    def plan(self) -> MemoryReport:
        """Storage and chunk size of every pass, decided before any event is read.

        Raises
        ------
        MemoryBudgetError
            The budget is too small for the smallest chunk, or for resident storage.
        """
        if self._plan is None:
            count_events((item.dataset for item in self.passes), self.execution)
            decisions = self._decisions(PARTITIONS_PER_THREAD)
            if self.execution.storage == "fastest" and any(
                decision.resident_events < decision.events for decision in decisions
            ):
                decisions = self._decisions(PARTITIONS_PER_THREAD_MIXED)
            self._plan = MemoryReport(decisions)
        return self._plan

    def _decisions(self, per_thread: int) -> tuple[Decision, ...]:
        """Cut the data sets into so many partitions per thread, and plan for them."""
        capacity = self.capacity()
        self._partitions = [
            partition_dataset(
                item.dataset,
                self._partition_count(item.dataset, capacity.total_threads, per_thread),
                self.execution.partitioning,
            )
            for item in self.passes
        ]
        return plan_datasets(
            [
                self._request(item, partitions, capacity)
                for item, partitions in zip(self.passes, self._partitions, strict=True)
            ],
            capacity.budget,
            self.execution.storage,
            self.execution.chunk_events,
            disk=capacity.disk,
        )

    def _request(
        self, item: Pass, partitions: Sequence[Partition], capacity: Capacity
    ) -> DatasetRequest:
        programs = item.programs
        columns = BYTES[programs.precision] * programs.n_cached
        cached = columns + 8 * item.dataset.schema.has_weight
        source = 8 * (item.dataset.decoded_columns(programs.columns) + 1)
        prepared = 8 * (programs.prepare.n_outputs + 1)
        if programs.precision != "f64":
            prepared += columns  # rounded ones beside those that they are made of
        return DatasetRequest(
            label=item.label,
            events=capacity.largest_share([partition.events for partition in partitions]),
            cache_bytes_per_event=cached,
            source_bytes_per_event=source,
            fixed_bytes=FIXED_BYTES,
            # a prepared chunk with what is only checked, and the padded copy of the source
            transient_bytes_per_event=prepared + source,
            tasks_in_flight=capacity.widest,
            tile_events=TILE,
            longest_chunk=CHUNK_EVENTS,
            fragments=max(len(item.dataset.fragments), 1),
            partitions=capacity.most_partitions(len(partitions)),
        )

    def _partition_count(self, dataset: Dataset, threads: int, per_thread: int) -> int | None:
        if self.execution.partitions is not None or self.execution.partitioning == "file_groups":
            return self.execution.partitions
        alone = threads == 1 and per_thread == PARTITIONS_PER_THREAD
        most = 1 if alone else per_thread * threads
        return max(min(most, -(-dataset.n_events // SMALLEST_PARTITION)), 1)

    # evaluation ----------------------------------------------------------------------------

    def start(self) -> Session:
        """Prepare all partitions; does nothing when that has been done."""
        if self._session is None:
            decisions = self.plan().decisions
            recipes, tasks = [], list[Task]()
            for index, (item, decision) in enumerate(zip(self.passes, decisions, strict=True)):
                recipes.append(
                    Recipe(
                        item.label,
                        item.programs,
                        self.execution.backend_name,
                        -(-max(decision.chunk_events, 1) // TILE) * TILE,
                        item.dataset.schema.has_weight,
                    )
                )
                partitions = self._partitions[index]
                planned = decision.tiers([partition.events for partition in partitions])
                tasks += [
                    Task(index, partition, self._tiers(tier))
                    for partition, tier in zip(partitions, planned, strict=True)
                ]
            payload = ReductionPayload(tuple(recipes), tuple(tasks))
            self._owner = [task.pass_index for task in tasks]
            self._pool = LeasePool("host", self.capacity().budget)
            # Resident events need room for a chunk while they are prepared, others in every pass.
            once = max((d.transient_bytes for d in decisions), default=0)
            again = [d.transient_bytes for d in decisions if d.resident_events < d.events]
            self._transient = max(again, default=0)
            with self._pool.reserve(once, "preparing the events"):
                self._session = self._prepared(payload)
        return self._session

    def _tiers(self, planned: Storage) -> tuple[Storage, ...]:
        """Where a partition may be kept: as planned, or in what is next if there is no room."""
        if self.execution.storage != "fastest":
            return (planned,)
        return TIERS[TIERS.index(planned) :]

    def _prepared(self, payload: ReductionPayload) -> Session:
        if self._client is None:
            assert self._pool is not None
            room = LocalRoom(self._pool, LeasePool("disk", self.capacity().disk))
            return LocalSession(payload, self.execution.local_threads, room)
        from laddu_dask.runtime import tasks

        workers = len(self.capacity().threads)
        if tasks.choose_route(once=self.once, workers=workers) == "tasks":
            self._owner = [*range(len(payload.recipes))]  # a tree leaves one result of each pass
            return tasks.TaskSession(self._client, payload, keep=not self.once)
        from laddu_dask.runtime.cluster import ClusterSession
        from laddu_dask.runtime.file_reach import within_reach

        payload, readers = within_reach(self._client, payload)
        return RemoteSession(
            ClusterSession(
                self._client,
                RemotePayload(payload),
                len(payload.tasks),
                patience=self.execution.patience,
                readers=readers,
            )
        )

    def reduce(self, mode: Mode, frontiers: Sequence[Array]) -> list[Accumulator]:
        """One accumulator per pass, for one row of frontier values each; see `reduce_many`."""
        rows = [frontier[np.newaxis] for frontier in frontiers]
        return [total for (total,) in self.reduce_many(mode, rows)]

    def reduce_many(self, mode: Mode, frontiers: Sequence[Array]) -> list[list[Accumulator]]:
        """One accumulator per parameter set of every pass; the events are read once.

        Parameters
        ----------
        mode
            What to sum; see `laddu_dask.runtime.payload.Mode`.
        frontiers
            Frontier values of each pass, shape (sets, values); a pass may have its own number.

        Raises
        ------
        DataError
            Fewer or more events were reduced than the sources promised.
        """
        session = self.start()
        assert self._pool is not None
        effort = max(map(len, frontiers), default=1) * _EFFORT.get(mode, 1.0)
        if self._transient:
            with self._pool.reserve(self._transient, "a pass over the events"):
                parts = session.evaluate(mode, frontiers, effort)
        else:
            parts = session.evaluate(mode, frontiers, effort)
        if len(parts) != len(self._owner):
            raise ExecutionError(
                f"{len(parts)} of {len(self._owner)} partitions answered", option="cluster"
            )
        totals: list[list[Accumulator]] = [[] for _ in self.passes]
        for owner, found in zip(self._owner, parts, strict=True):
            known = totals[owner]
            if known:
                for total, part in zip(known, found, strict=True):
                    total.merge(part)
            else:
                known += found
        for item, sums in zip(self.passes, totals, strict=True):
            for total in sums:
                _check_count(item, total)
        return totals

    def worker_info(self) -> tuple[WorkerInfo, ...]:
        """Memory and threads of every process that holds partitions."""
        return self.start().worker_info()

    def close(self) -> None:
        """Release partitions, and the connection if it was opened here."""
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._client is not None and self._owns_client:
            self._client.close()
        self._client = None
        self._capacity = None
        self._plan = None


def _check_count(item: Pass, total: Accumulator) -> None:
    if total.first_bad is None and total.count != item.dataset.n_events:
        raise DataError(
            f"{item.label}: {total.count} events were summed, the sources promised "
            f"{item.dataset.n_events}; a file changed while it was in use",
            label=item.label,
        )
