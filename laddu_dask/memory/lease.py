"""Leases: who holds how many bytes of what, never more than there are.

A lease returns its bytes when the last of its copies is released, leaves a `with` block, or is
garbage collected. Finalizers may run at any instant of any thread, also of the one that holds the
lock, so returning bytes never waits: it queues the return, and whoever takes the lock settles the
queue before looking at any number.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from laddu_dask.errors import MemoryBudgetError
from laddu_dask.forks import renewed
from laddu_dask.memory.budget import BudgetLike, MemoryBudget
from laddu_dask.memory.sizes import MAX_BYTES, bytes_of, exact_bytes, format_bytes, whole_number


@dataclass(frozen=True)
class PoolReport:
    """Numbers of one pool at one moment, in bytes."""

    name: str
    resource: str
    capacity: int
    reserved: int
    remaining: int
    high_water: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        what = "" if self.resource == self.name else f" of {self.resource}"
        return (
            f"{self.name}: {format_bytes(self.reserved)} of {format_bytes(self.capacity)}{what} "
            f"reserved, at most {format_bytes(self.high_water)} so far"
        )


class _Reservation:
    """Bytes taken from one pool, shared by every copy of a lease. Guarded by the memory's lock."""

    __slots__ = ("count", "holders", "pool")

    def __init__(self, pool: LeasePool, count: int) -> None:
        self.pool = pool
        self.count = count
        self.holders = 1


class PhysicalMemory:
    """One memory, such as a host's or a GPU's, on which pools make their reservations.

    Parameters
    ----------
    name
        Appears in errors as `resource`.
    available
        Bytes that all pools together may reserve; `None` (unknown) lets each pool's own capacity
        be the only limit.
    total
        All bytes of it, for budgets given as a fraction of the total.
    """

    def __init__(self, name: str, available: int | None, total: int | None = None) -> None:
        self.name = name
        self.total = total
        self.available = available
        self._limit = MAX_BYTES if available is None else whole_number(available, name)
        self._reserved = 0
        self._lock = renewed(self, "_lock", threading.Lock)
        self._returned: deque[_Reservation] = deque()

    def pool(self, budget: BudgetLike = None, name: str | None = None) -> LeasePool:
        """Return a new pool as large as `budget`, by default named as this memory."""
        capacity = MemoryBudget.parse(budget).resolve(self.total, self.available)
        return LeasePool(name or self.name, capacity, self)

    @property
    def reserved(self) -> int:
        """Bytes that all pools hold now."""
        with self._settled():
            return self._reserved

    @property
    def remaining(self) -> int:
        """Bytes that no pool holds."""
        with self._settled():
            return self._limit - self._reserved

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """Hold the lock with every queued return already counted."""
        with self._lock:
            self._settle()
            yield

    def _settle(self) -> None:
        while self._returned:
            reservation = self._returned.popleft()
            reservation.holders -= 1
            if reservation.holders == 0:
                self._reserved -= reservation.count
                reservation.pool._reserved -= reservation.count

    def _give_back(self, reservation: _Reservation) -> None:
        """Queue one holder's return; never blocks (see the top of the file)."""
        self._returned.append(reservation)
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()


class LeasePool:
    """A budget from which leases are taken; safe to use from any thread.

    Parameters
    ----------
    name
        Appears in errors as `resource`.
    capacity
        Bytes that leases of this pool may hold together.
    memory
        The memory it shares with other pools; `None`: one of its own, of the same size.
    """

    def __init__(self, name: str, capacity: int, memory: PhysicalMemory | None = None) -> None:
        self.name = name
        self.capacity = whole_number(capacity, f"the capacity of {name}")
        self.memory = PhysicalMemory(name, self.capacity) if memory is None else memory
        self._reserved = 0  # this and the next are guarded by the memory's lock
        self._high_water = 0

    def reserve(self, count: int, purpose: str = "a reservation") -> Lease:
        """Take `count` bytes, or change nothing and raise.

        Raises
        ------
        MemoryBudgetError
            If more is asked than remains in this pool, or then in the memory it shares;
            `resource` says in which.
        """
        whole = whole_number(count, purpose)
        memory = self.memory
        with memory._lock:
            memory._settle()
            if whole > self.capacity - self._reserved:
                raise _shortage(self.name, self.capacity - self._reserved, whole, purpose)
            if whole > memory._limit - memory._reserved:
                raise _shortage(memory.name, memory._limit - memory._reserved, whole, purpose)
            memory._reserved += whole
            self._reserved += whole
            self._high_water = max(self._high_water, self._reserved)
        return Lease(_Reservation(self, whole))

    @property
    def reserved(self) -> int:
        """Bytes that leases of this pool hold now."""
        with self.memory._settled():
            return self._reserved

    @property
    def remaining(self) -> int:
        """Bytes that could be reserved now: what both the pool and its memory have left."""
        return self.report().remaining

    @property
    def high_water(self) -> int:
        """The most bytes that leases of this pool have held at one time."""
        with self.memory._settled():
            return self._high_water

    def report(self) -> PoolReport:
        """Return all numbers, taken at one moment."""
        memory = self.memory
        with memory._settled():
            remaining = min(self.capacity - self._reserved, memory._limit - memory._reserved)
            return PoolReport(
                self.name, memory.name, self.capacity, self._reserved, remaining, self._high_water
            )


def _shortage(holder: str, remaining: int, requested: int, purpose: str) -> MemoryBudgetError:
    return MemoryBudgetError(
        f"{purpose} needs {exact_bytes(requested)} {bytes_of(holder)}, {exact_bytes(remaining)} "
        "remain; raise the memory budget or release what else holds it",
        resource=holder,
        label=purpose,
        requested=requested,
        remaining=remaining,
    )


class Lease:
    """The right to some bytes; made by `LeasePool.reserve`, ended by `release` or a `with` block.

    `copy()` (also `copy.copy`) gives a second holder of the same reservation, whose bytes return
    when all holders are gone. A lease belongs to its process and does not pickle.
    """

    def __init__(self, reservation: _Reservation) -> None:
        self._reservation = reservation
        self._held = [reservation]  # whoever takes it out gives it back, so only one does

    @property
    def bytes(self) -> int:
        """Size of the reservation."""
        return self._reservation.count

    @property
    def released(self) -> bool:
        """Whether this holder has given up its share (other copies may still hold theirs)."""
        return not self._held

    def copy(self) -> Lease:
        """Return another holder of the same bytes.

        Raises
        ------
        MemoryBudgetError
            If this holder was already released.
        """
        pool = self._reservation.pool
        with pool.memory._settled():
            if self.released:
                raise MemoryBudgetError(
                    f"a released lease of {self.bytes} bytes on {pool.name} cannot be copied; "
                    "copy it before it is released, or reserve again",
                    resource=pool.name,
                    requested=self.bytes,
                    remaining=None,
                )
            self._reservation.holders += 1
        return Lease(self._reservation)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Lease:
        return self.copy()

    def release(self) -> None:
        """Give up this holder's share; a second call does nothing."""
        if self._held:
            try:
                reservation = self._held.pop()
            except IndexError:  # another thread was faster
                return
            reservation.pool.memory._give_back(reservation)

    __del__ = release

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a memory lease belongs to the process that took it and cannot be pickled; send the "
            "number of bytes and reserve them on the other side"
        )

    def __repr__(self) -> str:
        state = "released" if self.released else "held"
        return f"<Lease of {format_bytes(self.bytes)} on {self._reservation.pool.name}, {state}>"
