"""The book of a cluster's memory: pools of each worker, and the leases on them.

A book only counts; it neither allocates nor talks to anybody, so that it can be tested without a
cluster. Whoever keeps it tells it what happened: workers that came and went with their limits,
bytes that are wanted, owners that are gone. Each method leaves the book in order, also when it
raises, and may be called again without effect.

A lease belongs to an owner (the key of a prepared partition, or the passes of a session) on one
worker and of one resource. Granting it again sets its size, so a task that runs twice is counted
once. Two limits hold: what the worker has, and what the owner's session may take there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from laddu_dask.errors import MemoryBudgetError
from laddu_dask.memory.lease import PoolReport
from laddu_dask.memory.sizes import exact_bytes, whole_number

Place: TypeAlias = tuple[str, str]
"""A worker and one of its resources: "host", "disk", or "device:" and the identity of a GPU."""


@dataclass(frozen=True)
class Claim:
    """Bytes that somebody holds or wants.

    Attributes
    ----------
    owner
        Whose they are; the same owner has one lease of a resource on a worker.
    worker, resource
        Where they are.
    nbytes
        How many.
    session, client
        Which session of which client the owner belongs to; "" where nobody knows.
    label
        What for, as people are told.
    """

    owner: str
    worker: str
    resource: str
    nbytes: int
    session: str = ""
    client: str = ""
    label: str = ""

    @property
    def place(self) -> Place:
        """Worker and resource."""
        return self.worker, self.resource


class PoolBook:
    """Pools and leases of all workers; see the top of the file."""

    def __init__(self) -> None:
        self._capacity: dict[str, dict[str, int]] = {}
        self._limits: dict[tuple[str, str, str], int] = {}  # session, worker, resource
        self._leases: dict[str, dict[Place, Claim]] = {}  # by owner
        self._reserved: Counter[Place] = Counter()
        self._taken: Counter[tuple[str, str, str]] = Counter()  # session, worker, resource
        self._high_water: Counter[Place] = Counter()

    # -------------------------------------------------------------------------------- workers

    @property
    def workers(self) -> tuple[str, ...]:
        """Workers in the order in which they joined."""
        return tuple(self._capacity)

    def join(self, worker: str, capacity: Mapping[str, int]) -> tuple[Claim, ...]:
        """Enter a worker with bytes of each resource; one that was known was restarted empty.

        Returns
        -------
        tuple of Claim
            What the restarted worker held before, released.
        """
        lost = self.leave(worker)
        self._capacity[worker] = {}
        self.resize(worker, capacity)
        return lost

    def resize(self, worker: str, capacity: Mapping[str, int]) -> None:
        """Correct what a worker has. Leases stay: where they exceed it nothing remains.

        Raises
        ------
        MemoryBudgetError
            The worker is not in the book, or a number is not a number of bytes.
        """
        if worker not in self._capacity:
            raise _stranger(worker, 0)
        self._capacity[worker] = {
            resource: whole_number(nbytes, f"the {resource} memory of {worker}")
            for resource, nbytes in capacity.items()
        }

    def leave(self, worker: str) -> tuple[Claim, ...]:
        """Strike out a worker with all its leases, which are returned."""
        self._capacity.pop(worker, None)
        lost = self._release_where(lambda claim: claim.worker == worker)
        for place in [place for place in self._high_water if place[0] == worker]:
            del self._high_water[place]
        for limit in [limit for limit in self._limits if limit[1] == worker]:
            del self._limits[limit]
        return lost

    def limit(self, session: str, worker: str, resource: str, nbytes: int) -> None:
        """Let a session take at most so many bytes of a worker's resource."""
        what = f"the {resource} budget of session {session} on {worker}"
        self._limits[session, worker, resource] = whole_number(nbytes, what)

    def limit_of(self, session: str, worker: str, resource: str) -> int | None:
        """What `limit` said; None if nothing."""
        return self._limits.get((session, worker, resource))

    # --------------------------------------------------------------------------------- leases

    def grant(self, claim: Claim) -> Claim:
        """Let the owner hold `claim.nbytes` there in all, or change nothing and raise.

        Returns
        -------
        Claim
            The lease.

        Raises
        ------
        MemoryBudgetError
            The worker is not in the book, or more is wanted than the session's limit or then the
            worker's pool leaves; `requested` is `claim.nbytes`, `remaining` the most that would
            have been granted, `resource` says whose limit it was.
        """
        whole_number(claim.nbytes, claim.label or claim.owner)
        if claim.worker not in self._capacity:
            raise _stranger(claim.worker, claim.nbytes, claim.label or claim.owner)
        held = self.held(claim.owner, claim.worker, claim.resource)
        left = self._left_to_session(claim)
        if left is not None and claim.nbytes > left + held:
            raise _shortage(claim, f"{claim.resource} budget of this session", left + held)
        left = self.remaining(claim.worker, claim.resource, claim.owner)
        if claim.nbytes > left:
            raise _shortage(
                claim,
                claim.resource if claim.resource == "disk" else f"{claim.resource} memory",
                left,
            )
        return self.adopt(claim)

    def adopt(self, claim: Claim) -> Claim:
        """Enter what is held already, whether or not there is room: the bytes are in use.

        Raises
        ------
        MemoryBudgetError
            The worker is not in the book.
        """
        if claim.worker not in self._capacity:
            raise _stranger(claim.worker, claim.nbytes, claim.label or claim.owner)
        self.release(claim.owner, claim.worker, claim.resource)
        if claim.nbytes:
            self._leases.setdefault(claim.owner, {})[claim.place] = claim
            self._count(claim, claim.nbytes)
        return claim

    def release(
        self, owner: str, worker: str | None = None, resource: str | None = None
    ) -> tuple[Claim, ...]:
        """Return what an owner holds: everywhere, on one worker, or of one resource there."""
        claims = [
            claim
            for claim in self._leases.get(owner, {}).values()
            if worker in (None, claim.worker) and resource in (None, claim.resource)
        ]
        return self._drop(claims)

    def release_session(self, session: str) -> tuple[Claim, ...]:
        """Return what a session holds, and forget its limits."""
        for limit in [limit for limit in self._limits if limit[0] == session]:
            del self._limits[limit]
        return self._release_where(lambda claim: claim.session == session)

    def release_client(self, client: str) -> tuple[Claim, ...]:
        """Return what the sessions of a client hold."""
        return self._release_where(lambda claim: claim.client == client)

    # -------------------------------------------------------------------------------- numbers

    def holds(self, owner: object) -> bool:
        """Whether an owner holds anything anywhere."""
        return owner in self._leases

    def held(self, owner: str, worker: str, resource: str) -> int:
        """Bytes of a resource that an owner holds on a worker."""
        claim = self._leases.get(owner, {}).get((worker, resource))
        return 0 if claim is None else claim.nbytes

    def remaining(self, worker: str, resource: str, owner: str = "") -> int:
        """Bytes that nobody holds, beside `owner` if one is given; never negative."""
        others = self._reserved[worker, resource] - self.held(owner, worker, resource)
        return max(self._capacity.get(worker, {}).get(resource, 0) - others, 0)

    def leases(self, worker: str | None = None, session: str | None = None) -> tuple[Claim, ...]:
        """Leases on a worker or of a session, or all, in the order in which they were entered."""
        return tuple(
            claim
            for places in self._leases.values()
            for claim in places.values()
            if worker in (None, claim.worker) and session in (None, claim.session)
        )

    def report(self) -> tuple[PoolReport, ...]:
        """Numbers of every pool, worker by worker."""
        return tuple(
            PoolReport(
                name=worker,
                resource=resource,
                capacity=capacity,
                reserved=self._reserved[worker, resource],
                remaining=self.remaining(worker, resource),
                high_water=self._high_water[worker, resource],
            )
            for worker, resources in self._capacity.items()
            for resource, capacity in resources.items()
        )

    # --------------------------------------------------------------------------------- within

    def _left_to_session(self, claim: Claim) -> int | None:
        """What the session may still take there; None without a limit."""
        where = (claim.session, *claim.place)
        limit = self._limits.get(where)
        return None if limit is None else max(limit - self._taken[where], 0)

    def _count(self, claim: Claim, nbytes: int) -> None:
        taker = (claim.session, *claim.place)
        self._reserved[claim.place] += nbytes
        self._taken[taker] += nbytes
        now = self._reserved[claim.place]
        self._high_water[claim.place] = max(self._high_water[claim.place], now)
        if not self._taken[taker]:  # sessions come and go for as long as the cluster lives
            del self._taken[taker]

    def _release_where(self, condition: Callable[[Claim], bool]) -> tuple[Claim, ...]:
        return self._drop([claim for claim in self.leases() if condition(claim)])

    def _drop(self, claims: Iterable[Claim]) -> tuple[Claim, ...]:
        dropped = tuple(claims)
        for claim in dropped:
            places = self._leases[claim.owner]
            del places[claim.place]
            if not places:
                del self._leases[claim.owner]
            self._count(claim, -claim.nbytes)
        return dropped


def _shortage(claim: Claim, what: str, remaining: int) -> MemoryBudgetError:
    return MemoryBudgetError(
        f"{claim.label or claim.owner} needs {exact_bytes(claim.nbytes)} of the {what} on "
        f"{claim.worker}, {exact_bytes(remaining)} remain; raise the memory budget or the worker's "
        "memory limit, start more workers, or close other sessions",
        resource=claim.resource,
        worker=claim.worker,
        label=claim.label,
        requested=claim.nbytes,
        remaining=remaining,
    )


def _stranger(worker: str, requested: int, label: str = "a reservation") -> MemoryBudgetError:
    return MemoryBudgetError(
        f"{label} needs {exact_bytes(requested)} on {worker}, which is not a worker of this "
        "cluster (any more): nothing remains there",
        resource="host",
        worker=worker,
        label=label,
        requested=requested,
        remaining=0,
    )
