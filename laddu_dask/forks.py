"""What a forked process must make anew: locks, which threads of its parent may hold, and threads.

A fork has one thread, the one that forked. A lock that another one held stays held for ever, and
work that is handed to threads which are gone is never done.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

Made = TypeVar("Made")

_MAKERS: WeakKeyDictionary[object, dict[str, Callable[[], object]]] = WeakKeyDictionary()


def renewed(owner: object, name: str, make: Callable[[], Made]) -> Made:
    """What an attribute of `owner` is set to now; every forked process makes its own.

    Parameters
    ----------
    owner, name
        The attribute that is set again in a fork, for as long as `owner` lives. It must be read
        where it is used: ``with self._lock`` in the thread that forks still leaves the lock that it
        entered.
    make
        Makes the value; it must not refer to `owner`.
    """
    _MAKERS.setdefault(owner, {})[name] = make
    return make()


def _renew() -> None:
    for owner, makers in list(_MAKERS.items()):
        for name, make in makers.items():
            setattr(owner, name, make())


os.register_at_fork(after_in_child=_renew)
