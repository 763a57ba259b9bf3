"""Model values event by event."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import CompiledModel
from laddu_dask.data import DEFAULT_BATCH_ROWS, Dataset
from laddu_dask.kernels import get_backend
from laddu_dask.runtime.capacity import require_workers
from laddu_dask.runtime.cluster_link import connect
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.partitions import Partition, partition_dataset
from laddu_dask.runtime.preparation import Recipe, StreamingPartition

Array = npt.NDArray[np.float64]


def evaluate_rows(
    model: CompiledModel,
    dataset: Dataset,
    parameters: Array,
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
    parameters
        Free parameters.
    execution
        Where and how; the events are read once, in chunks.
    gradient
        Whether adjoint rows follow the two value rows.

    Returns
    -------
    ndarray
        Shape (rows, n_events), in the order of the events.
    """
    dataset.require(model.programs.columns, wanted_by="the model")
    recipe = Recipe(
        "evaluation",
        model.programs,
        execution.backend_name,
        "streaming",
        min(execution.chunk_events or DEFAULT_BATCH_ROWS, DEFAULT_BATCH_ROWS),
    )
    frontier = model.invariants.frontier(parameters)
    count = execution.partitions or max(-(-dataset.n_events // DEFAULT_BATCH_ROWS), 1)
    partitions = partition_dataset(dataset, count)
    if execution.cluster is None:
        pieces = [_rows(recipe, partition, frontier, gradient) for partition in partitions]
    else:
        pieces = _on_cluster(execution.cluster, recipe, partitions, frontier, gradient)
    return np.concatenate(pieces, axis=1)


def _on_cluster(
    cluster: Any,
    recipe: Recipe,
    partitions: tuple[Partition, ...],
    frontier: Array,
    gradient: bool,
) -> list[Array]:
    client, owned = connect(cluster)
    try:
        require_workers(client.scheduler_info(n_workers=-1)["workers"])
        futures = [
            client.submit(_rows, recipe, partition, frontier, gradient, pure=False)
            for partition in partitions
        ]
        pieces: list[Array] = client.gather(futures)
        return pieces
    finally:
        if owned:
            client.close()


def _rows(recipe: Recipe, partition: Partition, frontier: Array, gradient: bool) -> Array:
    program = recipe.programs.gradient if gradient else recipe.programs.value
    kernel = get_backend(recipe.backend).compile(program, "map")
    result = np.empty((program.n_outputs, partition.events))
    for chunk in StreamingPartition(recipe, partition).chunks():
        rows = np.empty((program.n_outputs, chunk.columns.shape[1]))
        kernel.map(chunk.columns, frontier, rows, weights=chunk.weights)
        start = chunk.first_event - partition.first_event
        result[:, start : start + chunk.events] = rows[:, : chunk.events]
    return result
