"""Room for what is kept: whoever is about to prepare a partition asks here before it allocates.

A room has three tiers, each with a pool of bytes behind it. In this process they are the pools of
`LocalRoom`; on a cluster the worker's room asks the planner on the scheduler, which grants from the
pools of that worker.
"""

from __future__ import annotations

from types import TracebackType
from typing import Literal, Protocol, TypeAlias, get_args

from laddu_dask.errors import ExecutionError
from laddu_dask.memory.lease import LeasePool

Tier: TypeAlias = Literal["resident", "spilled", "device"]
TIERS: tuple[Tier, ...] = get_args(Tier)


class Hold(Protocol):
    """Bytes that are held until they are released; `laddu_dask.memory.Lease` is one."""

    @property
    def bytes(self) -> int:
        """Size of the reservation."""

    @property
    def released(self) -> bool:
        """Whether this holder has given it up."""

    def release(self) -> None:
        """Give it up; a second call does nothing."""

    def __enter__(self) -> Hold: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Room(Protocol):
    """Where bytes are reserved before they are allocated. Safe to use from any thread."""

    def reserve(self, tier: Tier, nbytes: int, label: str) -> Hold:
        """Take `nbytes` of a tier, or change nothing and raise.

        Parameters
        ----------
        tier
            "resident": host memory; "spilled": disk; "device": memory of a GPU.
        nbytes
            How many; they need not be allocated yet.
        label
            What for, as errors and reports tell it: "signal/data, partition 3".

        Raises
        ------
        MemoryBudgetError
            More is asked than remains; `resource`, `requested` and `remaining` say what is missing.
        ExecutionError
            The tier is unknown, or whoever keeps the books does not answer in time.
        """


class LocalRoom:
    """The room of a process that keeps its own books.

    Parameters
    ----------
    host
        Pool of the tier "resident".
    disk, device
        Pools of the tiers "spilled" and "device"; None: there is no room in them.
    """

    def __init__(
        self, host: LeasePool, disk: LeasePool | None = None, device: LeasePool | None = None
    ) -> None:
        self._pools: dict[Tier, LeasePool] = {
            "resident": host,
            "spilled": LeasePool("disk", 0) if disk is None else disk,
            "device": LeasePool("device", 0) if device is None else device,
        }

    def pool(self, tier: Tier) -> LeasePool:
        """The pool behind a tier.

        Raises
        ------
        ExecutionError
            There is no such tier.
        """
        check_tier(tier)
        return self._pools[tier]

    def reserve(self, tier: Tier, nbytes: int, label: str) -> Hold:
        """See `Room.reserve`; the bytes also return when the lease is garbage collected."""
        return self.pool(tier).reserve(nbytes, label)


def check_tier(tier: str) -> None:
    """Raise unless `tier` is one of `TIERS`.

    Raises
    ------
    ExecutionError
        Naming the tiers there are.
    """
    if tier not in TIERS:
        raise ExecutionError(
            f"{tier!r} is no tier of storage; there are {', '.join(TIERS)}", option="storage"
        )
