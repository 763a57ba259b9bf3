"""Counting the events of data sets whose number is not known, where they will be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from laddu_dask.data import Dataset
from laddu_dask.data.counting import Job, on_threads
from laddu_dask.errors import DataError
from laddu_dask.runtime.capacity import require_workers
from laddu_dask.runtime.execution import Execution
from laddu_dask.runtime.locality import Reach

#: Tasks per thread: enough to even out files of different size, and to see that work goes on.
TASKS_PER_THREAD = 8


def count_events(datasets: Iterable[Dataset], execution: Execution) -> None:
    """Make sure that the number of events is known, on the cluster if there is one.

    A data set that has been counted is left alone, so that each is read once for this in its life.

    Raises
    ------
    DataError
        A source cannot be read, or a condition is NaN.
    ExecutionError
        The cluster has no workers, or counts nothing for a long time.
    """
    left = {id(dataset): dataset for dataset in datasets if not dataset.is_counted}
    if not left:
        return
    if execution.cluster is None:
        for dataset in left.values():
            dataset.count(partial(on_threads, threads=execution.local_threads))
        return
    # Without a cluster nobody pays for it.
    from laddu_dask.runtime.cluster_hold import first_worker
    from laddu_dask.runtime.cluster_link import ask, connect

    client, owned = connect(execution.cluster)
    try:
        ask(client, first_worker, client, execution.patience)
        for dataset in left.values():
            dataset.count(partial(_on_workers, client))
    finally:
        if owned:
            client.close()


def _on_workers(client: Any, jobs: Sequence[Job]) -> list[int]:
    """Count in Dask tasks, each of which does several jobs in a row."""
    from laddu_dask.runtime.file_reach import ask_reach
    from laddu_dask.runtime.waiting import wait_for

    workers = client.scheduler_info(n_workers=-1)["workers"]
    require_workers(workers)
    reach = ask_reach(client, (job.stamp for job in jobs))
    most = TASKS_PER_THREAD * sum(worker["nthreads"] for worker in workers.values())
    futures = []
    for group, readers in _groups(jobs, reach, most):
        options = {} if readers is None else {"workers": [*readers]}
        try:
            futures.append(client.submit(_count_all, group, pure=False, **options))
        except TypeError as error:
            raise DataError(
                "the description of the events cannot be sent to the workers "
                f"({error.__cause__ or error}); a function that gives them must not hold open "
                "files, locks or connections"
            ) from error
    try:
        what = "counting events"
        counts = (wait_for(client, future, futures, what=what) for future in futures)
        return [rows for part in counts for rows in part]
    finally:
        client.cancel(futures)  # after an error the rest is not wanted


def _groups(
    jobs: Sequence[Job], reach: Reach, most: int
) -> Iterator[tuple[tuple[Job, ...], frozenset[str] | None]]:
    """Jobs in a row that the same workers can do, in about `most` groups."""
    size = -(-len(jobs) // most)

    def readers(job: Job) -> frozenset[str] | None:
        file = None if job.stamp is None else job.stamp.path
        return reach.readers([file]) if file in reach.problems else None

    for able, same in groupby(jobs, readers):
        together = tuple(same)
        for start in range(0, len(together), size):
            yield together[start : start + size], able


def _count_all(jobs: Sequence[Job]) -> list[int]:
    return [job() for job in jobs]
