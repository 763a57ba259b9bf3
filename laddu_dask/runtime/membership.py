"""News of workers that left or joined a cluster."""

from __future__ import annotations

from collections import deque
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from distributed import Client

from laddu_dask.runtime.worker_plugin import MEMBERSHIP_TOPIC


class Hints:
    """Workers that left or joined since one last looked; filled by the client's event loop."""

    def __init__(self) -> None:
        self.gone: deque[str] = deque()
        self.joined: deque[str] = deque()

    def take_gone(self) -> list[str]:
        """Return and forget the departures."""
        return [self.gone.popleft() for _ in range(len(self.gone))]

    def take_joined(self) -> list[str]:
        """Return and forget the arrivals."""
        return [self.joined.popleft() for _ in range(len(self.joined))]


_listeners: WeakKeyDictionary[Client, WeakSet[Hints]] = WeakKeyDictionary()
"""A client has one handler per topic, but may serve several sessions."""


def listen(client: Client, hints: Hints) -> None:
    """Have `hints` filled; again after a reconnection, which drops the subscription."""
    audience = _listeners.setdefault(client, WeakSet())
    audience.add(hints)

    def publish(event: Any) -> None:
        message = event[1] if isinstance(event, tuple | list) else event
        for listener in audience:
            if gone := message.get("gone"):
                listener.gone.append(gone)
            if joined := message.get("joined"):
                listener.joined.append(joined)

    client.subscribe_topic(MEMBERSHIP_TOPIC, publish)


def stop_listening(client: Client, hints: Hints) -> None:
    """End what `listen` began; the last one to leave cancels the subscription."""
    audience = _listeners.get(client)
    if audience is None:
        return
    audience.discard(hints)
    if not audience:
        del _listeners[client]
        client.unsubscribe_topic(MEMBERSHIP_TOPIC)
