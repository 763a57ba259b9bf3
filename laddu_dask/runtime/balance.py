"""Who holds how many partitions: moves after workers joined or left, or turned out to be slow."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from statistics import median

from distributed import Client

from laddu_dask.runtime.cluster_hold import ClusterHold
from laddu_dask.runtime.cluster_view import PACES_KEPT, ClusterView
from laddu_dask.runtime.membership import Hints
from laddu_dask.runtime.prepared import QUESTION_SECONDS, PreparedPartitions, partitions_of
from laddu_dask.runtime.shares import shares_by_pace, shares_by_threads, within_plan

logger = logging.getLogger(__name__)

SPREADS = 3
"""Attempts at even shares after workers joined or left. Dask has the last word on where a recipe
runs; a cluster that it does not want to be even is left in peace."""
PACE_SECONDS = 5.0
"""Pause between two looks at the paces of workers. It doubles with every move that follows: where
moves do not help, as onto a worker without room, there is no to and fro."""


class Balance:
    """Keeps the shares of workers even, in the time that they take.

    Parameters
    ----------
    client, prepared, view, hints, hold
        Of the session.
    move_patience
        Seconds after which a move is given up.
    """

    def __init__(
        self,
        client: Client,
        prepared: PreparedPartitions,
        view: ClusterView,
        hints: Hints,
        hold: ClusterHold,
        move_patience: float,
    ) -> None:
        self.client = client
        self.prepared = prepared
        self.view = view
        self.hints = hints
        self.hold = hold
        self.move_patience = move_patience
        self._spreads_left = 0
        self._looked = time.monotonic()
        self._pause = PACE_SECONDS

    def membership_changed(self) -> None:
        """Workers left; what they held lies with others now, however unevenly."""
        self._spreads_left = SPREADS

    async def follow(self) -> None:
        """Take over partitions that were moved; start to move others.

        Before an evaluation, in which everything is used as it lies then.
        """
        joined = self.hints.take_joined()
        if joined:
            self._spreads_left = SPREADS
        with suppress(OSError):  # an improvement, that can wait for a scheduler
            moved = await self.prepared.adopt_moves(self.move_patience)
            if moved:
                self.view.owners.update(moved)
                self.view.paces.clear()  # they were those of other shares
            if joined:
                self.hold.keep_workers(len(await self._threads()))
            if self.prepared.moving or not all(self.view.owners.values()):
                return
            if self._spreads_left:
                started = await self._spread()
                self._spreads_left = self._spreads_left - 1 if started else 0
            elif time.monotonic() - self._looked > self._pause:
                self._looked = time.monotonic()
                await self._relieve()

    async def _threads(self) -> Mapping[str, int]:
        threads: Mapping[str, int] = await asyncio.wait_for(self.client.ncores(), QUESTION_SECONDS)
        return threads

    async def _spread(self) -> bool:
        """Even shares among workers that are not under suspicion."""
        now = time.monotonic()
        threads = {
            worker: n
            for worker, n in (await self._threads()).items()
            if self.view.slow_until.get(worker, now) <= now
        }
        held = partitions_of(threads, self.view.owners)
        if not threads:
            return False
        shares = shares_by_threads(sum(map(len, held.values())), threads)
        return self._move_towards(shares)

    async def _relieve(self) -> None:
        """Smaller shares for workers that turned out slow, and larger ones when they recover."""
        held = partitions_of(self.view.paces, self.view.owners)
        known = {w: median(paces) for w, paces in self.view.paces.items() if held[w]}
        measured = all(len(self.view.paces[worker]) == PACES_KEPT for worker in known)
        if not measured or set(known) != {w for ws in self.view.owners.values() for w in ws[:1]}:
            return
        shares = shares_by_pace({worker: len(held[worker]) for worker in known}, known)
        if shares is not None:
            logger.info("partitions move off slow workers: %s", shares)
            self._move_towards(shares)
            self._pause *= 2

    def _move_towards(self, shares: Mapping[str, int]) -> bool:
        """Where workers differ in memory, speed is not all."""
        if self.prepared.planned:
            shares = within_plan(shares, self.prepared.planned)
        return self.prepared.move_towards(shares, self.view.owners)
