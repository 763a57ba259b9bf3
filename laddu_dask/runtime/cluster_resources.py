"""What a session holds on a cluster, and how it is given back."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from distributed import Client

from laddu_dask.runtime.cluster_hold import ClusterHold
from laddu_dask.runtime.cluster_link import is_forked
from laddu_dask.runtime.membership import Hints, stop_listening
from laddu_dask.runtime.prepared import PreparedPartitions
from laddu_dask.runtime.scheduler_planner import close_account

CLOSE_SECONDS = 5.0


class SessionResources:
    """What a session holds on the cluster; apart from it, so that it can be finalized."""

    def __init__(
        self,
        client: Client,
        owned: bool,
        session: str,
        prepared: PreparedPartitions,
        hints: Hints,
        hold: ClusterHold,
    ) -> None:
        self.client = client
        self.owned = owned
        self.session = session
        self.prepared = prepared
        self.hints = hints
        self.hold = hold

    def close(self) -> None:
        """Release and wait for it; a cluster that is gone needs no releasing.

        In a fork all of it belongs to the parent.
        """
        if is_forked(self.client):
            return
        if self.client.status == "running" and not self.client.asynchronous:
            with suppress(OSError):
                self.client.sync(self._release, callback_timeout=CLOSE_SECONDS)
        self.hold.release()
        if self.owned:
            self.client.close()

    def abandon(self) -> None:
        """The same from the garbage collector, which may run in any thread: never wait."""
        loop = self.client.loop
        if self.client.status == "running" and loop is not None and not is_forked(self.client):
            loop.add_callback(self._release_and_close)

    async def _release(self) -> None:
        keys = self.prepared.release()
        self.hold.release()
        stop_listening(self.client, self.hints)
        await close_account(self.client, self.session, keys)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._forgotten(keys), CLOSE_SECONDS)

    async def _forgotten(self, keys: tuple[str, ...]) -> None:
        """Return when the scheduler knows none of the keys: it is told in batches, not at once."""
        scheduler = self.client.scheduler
        while scheduler is not None and any((await scheduler.who_has(keys=keys)).values()):
            await asyncio.sleep(0.002)

    async def _release_and_close(self) -> None:
        with suppress(OSError):
            await self._release()
        if self.owned:
            await self.client.close()
