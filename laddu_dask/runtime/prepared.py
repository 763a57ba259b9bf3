"""The prepared partitions of a session as Dask futures: spreading, second copies, moves.

Dask rebuilds what a dead worker held by itself, under the same key. What it cannot know is that a
worker it believes healthy does not answer; then a partition gets a second copy of its recipe under
a key of its own, which is released when the first copy's worker has proven itself again.

All methods run on the client's event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from typing import Any
from urllib.parse import urlsplit

from distributed import Client, KilledWorker

from laddu_dask.errors import ExecutionError, LadduError
from laddu_dask.runtime.cluster_link import ANSWER_SECONDS, out_of_memory_cure, silent_workers
from laddu_dask.runtime.worker_plugin import partition_key, prepare_partition

logger = logging.getLogger(__name__)

QUESTION_SECONDS = 2.0
"""Deadline of a question to the scheduler; the coordinator asks again."""

LOOK_SECONDS = 5.0
"""Longest pause between two looks for silent workers while nothing becomes ready."""

DEAD = ("cancelled", "lost")
"""States of a future after the client lost the scheduler's stream, whatever workers still hold."""


class PreparedPartitions:
    """Futures of the partitions `0 ... count - 1` of `session`.

    Parameters
    ----------
    wishes
        The worker that each partition is meant for; None: in turn.

    Attributes
    ----------
    readers
        Partition -> the workers that can read its files, for partitions that not all can read.
    planned
        Worker -> number of partitions that are meant for it; empty where they go in turn.
    copies
        Partition -> futures of its copies, the normal one first.
    rebuilt
        Second copies asked for so far.
    memory_limits
        Of the workers that were there in the beginning, in bytes.
    """

    def __init__(
        self,
        client: Client,
        session: str,
        count_: int,
        readers: Mapping[int, Collection[str]] | None = None,
        wishes: Sequence[str] | None = None,
    ) -> None:
        self.client = client
        self.readers = dict(readers or {})
        self.session = session
        self.copies: dict[int, list[Any]] = {partition: [] for partition in range(count_)}
        self.rebuilt = 0
        self._wishes = wishes
        self.planned = Counter(wishes or ())
        self.memory_limits: frozenset[int] = frozenset()
        self._numbers = {partition: count() for partition in self.copies}
        self._submitted_at: dict[int, float] = {}
        self._moves: dict[int, tuple[Any, float]] = {}

    def _submit(self, partition: int, **options: Any) -> Any:
        key = partition_key(self.session, partition, next(self._numbers[partition]))
        self._submitted_at[partition] = time.monotonic()
        if readers := self.readers.get(partition):
            # No wish any more: whoever else tried would fail.
            wished = [worker for worker in options.get("workers", ()) if worker in readers]
            anyone = options.get("allow_other_workers", False) or not wished
            options = {"workers": [*readers] if anyone else wished}
        return self.client.submit(
            prepare_partition, self.session, partition, key=key, pure=False, **options
        )

    # --------------------------------------------------------------------------- preparation

    async def submit_all(self) -> None:
        """Start to prepare everything, where it is planned or in proportion to workers' threads.

        The choice of workers is a wish: data that must not wait for one worker can go to any. With
        no worker yet (a cluster that scales from zero) the tasks wait, which makes it scale.
        """
        threads: Mapping[str, int] = await asyncio.wait_for(self.client.ncores(), ANSWER_SECONDS)
        silent = silent_workers(self.client)
        awake = {worker: n for worker, n in threads.items() if worker not in silent}
        turns = sorted(
            (turn, worker) for worker, n in (awake or threads).items() for turn in range(n)
        )
        for partition, copies in self.copies.items():
            wish = [turns[partition % len(turns)][1]] if turns else None
            if self._wishes is not None and self._wishes[partition] in threads:
                wish = [self._wishes[partition]]
            options = {"workers": wish, "allow_other_workers": True} if wish else {}
            copies.append(self._submit(partition, **options))

    async def wait(
        self, patience: float, silent: Callable[[], Awaitable[frozenset[str]]] | None = None
    ) -> None:
        """Wait until every partition is prepared.

        Parameters
        ----------
        patience
            Seconds without progress after which it fails.
        silent
            Finds workers that give no sign of life. What these were to prepare is prepared by
            others: to Dask they seem to be at work on it.

        Raises
        ------
        LadduError
            Of the failed recipe with the lowest number, as it was raised there: the same one
            whatever the order in which workers come to them.
        ExecutionError
            The recipe failed otherwise, or nothing became ready for `patience` seconds.
        OSError
            The scheduler does not answer.
        """
        pending = set(self.copies)
        progress = looked = time.monotonic()
        look = min(LOOK_SECONDS, patience / 4)
        pause = 0.002
        while pending:
            if self.client.status in ("closing", "closed"):
                raise ConnectionError(f"the Dask client is {self.client.status}")
            self.restore_cancelled()
            ready = {p for p in pending if self._settled(p)}
            failed = min((p for p in self.copies if self._failed(p)), default=None)
            if failed is not None:
                pending = {p for p in pending if p < failed}
                if not pending - ready and (failure := await self.recipe_failure([failed])):
                    raise failure
            now = time.monotonic()
            if ready:
                pending -= ready
                progress = looked = now
            elif now - progress > patience:
                raise ExecutionError(
                    f"{len(pending)} of {len(self.copies)} partitions are not prepared and none "
                    f"became ready for {now - progress:.0f} s; the cluster has "
                    f"{await self._count_workers()} workers. Look at the workers' logs, start "
                    "workers, or raise Execution(patience=...).",
                    option="cluster",
                )
            elif silent is not None and now - looked > look:
                with suppress(OSError):
                    await self.restore_stranded(pending)
                await self._prepare_elsewhere(pending, await silent(), patience / 4)
                looked = time.monotonic()
            if pending:
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.1)

    def _settled(self, partition: int) -> bool:
        copies = self.copies[partition]
        return self._failed(partition) or any(copy.status == "finished" for copy in copies)

    def _failed(self, partition: int) -> bool:
        return bool(self.copies[partition]) and self.copies[partition][-1].status == "error"

    async def _count_workers(self) -> str:
        try:
            return str(len(await asyncio.wait_for(self.client.ncores(), QUESTION_SECONDS)))
        except OSError:
            return "an unknown number of"

    async def _prepare_elsewhere(
        self, pending: Collection[int], silent: frozenset[str], guard: float
    ) -> None:
        """Second copies of what silent workers have been given and not prepared."""
        if not silent:
            return
        with suppress(OSError):  # looked at again soon
            given = await asyncio.wait_for(
                self.client.processing(workers=[*silent]), QUESTION_SECONDS
            )
            keys = {key for queue in given.values() for key in queue}
            stuck = [p for p in pending if any(copy.key in keys for copy in self.copies[p])]
            logger.warning("workers %s do not answer", ", ".join(sorted(silent)))
            await self.rebuild(stuck, silent, guard)

    async def recipe_failure(self, partitions: Iterable[int]) -> LadduError | None:
        """The error of the newest copy of one of `partitions`, if a recipe failed."""
        for partition in partitions:
            if self.copies[partition][-1].status == "error":
                error = await self.copies[partition][-1].exception()
                return _explain(partition, error, self.memory_limits)
        return None

    # ---------------------------------------------------------------------------- ownership

    async def owners(self, partitions: Iterable[int]) -> dict[int, tuple[str, ...]]:
        """Dask's table of who holds which partition, over all copies.

        Raises
        ------
        OSError, TimeoutError
            The scheduler does not answer.
        """
        asked = {p: [c for c in self.copies[p] if c.status not in DEAD] for p in partitions}
        table = await self._who_has([*chain.from_iterable(asked.values())])
        return {
            p: tuple(dict.fromkeys(w for copy in copies for w in table.get(copy.key, ())))
            for p, copies in asked.items()
        }

    async def _who_has(self, futures: list[Any]) -> Mapping[str, Collection[str]]:
        if self.client.status != "running":
            raise ConnectionError(f"the Dask client is {self.client.status}")
        table: Mapping[str, Collection[str]] = await asyncio.wait_for(
            self.client.who_has(futures), QUESTION_SECONDS
        )
        return table

    def restore_cancelled(self) -> bool:
        """Submit anew what a lost connection to the scheduler cancelled; whether there was any."""
        found = False
        if self.client.status != "running":
            return found
        for partition, copies in self.copies.items():
            if any(copy.status in DEAD for copy in copies):
                alive = [copy for copy in copies if copy.status not in DEAD]
                self.copies[partition] = alive or [self._submit(partition)]
                found = True
        return found

    async def restore_stranded(self, partitions: Iterable[int]) -> None:
        """Submit anew what waits for workers that are gone.

        A wish outlives the worker that it names: when all workers were gone for a moment, a task
        waits for that one for ever, also one that others may run. Of partitions that only some
        workers can read, a nanny's new worker is one by another address on the same machine.

        Raises
        ------
        OSError
            The scheduler does not answer.
        """
        keys = {copies[-1].key: p for p in partitions if (copies := self.copies[p])}
        question = self.client.run_on_scheduler(_stranded, keys=[*keys])
        stranded: list[str] = await asyncio.wait_for(question, QUESTION_SECONDS)
        if not stranded:
            return
        workers = await asyncio.wait_for(self.client.ncores(), QUESTION_SECONDS)
        for partition in map(keys.__getitem__, stranded):
            if readers := self.readers.get(partition):
                hosts = {urlsplit(reader).hostname for reader in readers}
                heirs = [worker for worker in workers if urlsplit(worker).hostname in hosts]
                if not heirs:
                    continue  # nobody else can read it
                self.readers[partition] = heirs
            self._keep_only(partition, self._submit(partition))

    # ------------------------------------------------------------------------------- copies

    async def rebuild(
        self, partitions: Iterable[int], avoid: Collection[str], guard: float
    ) -> None:
        """Run the recipes once more, outside `avoid`, else anywhere but where they are now.

        A second copy that is younger than `guard` seconds and still being built is not doubled:
        reading a partition may take longer than it takes to grow impatient.
        """
        workers = await asyncio.wait_for(self.client.ncores(), QUESTION_SECONDS)
        preferred = [w for w in workers if w not in avoid]
        wanted = []
        for partition in partitions:
            newest = self.copies[partition][-1]
            age = time.monotonic() - self._submitted_at[partition]
            if not (len(self.copies[partition]) > 1 and newest.status == "pending" and age < guard):
                wanted.append(partition)
        held = {} if preferred or not wanted else await self.owners(wanted)
        for partition in wanted:
            elsewhere = preferred or [w for w in workers if w not in held[partition]]
            if elsewhere:
                self.rebuilt += 1
                self.copies[partition].append(self._submit(partition, workers=elsewhere))

    async def release_copies(self, trusted: Collection[str]) -> dict[int, tuple[str, ...]]:
        """Release second copies whose first copy is held by a worker that proved itself.

        Returns
        -------
        dict
            The owners of the partitions that have one copy again.
        """
        first = {
            partition: copies[0]
            for partition, copies in self.copies.items()
            if len(copies) > 1 and copies[0].status not in DEAD
        }
        if not first:
            return {}
        table = await self._who_has([*first.values()])
        single = {}
        for partition, future in first.items():
            holders = tuple(w for w in table.get(future.key, ()) if w in trusted)
            if holders:
                self._keep_only(partition, future)
                single[partition] = holders
        return single

    def _keep_only(self, partition: int, kept: Any) -> None:
        for copy in self.copies[partition]:
            if copy is not kept:
                copy.release()
        self.copies[partition] = [kept]

    # -------------------------------------------------------------------------------- moves

    @property
    def moving(self) -> bool:
        """Whether moves are under way."""
        return bool(self._moves)

    def move_towards(
        self, shares: Mapping[str, int], owners: Mapping[int, tuple[str, ...]]
    ) -> bool:
        """Start to move partitions from workers with more than their share to those with fewer.

        The recipes run at the new place in the background; `adopt_moves` takes them over when they
        are ready.

        Parameters
        ----------
        shares
            Partitions that each worker should hold; workers that are not in it stay as they are.
        owners
            Who holds what, the one that is used first.

        Returns
        -------
        bool
            Whether there was anything to move.
        """
        held = partitions_of(shares, owners)
        surplus = [p for worker, ps in held.items() for p in ps[shares[worker] :]]
        for worker, partitions in held.items():
            for _ in range(shares[worker] - len(partitions)):
                if surplus:
                    partition = surplus.pop()
                    future = self._submit(partition, workers=[worker], allow_other_workers=True)
                    self._moves[partition] = future, time.monotonic()
        return self.moving

    async def adopt_moves(self, patience: float) -> dict[int, tuple[str, ...]]:
        """Let finished moves replace the copies before; return the new owners.

        Moves that take longer than `patience` seconds are given up.
        """
        moved = []
        for partition, (future, began) in list(self._moves.items()):
            late = time.monotonic() - began > patience
            if future.status == "pending" and not late:
                continue
            del self._moves[partition]
            if future.status == "finished":
                self._keep_only(partition, future)
                moved.append(partition)
            else:
                logger.warning(
                    "partition %d stays where it is: moving it ended as %s",
                    partition,
                    "too late" if late else future.status,
                )
                future.release()
        return await self.owners(moved) if moved else {}

    # ---------------------------------------------------------------------------------- end

    def release(self) -> tuple[str, ...]:
        """Let the cluster forget everything; returns the keys of what it should forget."""
        moves = [future for future, _ in self._moves.values()]
        futures = [*chain.from_iterable(self.copies.values()), *moves]
        for future in futures:
            future.release()
        self.copies = {partition: [] for partition in self.copies}
        self._moves = {}
        return tuple(future.key for future in futures)


