"""Model values event by event, for one parameter point or several in one pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import CompiledModel, Program
from laddu_dask.data import Dataset
from laddu_dask.errors import DataError
from laddu_dask.kernels import get_backend
from laddu_dask.runtime.capacity import require_workers
from laddu_dask.runtime.counting import count_events
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.locality import apart
from laddu_dask.runtime.partitions import Partition, partition_dataset
from laddu_dask.runtime.preparation import Recipe, prepare_chunks
from laddu_dask.runtime.window import AHEAD, events_at_once

Array = npt.NDArray[np.float64]


class Block(NamedTuple):
    """Some consecutive events.

    Attributes
    ----------
    offset
        Index of the first one in the data set.
    weights
        Shape (events,).
    rows
        Output rows of the program for every parameter point, shape (points, rows, events).
    """

    offset: int
    weights: Array
    rows: Array


@dataclass(frozen=True)
class Work:
    """What is evaluated at every event; picklable.

    Attributes
    ----------
    recipe
        How events are prepared.
    frontiers
        Frontier values of each parameter point.
    gradient
        Whether adjoint rows follow the value rows.
    """

    recipe: Recipe
    frontiers: tuple[Array, ...]
    gradient: bool

    @property
    def program(self) -> Program:
        """What runs over prepared events."""
        programs = self.recipe.programs
        return programs.gradient if self.gradient else programs.value

    def blocks(self, partition: Partition) -> Iterator[Block]:
        """Blocks outside, points inside: the events are prepared once for all points."""
        program = self.program
        kernel = get_backend(self.recipe.backend).compile(program, "map")
        for chunk in prepare_chunks(self.recipe, partition):
            rows = np.empty((len(self.frontiers), program.n_outputs, chunk.columns.shape[1]))
            for frontier, out in zip(self.frontiers, rows, strict=True):
                kernel.map(chunk.columns, frontier, out, weights=chunk.weights)
            yield Block(
                chunk.first_event,
                np.broadcast_to(chunk.weights, rows.shape[-1:])[: chunk.events].copy(),
                rows[:, :, : chunk.events],
            )

    def rows(self, partition: Partition) -> Array:
        """Output rows of a whole partition, shape (points, rows, events)."""
        result = np.empty((len(self.frontiers), self.program.n_outputs, partition.events))
        for block in self.blocks(partition):
            start = block.offset - partition.first_event
            result[:, :, start : start + len(block.weights)] = block.rows
        return result


def plan_work(
    model: CompiledModel,
    dataset: Dataset,
    points: Sequence[Array],
    execution: Execution,
    *,
    gradient: bool,
) -> tuple[Work, tuple[Partition, ...]]:
    """The work and the partitions that it is done on; nothing is read, or only to count events.

    Parameters
    ----------
    model
        Compiled with the ``complex`` transform.
    dataset
        The events.
    points
        Free parameters, any number of times.
    execution
        Where and how; the events are read once, in chunks.
    gradient
        Whether adjoint rows follow the value rows.

    Raises
    ------
    DataError
        A column is missing.
    MemoryBudgetError
        Not even one event fits.
    """
    programs = model.programs
    dataset.require(programs.columns, wanted_by="the model")
    count_events([dataset], execution)
    rows = (programs.gradient if gradient else programs.value).n_outputs
    longest = events_at_once(programs, dataset, execution, len(points), rows)
    recipe = Recipe(
        "evaluation",
        programs,
        execution.backend_name,
        min(execution.chunk_events or longest, longest),
    )
    frontiers = tuple(model.invariants.frontier(parameters) for parameters in points)
    count = execution.partitions
    if count is None and execution.partitioning != "file_groups":
        count = max(-(-dataset.n_events // longest), 1)
    # On a cluster a partition is what waits for its turn.
    partitions = partition_dataset(dataset, count, execution.partitioning, longest)
    return Work(recipe, frontiers, gradient), partitions


def evaluate_rows(
    model: CompiledModel,
    dataset: Dataset,
    points: Sequence[Array],
    execution: Execution,
    *,
    gradient: bool,
) -> Array:
    """Output rows of the value or gradient program; arguments as for `plan_work`.

    Returns
    -------
    ndarray
        Shape (points, rows, n_events), in the order of the events.
    """
    program = model.programs.gradient if gradient else model.programs.value
    count_events([dataset], execution)
    result = np.empty((len(points), program.n_outputs, dataset.n_events))
    for block in blocks(model, dataset, points, execution, gradient=gradient):
        result[:, :, block.offset : block.offset + len(block.weights)] = block.rows
    return result


def blocks(
    model: CompiledModel,
    dataset: Dataset,
    points: Sequence[Array],
    execution: Execution,
    *,
    gradient: bool,
) -> Generator[Block, None, None]:
    """The same block by block, in order; nothing is kept.

    Raises
    ------
    DataError
        Of the first event that cannot be read; all blocks before it have come. Or the source has
        other events than it promised.
    """
    work, partitions = plan_work(model, dataset, points, execution, gradient=gradient)
    if execution.cluster is None:
        source = (block for partition in partitions for block in work.blocks(partition))
    else:
        source = _on_cluster(execution.cluster, work, partitions)
    done = 0
    try:
        for block in source:
            _check_next(block.offset, done)
            done += len(block.weights)
            yield block
    finally:
        source.close()
    _check_next(dataset.n_events, done)


def _check_next(offset: int, done: int) -> None:
    if offset != done:
        raise DataError(
            f"{done} events were evaluated where event {offset} should be next; a block was lost "
            "or came twice, or a file changed while it was in use",
            event=done,
        )


def _on_cluster(
    cluster: Any, work: Work, partitions: Sequence[Partition]
) -> Generator[Block, None, None]:
    # Without a cluster nobody pays for these.
    from laddu_dask.runtime.cluster_link import connect
    from laddu_dask.runtime.file_reach import reach_of
    from laddu_dask.runtime.waiting import wait_for

    client, owned = connect(cluster)
    waiting: deque[Any] = deque()
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        require_workers(workers)
        ahead = AHEAD * sum(worker["nthreads"] for worker in workers.values())
        # Sent once, and from worker to worker where tasks need it.
        shared = client.submit(_itself, work, pure=False)

        def first_in_line() -> list[Block]:
            line = list(waiting)
            found: list[Block] = wait_for(client, line[0], line, what="the evaluation of events")
            waiting.popleft()
            return found

        reach = reach_of(client, partitions)
        pieces = chain.from_iterable(apart(partition, reach) for partition in partitions)
        for piece, readers in pieces:
            if len(waiting) == ahead:
                yield from first_in_line()
            options = {} if readers is None else {"workers": [*readers]}
            waiting.append(client.submit(_all_blocks, shared, piece, pure=False, **options))
        while waiting:
            yield from first_in_line()
    finally:
        client.cancel(list(waiting))  # the caller may have lost interest
        if owned:
            client.close()


def _itself(work: Work) -> Work:
    return work


def _all_blocks(work: Work, partition: Partition) -> list[Block]:
    return list(work.blocks(partition))
