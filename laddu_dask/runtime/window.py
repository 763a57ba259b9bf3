"""How many events may be worked on at once where every event has results of its own."""

from __future__ import annotations

from laddu_dask.compiler import EventPrograms
from laddu_dask.compiler.precision import BYTES
from laddu_dask.data import DEFAULT_BATCH_ROWS, Dataset
from laddu_dask.memory.footprint import Footprint, fit_chunk
from laddu_dask.runtime.capacity import Capacity, local_capacity
from laddu_dask.runtime.execution import Execution

#: Partitions that a cluster works on ahead of the one that is wanted, per thread: results wait here
#: for their turn, and more of them would only take memory.
AHEAD = 2
#: What users get of a number of the program: a complex value, a copy of it, and room for what they
#: make of it.
_RESULT_BYTES = 64
_FIXED_BYTES = 4096


def bytes_per_event(
    programs: EventPrograms, dataset: Dataset, points: int, outputs: int, *, waiting: int
) -> int:
    """Memory that one event takes while it is worked on.

    Parameters
    ----------
    programs, dataset
        What is prepared, from what.
    points, outputs
        Parameter points, and rows of the program for each.
    waiting
        Blocks of results in one process, beside the one that is made, for each thread.
    """
    source = dataset.source_bytes_per_event(programs.columns) + 8
    prepared = 8 * (programs.prepare.n_outputs + 1) + BYTES[programs.precision] * programs.n_cached
    results = points * (8 * outputs * (1 + waiting) + _RESULT_BYTES)
    return 2 * source + prepared + results


def events_at_once(
    programs: EventPrograms, dataset: Dataset, execution: Execution, points: int, outputs: int
) -> int:
    """Longest block that fits the budget, and no longer than is useful.

    Raises
    ------
    MemoryBudgetError
        Not even one event fits; nothing has been read.
    """
    if not dataset.n_events:
        return DEFAULT_BATCH_ROWS
    capacity = _capacity(execution)
    waiting = 0 if execution.cluster is None else AHEAD
    each = bytes_per_event(programs, dataset, points, outputs, waiting=waiting)
    share = min(process.budget // process.threads for process in capacity.processes)
    fit = fit_chunk(
        "one event and its values", Footprint(_FIXED_BYTES, each), share, DEFAULT_BATCH_ROWS
    )
    return fit.chunk_events


def _capacity(execution: Execution) -> Capacity:
    if execution.cluster is None:
        return local_capacity(execution)
    # Imported here: without a cluster nobody pays for it.
    from laddu_dask.runtime.cluster_link import connect
    from laddu_dask.runtime.scheduler_planner import capacity_of

    client, owned = connect(execution.cluster)
    try:
        return capacity_of(client, execution.memory, execution.patience)
    finally:
        if owned:
            client.close()
