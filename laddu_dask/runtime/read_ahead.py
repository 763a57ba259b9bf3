"""Reading the next chunk while the one before is worked on.

A reader is a thread that takes items from a source, one ahead of who uses them. There are two
steps: reading an item, which only the reader does, and preparing it, which either side can do: the
reader if it has nothing else to do, as the item before is still in use; otherwise the user, who
would have to wait for it. So a pass takes the time of the slower side, whichever that is, and not
the time of both.
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
Ready = TypeVar("Ready")

#: Items that exist at once: the one in use, and the one that is read or waits.
_AT_ONCE = 2

#: What the reader says about an item: it is as read, or prepared; or there was an error, or the
#: source has ended.
_AS_READ, _PREPARED, _FAILED, _ENDED = range(4)


def prepared_items(
    source: Callable[[], Iterator[Read]], prepare: Callable[[Read], Ready], *, ahead: bool
) -> AbstractContextManager[Iterator[Ready]]:
    """``map(prepare, source())`` for a ``with`` statement, which ends reading when it is left.

    `ahead` says whether a thread reads ahead; it would do nothing for items that cost nothing to
    read, or for a single one.
    """
    return closing(ReadAhead(source, prepare) if ahead else _in_turn(source, prepare))


def _in_turn(
    source: Callable[[], Iterator[Read]], prepare: Callable[[Read], Ready]
) -> Generator[Ready, None, None]:
    for item in source():
        yield prepare(item)


class ReadAhead(Generic[Read, Ready]):
    """Prepared items of a source that a thread of its own reads; use it with `closing`.

    Results, their order, and errors are those of ``map(prepare, source())``: what was read before
    an error is delivered before it. The thread starts with the first item that is asked for. It
    ends with the source, or when the iterator is closed or forgotten.

    Parameters
    ----------
    source
        Makes the iterator, in the thread that reads.
    prepare
        May be called from either thread, and from both at the same time.
    """

    def __init__(
        self, source: Callable[[], Iterator[Read]], prepare: Callable[[Read], Ready]
    ) -> None:
        self._prepare = prepare
        self._shared = _Shared()
        # The thread knows only what is shared, so that it does not keep a forgotten iterator alive.
        self._thread = threading.Thread(
            target=_read, args=(self._shared, source, prepare), name="laddu-reader", daemon=True
        )
        self._process: int | None = None
        self._over = False
        # Runs at exit too: a thread must not come back from a decoder when Python is gone.
        self._stop = weakref.finalize(self, _stop, self._shared, self._thread)

    def __iter__(self) -> Iterator[Ready]:
        return self

    def __next__(self) -> Ready:
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
        what, item = self._shared.take()
        if what == _PREPARED:
            return item  # type: ignore[no-any-return]  # the queue holds both kinds, `what` tells
        if what == _AS_READ:
            return self._prepare(item)
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
        self.wanted = False
        self._items: SimpleQueue[tuple[int, Any]] = SimpleQueue()

    def put(self, what: int, item: Any) -> None:
        self._items.put((what, item))

    def take(self) -> tuple[int, Any]:
        self.wanted = True
        try:
            return self._items.get()
        finally:
            self.wanted = False


def _read(
    shared: _Shared, source: Callable[[], Iterator[Any]], prepare: Callable[[Any], Any]
) -> None:
    try:
        items = source()
        while True:
            shared.places.get()
            if shared.stopped:
                break
            item = next(items, shared)
            if item is shared:
                break
            if shared.wanted or shared.stopped:
                shared.put(_AS_READ, item)
            else:
                shared.put(_PREPARED, prepare(item))
            del item  # whoever uses it decides how long it stays
    except BaseException as error:  # raised where the items are used
        shared.put(_FAILED, error)
    else:
        shared.put(_ENDED, None)


def _stop(shared: _Shared, thread: threading.Thread) -> None:
    shared.stopped = True
    shared.places.put(None)
    # A forgotten iterator is collected by whatever thread is running, which may be the reader.
    if thread.ident is not None and thread is not threading.current_thread():
        thread.join()
