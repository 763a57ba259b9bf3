"""Asking workers which files they can read, and bringing the rows that have to travel."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from distributed.protocol.pickle import dumps

from laddu_dask.data import Fragment
from laddu_dask.data.fetched import FetchedFragment, fetched
from laddu_dask.data.footer import FileStamp, check_unchanged
from laddu_dask.data.selected import function_of
from laddu_dask.errors import DataError, ExecutionError
from laddu_dask.runtime.cluster_link import ask, ask_each
from laddu_dask.runtime.locality import Placement, Reach, place, wishes
from laddu_dask.runtime.partitions import Partition
from laddu_dask.runtime.payload import ReductionPayload

#: Seconds for the answer of a worker: thousands of files may lie on a slow file system. Whoever
#: does not answer is not kept from reading, and will tell by an error if it cannot.
ANSWER_SECONDS = 60.0
#: Seconds for rows that travel to be read, after everything before them.
FETCH_SECONDS = 300.0


def problems_here(stamps: Sequence[FileStamp]) -> dict[str, str]:
    """The files that this process cannot read as they were, and why."""
    found = {}
    for stamp in stamps:
        try:
            check_unchanged(stamp)
        except DataError as error:
            found[stamp.path] = str(error).partition(". ")[0].removeprefix(f"{stamp.path} ")
    return found


def ask_reach(client: Any, stamps: Iterable[FileStamp | None]) -> Reach:
    """Ask every worker once about all files.

    Raises
    ------
    DataError
        A file that this process can read and no worker can.
    ExecutionError
        The cluster does not answer.
    """
    asked = tuple(dict.fromkeys(stamp for stamp in stamps if stamp is not None))
    if not asked:
        return Reach(frozenset(), {})
    answers = ask(client, _ask, client, asked)
    problems: dict[str, dict[str, str]] = {}
    for worker, answer in answers.items():
        for file, problem in answer.items():
            problems.setdefault(file, {})[worker] = problem
    # What changed for this process as well is no matter of places: reading tells what happened.
    everywhere = [s for s in asked if len(problems.get(s.path, ())) == len(answers)]
    for path in problems_here(everywhere):
        problems.pop(path, None)
    ordered = {stamp.path: problems[stamp.path] for stamp in asked if stamp.path in problems}
    reach = Reach(frozenset(answers), ordered)
    if answers:
        reach.refuse_unreadable()
    return reach


async def _ask(client: Any, stamps: tuple[FileStamp, ...]) -> dict[str, dict[str, str]]:
    workers = [*await asyncio.wait_for(client.ncores(), ANSWER_SECONDS)]

    async def problems_of(worker: str) -> Any:
        answers = await client.run(problems_here, stamps, workers=[worker], on_error="return")
        return answers.get(worker)

    answers = await ask_each(client, workers, problems_of, ANSWER_SECONDS, ANSWER_SECONDS)
    # Nothing else than a table comes of whoever is too late, or gone in this moment.
    return {w: answer if isinstance(answer, dict) else {} for w, answer in answers.items()}


def reach_of(client: Any, partitions: Iterable[Partition]) -> Reach:
    """What workers say about the files of partitions.

    Raises
    ------
    DataError
        A file that no worker can read, or a function that gives events and cannot be sent.
    """
    fragments = [part for item in partitions for part in item.fragments]
    _refuse_stuck_functions(fragments)
    return ask_reach(client, (part.stamp for part in fragments))


def within_reach(
    client: Any, payload: ReductionPayload
) -> tuple[ReductionPayload, dict[int, Collection[str]]]:
    """The payload as this cluster can prepare it; see `reachable`."""
    partitions, readers = reachable(
        client,
        [task.partition for task in payload.tasks],
        [payload.recipes[task.pass_index].programs.columns for task in payload.tasks],
    )
    tasks = zip(payload.tasks, partitions, strict=True)
    moved = tuple(replace(task, partition=partition) for task, partition in tasks)
    return replace(payload, tasks=moved), readers


def reachable(
    client: Any, partitions: Sequence[Partition], columns: Sequence[Sequence[str]]
) -> tuple[list[Partition], dict[int, Collection[str]]]:
    """Partitions as this cluster can read them.

    Parameters
    ----------
    client
        Connected to the cluster.
    partitions, columns
        What will be read, and the columns of it.

    Returns
    -------
    partitions
        The same events; rows that have to travel are there.
    readers
        The workers for partitions that not every worker can read, by number.

    Raises
    ------
    DataError
        A file that no worker can read, a partition whose files no worker can read all of, or a
        function that gives events and cannot be sent.
    """
    reach = reach_of(client, partitions)
    placements = [place(partition, reach) for partition in partitions]
    found = list(partitions)
    for number, (partition, placement) in enumerate(zip(partitions, placements, strict=True)):
        if placement.travelling:
            parts = _brought(client, partition.fragments, placement, columns[number], reach)
            found[number] = replace(partition, fragments=parts)
    return found, wishes(placements)


def _refuse_stuck_functions(fragments: Iterable[Fragment]) -> None:
    """DataError for a source whose function does not pickle, before Dask stumbles over it."""
    seen: set[int] = set()
    for fragment in fragments:
        source = function_of(fragment)
        if source is None or id(source) in seen:
            continue
        seen.add(id(source))
        try:
            dumps(source)
        except Exception as error:
            raise DataError(
                f"the function that gives {source.name} cannot be sent to the workers "
                f"({type(error).__name__}: {error}); let it open what it needs by itself, instead "
                "of holding open files, locks or connections"
            ) from error


def _brought(
    client: Any,
    fragments: tuple[Fragment, ...],
    placement: Placement,
    columns: Sequence[str],
    reach: Reach,
) -> tuple[Fragment, ...]:
    futures = {
        position: client.submit(
            fetched,
            fragments[position],
            columns,
            workers=[*reach.readers([fragments[position].file])],
            pure=False,
        )
        for position in placement.travelling
    }
    parts = list(fragments)
    for position, future in futures.items():
        try:
            found: FetchedFragment = future.result(timeout=FETCH_SECONDS)
        except TimeoutError as error:
            raise ExecutionError(
                f"{fragments[position].rows} rows of {fragments[position].label} were not read "
                f"for {FETCH_SECONDS:.0f} s on a worker that can; look at the workers' logs",
                option="cluster",
            ) from error
        parts[position] = found
    return tuple(parts)
