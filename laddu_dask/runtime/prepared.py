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
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, count
from typing import Any

from distributed import Client, KilledWorker

from laddu_dask.errors import ExecutionError, LadduError
from laddu_dask.runtime.worker_plugin import partition_key, prepare_partition

logger = logging.getLogger(__name__)

QUESTION_SECONDS = 2.0
"""Deadline of a question to the scheduler; the coordinator asks again."""

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
    copies
        Partition -> futures of its copies, the normal one first.
    rebuilt
        Second copies asked for so far.
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
        self.readers = readers or {}
        self.session = session
        self.copies: dict[int, list[Any]] = {partition: [] for partition in range(count_)}
        self.rebuilt = 0
        self._wishes = wishes
        self._numbers = {partition: count() for partition in self.copies}
        self._submitted_at: dict[int, float] = {}
        self._moves: dict[int, Any] = {}

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
        threads: Mapping[str, int] = await self.client.ncores()
        turns = sorted((turn, worker) for worker, n in threads.items() for turn in range(n))
        for partition, copies in self.copies.items():
            wish = [turns[partition % len(turns)][1]] if turns else None
            if self._wishes is not None and self._wishes[partition] in threads:
                wish = [self._wishes[partition]]
            options = {"workers": wish, "allow_other_workers": True} if wish else {}
            copies.append(self._submit(partition, **options))

    async def wait(self, patience: float) -> None:
        """Wait until every partition is prepared.

        Raises
        ------
        LadduError
            Of the failed recipe with the lowest number, as it was raised there: the same one
            whatever the order in which workers come to them.
        ExecutionError
            The recipe failed otherwise, or nothing became ready for `patience` seconds.
        """
        pending = set(self.copies)
        progress = time.monotonic()
        pause = 0.002
        while pending:
            self.restore_cancelled()
            ready = {p for p in pending if self.copies[p][-1].status not in ("pending", *DEAD)}
            failed = min(
                (p for p, copies in self.copies.items() if copies[-1].status == "error"),
                default=None,
            )
            if failed is not None:
                pending = {p for p in pending if p < failed}
                if not pending - ready and (failure := await self.recipe_failure([failed])):
                    raise failure
            if ready:
                pending -= ready
                progress = time.monotonic()
            elif (waited := time.monotonic() - progress) > patience:
                workers = await self.client.ncores()
                raise ExecutionError(
                    f"{len(pending)} of {len(self.copies)} partitions are not prepared and none "
                    f"became ready for {waited:.0f} s; the cluster has {len(workers)} workers. "
                    "Look at the workers' logs, start workers, or raise patience.",
                    option="cluster",
                )
            if pending:
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.1)

    async def recipe_failure(self, partitions: Iterable[int]) -> LadduError | None:
        """The error of the newest copy of one of `partitions`, if a recipe failed."""
        for partition in partitions:
            if self.copies[partition][-1].status == "error":
                error = await self.copies[partition][-1].exception()
                return _explain(partition, error)
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

    async def spread(self, owners: Mapping[int, tuple[str, ...]]) -> bool:
        """Start to move partitions to workers that hold fewer than their share.

        After a worker joined, or was restarted empty, evaluations would go at the speed of the
        others for good. The recipes run at the new place in the background; `adopt_moves` takes
        them over when they are ready.

        Returns
        -------
        bool
            Whether there was anything to move.
        """
        threads: Mapping[str, int] = await asyncio.wait_for(self.client.ncores(), QUESTION_SECONDS)
        held: dict[str, list[int]] = {worker: [] for worker in threads}
        for partition, workers in owners.items():
            if workers and workers[0] in held:
                held[workers[0]].append(partition)
        total = sum(map(len, held.values()))
        share = {w: total * n // sum(threads.values()) for w, n in threads.items()}
        surplus = [p for w, ps in held.items() for p in ps[share[w] :]]
        for worker, partitions in held.items():
            for _ in range(share[worker] - len(partitions)):
                if surplus:
                    partition = surplus.pop()
                    self._moves[partition] = self._submit(
                        partition, workers=[worker], allow_other_workers=True
                    )
        return self.moving

    async def adopt_moves(self) -> dict[int, tuple[str, ...]]:
        """Let finished moves replace the copies before; return the new owners."""
        moved = []
        for partition, future in list(self._moves.items()):
            if future.status == "pending":
                continue
            del self._moves[partition]
            if future.status == "finished":
                self._keep_only(partition, future)
                moved.append(partition)
            else:
                logger.warning(
                    "partition %d stays where it is: moving it ended as %s",
                    partition,
                    future.status,
                )
        return await self.owners(moved) if moved else {}

    # ---------------------------------------------------------------------------------- end

    def release(self) -> tuple[str, ...]:
        """Let the cluster forget everything; returns the keys of what it should forget."""
        futures = [*chain.from_iterable(self.copies.values()), *self._moves.values()]
        for future in futures:
            future.release()
        self.copies = {partition: [] for partition in self.copies}
        self._moves = {}
        return tuple(future.key for future in futures)


def _explain(partition: int, error: BaseException) -> LadduError:
    if isinstance(error, LadduError):
        return error
    if isinstance(error, KilledWorker):
        text = (
            f"the workers that prepared partition {partition} died, several times over: {error}. "
            "Most often they ran out of memory: use more partitions or a smaller memory budget."
        )
    else:
        text = f"preparing partition {partition} failed with {type(error).__name__}: {error}"
    failure = ExecutionError(text, option="cluster", partition=partition)
    failure.__cause__ = error
    return failure
