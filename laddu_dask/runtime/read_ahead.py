"""Reading the next chunk while the one before is worked on.

A reader is a thread that takes items from a source, one ahead of who uses them. It does nothing
else: a pass takes the time of the slower side, of reading or of working, whichever that is.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from laddu_dask.errors import ExecutionError

Read = TypeVar("Read")

#: Items that exist at once: the one in use, and the one that is read or waits.
_AT_ONCE = 2

#: What the reader says: here is an item; or there was an error, or the source has ended.
_READ, _FAILED, _ENDED = range(3)


def items_of(
    source: Callable[[], Generator[Read, None, None]], *, ahead: bool
) -> AbstractContextManager[Iterator[Read]]:
    """The items of a source, for a ``with`` statement, which ends reading when it is left.

    `ahead` says whether a thread reads ahead; it would do nothing for items that cost nothing to
    read, or for a single one.
    """
    return closing(ReadAhead(source)) if ahead else closing(source())


class ReadAhead(Generic[Read]):
    """Items of a source that a thread of its own reads; use it with `closing`.

    Items, their order, and errors are those of ``source()``: what was read before an error is
    delivered before it. The thread starts with the first item that is asked for. It ends with the
    source, or when the iterator is closed or forgotten.

    Parameters
    ----------
    source
        Makes the generator, in the thread that reads.
    """

    def __init__(self, source: Callable[[], Generator[Read, None, None]]) -> None:
        self._shared = _Shared()
        # The thread knows only what is shared, so that it does not keep a forgotten iterator alive.
        self._thread = threading.Thread(
            target=_read, args=(self._shared, source), name="laddu-reader", daemon=True
        )
        self._process: int | None = None
        self._over = False
        # Runs at exit too: a thread must not come back from a decoder when Python is gone.
        self._stop = weakref.finalize(self, _stop, self._shared, self._thread)

    def __iter__(self) -> Iterator[Read]:
        return self

    def __next__(self) -> Read:
        if self._over:
            raise StopIteration
        if self._process is None:
            self._process = os.getpid()
            self._thread.start()
        elif self._process != os.getpid():
            raise ExecutionError(
                f"events are being read by process {self._process}, from which this one was forked "
                "in the middle of a pass; begin a new pass",
                option="cluster",
            )
        else:
            self._shared.places.put(None)  # that of the item before
        what, item = self._shared.items.get()
        if what == _READ:
            return item  # type: ignore[no-any-return]  # the queue holds both kinds, `what` tells
        self.close()
        if what == _FAILED:
            raise item
        raise StopIteration

    def close(self) -> None:
        """Stop reading, and wait until the reader has put away what it is at."""
        self._over = True
        self._stop()


class _Shared:
    """What both sides of a reader know."""

    def __init__(self) -> None:
        # Queues, as only they may be put to by a collection of garbage in the middle of a get.
        self.places: SimpleQueue[None] = SimpleQueue()
        for _ in range(_AT_ONCE):
            self.places.put(None)
        self.stopped = False
        self.items: SimpleQueue[tuple[int, Any]] = SimpleQueue()


def _read(shared: _Shared, source: Callable[[], Generator[Any, None, None]]) -> None:
    try:
        items = source()
        while True:
            shared.places.get()
            if shared.stopped:
                break
            item = next(items, shared)
            if item is shared:
                break
            shared.items.put((_READ, item))
            del item  # whoever uses it decides how long it stays
    except BaseException as error:  # raised where the items are used
        shared.items.put((_FAILED, error))
    else:
        shared.items.put((_ENDED, None))


def _stop(shared: _Shared, thread: threading.Thread) -> None:
    shared.stopped = True
    shared.places.put(None)
    # A forgotten iterator is collected by whatever thread is running, which may be the reader.
    if thread.ident is not None and thread is not threading.current_thread():
        thread.join()
