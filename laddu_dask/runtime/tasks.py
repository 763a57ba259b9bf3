"""Passes as ordinary Dask tasks: one per partition, and a tree that merges their sums.

A session of prepared partitions (`laddu_dask.runtime.cluster`) answers in milliseconds, again and
again; to open it takes longer than to read once. So what is read once and not kept is done by
tasks, and so is everything where there are more workers than the client should talk to: of a tree
one result is left to fetch.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import dask
import numpy as np
import numpy.typing as npt
from distributed import Client, get_worker

from laddu_dask.errors import ExecutionError
from laddu_dask.kernels import Accumulator
from laddu_dask.runtime.cluster_link import (
    ask,
    check_cluster,
    described_workers,
    install,
    is_forked,
    refuse_forked,
)
from laddu_dask.runtime.payload import Mode, Prepared, ReductionPayload, Task
from laddu_dask.runtime.preparation import Recipe
from laddu_dask.runtime.scheduler_planner import close_account, open_account
from laddu_dask.runtime.tree import FAN_IN, Outcome, merged
from laddu_dask.runtime.waiting import wait_for, wait_until_forgotten
from laddu_dask.runtime.wire import RemotePayload
from laddu_dask.runtime.worker_info import WorkerInfo
from laddu_dask.runtime.worker_memory import SessionMemory, TaskRoom, memory_of
from laddu_dask.runtime.worker_plugin import (
    PartitionService,
    partition_key,
    prepare_partition,
)

Array = npt.NDArray[np.float64]
Route = Literal["direct", "tasks"]

WIDE = 512
"""Workers beyond which a tree of tasks does what direct messages do otherwise. A task takes the
scheduler about a millisecond, so messages are faster as long as the client can hold a connection to
every worker."""


def choose_route(*, once: bool, workers: int) -> Route:
    """How passes run on a cluster; the bits are the same.

    Parameters
    ----------
    once
        Whether the events are read once and not kept.
    workers
        Their number.
    """
    return "tasks" if once or workers > WIDE else "direct"


class TaskSession:
    """Passes on a cluster without a service of their own there.

    Parameters
    ----------
    client
        A connected client.
    payload
        What to prepare and evaluate.
    readers
        Partition -> the workers that can read its files, for partitions that not all can read.
    keep
        Whether prepared partitions stay on the workers, for evaluations to come.
    memory
        What kept partitions may take of each worker's memory.

    Raises
    ------
    ExecutionError
        Other versions of the software there.
    """

    def __init__(
        self,
        client: Client,
        payload: ReductionPayload,
        readers: Mapping[int, Collection[str]],
        *,
        keep: bool,
        memory: SessionMemory | None = None,
    ) -> None:
        self._client = client
        self._payload = payload
        self._readers = readers
        self._name = f"pass{uuid.uuid4().hex[:12]}"
        self._evaluations = 0
        self._used: list[str] = []  # keys of the last evaluation
        ask(client, check_cluster, client)
        # Each recipe is sent once, and from worker to worker where tasks need it.
        self._recipes = self._map("recipe", _itself, payload.recipes)
        self._kept: list[Any] | None = None
        self._memory = own = (memory or SessionMemory()).of(self._name, client.id)
        ask(client, open_account, client, self._name)
        if keep:
            # Its service knows how much room there is on a worker.
            service = PartitionService(self._name, RemotePayload(payload), own)
            ask(client, install, client, service)
            numbers = range(len(payload.tasks))
            keys = [partition_key(self._name, number, 0) for number in numbers]
            sessions = [self._name] * len(numbers)
            self._kept = self._map(keys, _prepare_kept, sessions, numbers, readers=readers)

    def evaluate(
        self, mode: Mode, frontiers: Sequence[Array], effort: float = 1.0
    ) -> list[list[Accumulator]]:
        """Sums of each pass; tasks have no deadline of their own, so `effort` does not matter.

        Raises
        ------
        LadduError
            The error of the lowest partition that has one.
        ExecutionError
            The cluster was lost, or partitions are missing in the tree.
        """
        refuse_forked(self._client)
        self._evaluations += 1
        self._used = []
        turn = str(self._evaluations)
        orders = self._map(f"{turn}-order", _itself, [(mode, rows) for rows in frontiers])
        owners = [task.pass_index for task in self._payload.tasks]
        sums = self._map(
            f"{turn}-sums",
            partial(_reduce, memory=self._memory) if self._kept is None else _reduce_kept,
            [self._recipes[index] for index in owners],
            [orders[index] for index in owners],
            range(len(owners)),
            self._payload.tasks if self._kept is None else self._kept,
            readers=self._readers,
        )
        leaves: list[list[Any]] = [[] for _ in orders]
        for index, leaf in zip(owners, sums, strict=True):
            leaves[index].append(leaf)
        everything = list(sums)
        roots = [self._tree(f"{turn}-{k}", own, everything) for k, own in enumerate(leaves)]
        try:
            return [
                self._checked(index, wait_for(self._client, root, everything, what=label))
                for index, (root, label) in enumerate(
                    zip(roots, (recipe.label for recipe in self._payload.recipes), strict=True)
                )
            ]
        except BaseException:
            # Nobody wants the rest any more.
            with suppress(OSError, TimeoutError):
                self._client.cancel(everything)
            raise
        finally:
            for future in (*orders, *everything):
                future.release()
            self._used += [future.key for future in (*orders, *everything)]

    def _tree(self, name: str, futures: Sequence[Any], everything: list[Any]) -> Any:
        """A future of what several make together."""
        level = 0
        while len(futures) > 1:
            level += 1
            groups = [futures[i : i + FAN_IN] for i in range(0, len(futures), FAN_IN)]
            futures = self._map(f"{name}-merged-{level}", merged, groups)
            everything += futures
        return futures[0]

    def _checked(self, index: int, outcome: Outcome) -> list[Accumulator]:
        error = outcome.error()
        if error is not None:
            raise error
        expected = sum(task.pass_index == index for task in self._payload.tasks)
        if outcome.partitions != expected:
            raise ExecutionError(
                f"{self._payload.recipes[index].label}: {outcome.partitions} of {expected} "
                "partitions arrived at the root of the tree",
                option="cluster",
            )
        return list(outcome.sums)

    def worker_info(self) -> tuple[WorkerInfo, ...]:
        """Address, threads, memory and kept partitions of every worker, measured now."""
        refuse_forked(self._client)
        held: Counter[str] = Counter()
        if self._kept is not None:
            for workers in self._client.who_has(self._kept).values():
                held.update(workers)
        answers = ask(self._client, described_workers, self._client, self._name)
        return tuple(replace(info, partitions=held[info.address]) for info in answers)

    def close(self) -> None:
        """Let the cluster forget everything, unless it belongs to a parent of this process."""
        if is_forked(self._client):
            return
        held = [*self._recipes, *(self._kept or ())]
        for future in held:
            future.release()
        wait_until_forgotten(self._client, [*self._used, *(future.key for future in held)])
        if self._client.status == "running":
            with suppress(OSError, TimeoutError):
                self._client.sync(close_account, self._client, self._name)
        self._recipes, self._kept = [], None

    def _map(
        self,
        name: str | list[str],
        work: Any,
        *columns: Sequence[Any],
        readers: Mapping[int, Collection[str]] | None = None,
    ) -> list[Any]:
        """Futures of `work` for each row of arguments; one message for all of equal readers.

        Their keys are given, or made of a name.
        """
        keys = name
        if isinstance(keys, str):
            keys = [f"laddu-{self._name}-{name}-{k}" for k in range(len(columns[0]))]
        groups: dict[frozenset[str], list[int]] = {}
        for k in range(len(columns[0])):
            groups.setdefault(frozenset((readers or {}).get(k, ())), []).append(k)
        futures: dict[int, Any] = {}
        # Events that are arrays of this process have to travel, whatever Dask thinks of that.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            for able, numbers in groups.items():
                made = self._client.map(
                    work,
                    *([column[k] for k in numbers] for column in columns),
                    key=[keys[k] for k in numbers],
                    pure=False,
                    workers=[*able] or None,
                )
                futures.update(zip(numbers, made, strict=True))
        return [futures[k] for k in range(len(columns[0]))]


def _itself(what: Any) -> Any:
    return what


def _prepare_kept(session: str, number: int) -> Prepared | Outcome:
    """A prepared partition, or why there is none."""
    try:
        prepared: Prepared = prepare_partition(session, number)
        return prepared
    except Exception as error:  # whatever it is, the root has to hear of it
        return Outcome.of_error(number, error, get_worker().address)


def _reduce_kept(
    recipe: Recipe, order: tuple[Mode, Array], number: int, kept: Prepared | Outcome
) -> Outcome:
    """Sums of a prepared partition, or what went wrong."""
    if isinstance(kept, Outcome):
        return kept
    mode, rows = order
    only = replace(kept, pass_index=0)
    try:
        (sums,) = ReductionPayload((recipe,), ()).evaluate(mode, [rows], [only], map)
    except Exception as error:  # likewise
        return Outcome.of_error(number, error, get_worker().address)
    return Outcome(1, tuple(sums))


def _reduce(
    recipe: Recipe, order: tuple[Mode, Array], number: int, task: Task, memory: SessionMemory
) -> Outcome:
    """The same of a partition that is read now and not kept, in memory lent for as long."""
    worker = get_worker()
    payload = ReductionPayload((recipe,), (replace(task, pass_index=0, tiers=("streaming",)),))
    try:
        room = TaskRoom(memory_of(worker), memory, str(worker.get_current_task()))
        nbytes = memory.passes_on(worker.address) // worker.state.nthreads
        with room.reserve("resident", nbytes, f"{recipe.label}: a pass over it"):
            prepared = payload.prepare(0, room)
            return _reduce_kept(recipe, order, number, prepared)
    except Exception as error:  # likewise
        return Outcome.of_error(number, error, worker.address)
