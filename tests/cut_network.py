"""A relay in front of a server, so that the network between two processes can fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any


class Relay:
    """Passes bytes on, until it is told not to.

    `hole()` keeps every connection and swallows what is sent, as a firewall or a dead switch does:
    no end of the connection learns of it. `cut()` resets connections, and refuses new ones.
    `heal()` ends both; what was swallowed is delivered then, as by a network that came back.

    Parameters
    ----------
    target
        Port of the server on this machine.

    Attributes
    ----------
    port
        Where it listens.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.refuses: Callable[[int], bool] = lambda port: False
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._listen())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.result(timeout=30)

    async def _listen(self) -> None:
        self._passing = asyncio.Event()
        self._passing.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")[1]
        if self._cut or self.refuses(peer):
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._passing.wait()
                writer.write(data)
                await writer.drain()
        with suppress(OSError):
            writer.close()
        self._writers.discard(writer)

    def hole(self) -> None:
        """Swallow everything from now on."""
        self._run(self._set(passing=False, cut=False))

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._run(self._set(passing=True, cut=True))

    def heal(self) -> None:
        """Pass everything on again."""
        self._run(self._set(passing=True, cut=False))

    async def _set(self, *, passing: bool, cut: bool) -> None:
        self._cut = cut
        if cut:
            for writer in self._writers:
                writer.transport.abort()
            self._writers.clear()
        if passing:
            self._passing.set()
        else:
            self._passing.clear()

    def close(self) -> None:
        """Reset everything and stop."""
        self.cut()
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=30)
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