def _stranded(dask_scheduler: Any, keys: Collection[str]) -> list[str]:
    """Body of a `client.run_on_scheduler`: tasks that wait for workers that are gone."""
    workers = dask_scheduler.workers
    found = []
    for key in keys:
        task = dask_scheduler.tasks.get(key)
        if workers and task is not None and task.state == "no-worker":
            wanted = task.worker_restrictions or ()
            if wanted and not any(worker in workers for worker in wanted):
                found.append(key)
    return found


def partitions_of(
    workers: Iterable[str], owners: Mapping[int, tuple[str, ...]]
) -> dict[str, list[int]]:
    """Partitions by the first of `workers` that holds each; those of others are left out."""
    held: dict[str, list[int]] = {worker: [] for worker in workers}
    for partition, holders in owners.items():
        if first := next((worker for worker in holders if worker in held), None):
            held[first].append(partition)
    return held


def _explain(partition: int, error: BaseException, limits: Collection[int]) -> LadduError:
    if isinstance(error, LadduError):
        return error
    if isinstance(error, KilledWorker):
        text = (
            f"the workers that prepared partition {partition} died, several times over: "
            f"{_first_sentence(error)} {out_of_memory_cure(limits)}"
        )
        failure = ExecutionError(text, option="memory", partition=partition)
    else:
        text = f"preparing partition {partition} failed with {type(error).__name__}: {error}"
        failure = ExecutionError(text, option="cluster", partition=partition)
    failure.__cause__ = error
    return failure


def _first_sentence(error: BaseException) -> str:
    return str(error).split(". ")[0].rstrip(".") + "."
