"""Model values event by event, for one parameter point or several in one pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import CompiledModel
from laddu_dask.data import DEFAULT_BATCH_ROWS, Dataset
from laddu_dask.kernels import get_backend
from laddu_dask.runtime.capacity import require_workers
from laddu_dask.runtime.counting import count_events
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.partitions import Partition, partition_dataset
from laddu_dask.runtime.preparation import Recipe, prepare_chunks

Array = npt.NDArray[np.float64]

#: Partitions that a cluster works on ahead of the one that is wanted, per thread: results wait here
#: for their turn, and more of them would only take memory.
AHEAD = 2


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


def evaluate_rows(
    model: CompiledModel,
    dataset: Dataset,
    points: Sequence[Array],
    execution: Execution,
    *,
    gradient: bool,
) -> Array:
    """Output rows of the value or gradient program.

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
    """The same block by block, in order; nothing is kept. Arguments as for `evaluate_rows`."""
    dataset.require(model.programs.columns, wanted_by="the model")
    count_events([dataset], execution)
    recipe = Recipe(
        "evaluation",
        model.programs,
        execution.backend_name,
        min(execution.chunk_events or DEFAULT_BATCH_ROWS, DEFAULT_BATCH_ROWS),
    )
    frontiers = [model.invariants.frontier(parameters) for parameters in points]
    count = execution.partitions or max(-(-dataset.n_events // DEFAULT_BATCH_ROWS), 1)
    partitions = partition_dataset(dataset, count)
    if execution.cluster is None:
        for partition in partitions:
            yield from _blocks(recipe, partition, frontiers, gradient)
    else:
        yield from _on_cluster(execution.cluster, recipe, partitions, frontiers, gradient)


def _on_cluster(
    cluster: Any,
    recipe: Recipe,
    partitions: Sequence[Partition],
    frontiers: Sequence[Array],
    gradient: bool,
) -> Iterator[Block]:
    from laddu_dask.runtime.cluster_link import connect  # without a cluster nobody pays for it

    client, owned = connect(cluster)
    waiting: deque[Any] = deque()
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        require_workers(workers)
        ahead = AHEAD * sum(worker["nthreads"] for worker in workers.values())
        for partition in partitions:
            if len(waiting) == ahead:
                yield from waiting.popleft().result()
            waiting.append(
                client.submit(_all_blocks, recipe, partition, frontiers, gradient, pure=False)
            )
        while waiting:
            yield from waiting.popleft().result()
    finally:
        client.cancel(list(waiting))  # the caller may have lost interest
        if owned:
            client.close()


def _all_blocks(
    recipe: Recipe, partition: Partition, frontiers: Sequence[Array], gradient: bool
) -> list[Block]:
    return list(_blocks(recipe, partition, frontiers, gradient))


def _blocks(
    recipe: Recipe, partition: Partition, frontiers: Sequence[Array], gradient: bool
) -> Iterator[Block]:
    """Blocks outside, points inside: the events are prepared once for all points."""
    program = recipe.programs.gradient if gradient else recipe.programs.value
    kernel = get_backend(recipe.backend).compile(program, "map")
    for chunk in prepare_chunks(recipe, partition):
        rows = np.empty((len(frontiers), program.n_outputs, chunk.columns.shape[1]))
        for frontier, out in zip(frontiers, rows, strict=True):
            kernel.map(chunk.columns, frontier, out, weights=chunk.weights)
        yield Block(
            chunk.first_event,
            np.broadcast_to(chunk.weights, rows.shape[-1:])[: chunk.events].copy(),
            rows[:, :, : chunk.events],
        )
