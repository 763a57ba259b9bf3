"""What keeps a cluster from closing or shrinking while a session uses it.

Direct evaluations are invisible to the scheduler. It would take a cluster in the middle of a fit
for idle and, with an idle timeout, close it; and an adaptive cluster would retire workers that hold
the events of the fit. Before that, one that has no workers yet is asked for one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client

from laddu_dask.runtime.cluster_link import ANSWER_SECONDS

logger = logging.getLogger(__name__)

ALIVE_SECONDS = 30.0
"""Pause between two signs of life when the scheduler has no or a long idle timeout."""


class ClusterHold:
    """Signs of life to the scheduler, and a minimum for a cluster that adapts.

    Parameters
    ----------
    client
        Connected to the cluster.
    session
        Part of the names of the tasks.
    """

    def __init__(self, client: Client, session: str) -> None:
        self.client = client
        self.session = session
        self.every = ALIVE_SECONDS
        self._at = time.monotonic()
        self._sign: Any = None
        self._adaptive: Any = None

    def know_idle_timeout(self, seconds: float | None) -> None:
        """Take into account after how long the scheduler gives up; a first sign of life at once."""
        if seconds:
            self.every = min(ALIVE_SECONDS, seconds / 3)
            self._at = -math.inf  # to prepare the events may take longer than that
            self.keep_alive()

    def keep_alive(self) -> None:
        """Show the scheduler, every now and then, that the cluster is in use."""
        now = time.monotonic()
        if now - self._at > self.every and self.client.status == "running":
            self._at = now
            key = f"laddu-alive:{self.session}:{uuid.uuid4().hex[:8]}"
            self._sign = self.client.submit(_sign_of_life, key=key, pure=False)

    def keep_workers(self, workers: int) -> None:
        """Have an adaptive cluster keep at least so many workers until `release`.

        Only where the cluster object is at hand; a cluster that somebody else adapts may shrink,
        which costs time and no more.
        """
        adaptive = getattr(getattr(self.client, "cluster", None), "_adaptive", None)
        if adaptive is None or not hasattr(adaptive, "minimum"):
            return
        self._adaptive = adaptive
        _demand(adaptive, self.session, workers)

    def release(self) -> None:
        """Give up all of it."""
        if self._sign is not None:
            self._sign.release()
        if self._adaptive is not None:
            _demand(self._adaptive, self.session, 0)
            self._adaptive = None


def _sign_of_life() -> None:
    """A task that does nothing, visibly."""


async def first_worker(client: Client, patience: float) -> None:
    """Wait for a worker where there is none: one may be starting, or the cluster adapts.

    Raises
    ------
    OSError
        The scheduler does not answer.
    """
    end = time.monotonic() + patience
    wanted = None
    try:
        while not await asyncio.wait_for(client.ncores(), ANSWER_SECONDS):
            if wanted is None:
                logger.warning(
                    "the cluster has no workers; waiting for one, at most %.0f s", patience
                )
                key = f"laddu-alive:{uuid.uuid4().hex[:12]}"
                wanted = client.submit(_sign_of_life, key=key, pure=False)
            if time.monotonic() > end:
                return
            await asyncio.sleep(min(0.1, patience / 4))
    finally:
        if wanted is not None:
            wanted.release()


_demands: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()
"""Workers that each session needs of an adaptive cluster."""
_own_minimum: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def _demand(adaptive: Any, session: str, workers: int) -> None:
    """The minimum is the cluster's own, or what a session needs if that is more."""
    demands = _demands.setdefault(adaptive, {})
    if not demands:
        _own_minimum[adaptive] = adaptive.minimum
    demands[session] = workers
    if not workers:
        del demands[session]
    wanted = max([_own_minimum[adaptive], *demands.values()])
    adaptive.minimum = int(min(wanted, max(adaptive.maximum, _own_minimum[adaptive])))
