"""Sums over the events of several data sets, wherever they lie.

The reducer plans, opens a session when it is first needed, and turns the sums of the partitions
into one exact accumulator per pass. It checks in every evaluation that no event was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from laddu_dask.errors import DataError, ExecutionError
from laddu_dask.kernels import Accumulator
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.memory import LeasePool, LocalRoom, MemoryReport, ProcessPlan, Storage
from laddu_dask.runtime.array_pool import IDLE_BYTES, ArrayPool
from laddu_dask.runtime.capacity import Capacity, local_capacity
from laddu_dask.runtime.counting import count_events
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.local import LocalSession, Session
from laddu_dask.runtime.payload import Mode, ReductionPayload, Task
from laddu_dask.runtime.planning import Pass, SessionPlan, plan_session
from laddu_dask.runtime.preparation import Recipe
from laddu_dask.runtime.wire import RemotePayload, RemoteSession
from laddu_dask.runtime.worker_info import WorkerInfo

Array = npt.NDArray[np.float64]

#: How much longer than a usual pass takes one with second derivatives, at most.
_EFFORT: dict[Mode, float] = {"curvature": 8.0}
#: Ways to keep prepared events, the fastest first.
TIERS: tuple[Storage, ...] = get_args(Storage)


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
        self._plan: SessionPlan | None = None
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
                from laddu_dask.runtime.scheduler_planner import capacity_of

                self._capacity = capacity_of(
                    self._client, self.execution.memory, self.execution.patience
                )
        return self._capacity

    def plan(self, *, now: bool = False) -> MemoryReport:
        """Storage and chunk size of every pass, decided before any event is read.

        Parameters
        ----------
        now
            Tell the state of a cluster's pools now, not as it was when the plan was made.

        Raises
        ------
        MemoryBudgetError
            The budget is too small for the smallest chunk, or for resident storage.
        """
        capacity = self.capacity()
        processes = [
            ProcessPlan(
                name=name,
                threads=plan.group.threads,
                budget_bytes=plan.group.budget,
                disk_bytes=plan.group.disk,
                resident_bytes=plan.resident_bytes,
                spilled_bytes=plan.spilled_bytes,
                peak_bytes=plan.resident_bytes + plan.transient_bytes,
                datasets={decision.label: decision.peak_bytes for decision in plan.decisions},
            )
            for plan in self._planned().groups
            for name in plan.group.turns
        ]
        pools, notes = capacity.pools, capacity.notes
        if now and self._client is not None:
            from laddu_dask.runtime.scheduler_planner import pools_now

            pools, notes = pools_now(self._client)
        return MemoryReport(self._planned().decisions, pools, processes, notes)

    def _planned(self) -> SessionPlan:
        if self._plan is None:
            count_events((item.dataset for item in self.passes), self.execution)
            capacity = self.capacity()
            plan = plan_session(self.passes, self.execution, capacity)
            if self.execution.storage == "fastest" and not plan.is_resident:
                plan = plan_session(self.passes, self.execution, capacity, mixed=True)
            self._plan = plan
        return self._plan

    # evaluation ----------------------------------------------------------------------------

    def start(self) -> Session:
        """Prepare all partitions; does nothing when that has been done."""
        if self._session is None:
            plan = self._planned()
            recipes, tasks, pool = [], list[Task](), ArrayPool(self._idle_bytes())
            for index, item in enumerate(self.passes):
                recipes.append(
                    Recipe(
                        item.label,
                        item.programs,
                        self.execution.backend_name,
                        -(-max(plan.chunk_events(index), 1) // TILE) * TILE,
                        item.dataset.schema.has_weight,
                        pool,
                    )
                )
                tasks += [
                    Task(index, partition, self._tiers(tier))
                    for partition, tier in zip(
                        plan.partitions[index], plan.tiers(index), strict=True
                    )
                ]
            payload = ReductionPayload(tuple(recipes), tuple(tasks))
            self._owner = [task.pass_index for task in tasks]
            self._session = self._prepared(payload, plan)
        return self._session

    def _idle_bytes(self) -> int:
        """What a process may keep for chunks to come: little of a small budget."""
        return min(IDLE_BYTES, min(p.budget for p in self.capacity().processes) // 8)

    def _tiers(self, planned: Storage) -> tuple[Storage, ...]:
        """Where a partition may be kept: as planned, or in what is next if there is no room."""
        if self.execution.storage != "fastest":
            return (planned,)
        return TIERS[TIERS.index(planned) :]

    def _prepared(self, payload: ReductionPayload, plan: SessionPlan) -> Session:
        if self._client is None:
            return self._prepared_here(payload, plan)
        from laddu_dask.runtime import tasks
        from laddu_dask.runtime.file_reach import within_reach
        from laddu_dask.runtime.worker_memory import SessionMemory

        payload, readers = within_reach(self._client, payload)
        groups = [(name, own) for own in plan.groups for name in own.group.turns]
        memory = SessionMemory(
            limits={name: own.group.budget for name, own in groups},
            budget=self.execution.memory.host.to_plain(),
            pass_bytes={name: own.transient_bytes for name, own in groups},
        )
        workers = len(self.capacity().processes)
        if tasks.choose_route(once=self.once, workers=workers) == "tasks":
            self._owner = [*range(len(payload.recipes))]  # a tree leaves one result of each pass
            keep = not self.once
            return tasks.TaskSession(self._client, payload, readers, keep=keep, memory=memory)
        from laddu_dask.runtime.cluster import ClusterSession

        wishes = plan.wishes()
        return RemoteSession(
            ClusterSession(
                self._client,
                RemotePayload(payload),
                len(payload.tasks),
                patience=self.execution.patience,
                readers=readers,
                memory=replace(memory, where_planned=wishes is not None),
                wishes=wishes,
            )
        )

    def _prepared_here(self, payload: ReductionPayload, plan: SessionPlan) -> Session:
        (process,) = self.capacity().processes
        self._pool = LeasePool("host", process.budget)
        decisions = plan.decisions
        # Resident events need room for a chunk while they are prepared, others in every pass.
        once = max((d.transient_bytes for d in decisions), default=0)
        again = [d.transient_bytes for d in decisions if d.resident_events < d.events]
        self._transient = max(again, default=0)
        room = LocalRoom(self._pool, LeasePool("disk", process.disk))
        with self._pool.reserve(once, "preparing the events"):
            return LocalSession(payload, self.execution.local_threads, room)

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
        effort = max(map(len, frontiers), default=1) * _EFFORT.get(mode, 1.0)
        if self._pool is not None and self._transient:
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
            from laddu_dask.runtime.cluster_link import is_forked

            if not is_forked(self._client):
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
