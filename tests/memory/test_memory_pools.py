"""The book of a cluster's memory: exact, never above what there is, and empty at the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from laddu_dask.errors import MemoryBudgetError
from laddu_dask.memory.pools import Claim, PoolBook


def book(**capacity: int) -> PoolBook:
    made = PoolBook()
    made.join("w1", capacity or {"host": 100, "disk": 1000})
    return made


def claim(owner: str, nbytes: int, **fields: str) -> Claim:
    told = {"worker": "w1", "resource": "host", "session": "s", "client": "c", "label": owner}
    return Claim(owner=owner, nbytes=nbytes, **{**told, **fields})


def test_grant_and_refuse_with_exact_numbers() -> None:
    """ME-04, DK-07: a refusal says what was wanted and what remains, and changes nothing."""
    pools = book()
    pools.grant(claim("a", 60))
    with pytest.raises(MemoryBudgetError, match="b needs 41 bytes of the host memory") as caught:
        pools.grant(claim("b", 41))
    error = caught.value
    assert (error.requested, error.remaining, error.worker) == (41, 40, "w1")
    pools.grant(claim("b", 40))
    assert pools.remaining("w1", "host") == 0
    (host, disk) = pools.report()
    assert (host.name, host.capacity, host.reserved, host.high_water) == ("w1", 100, 100, 100)
    assert (disk.resource, disk.reserved, disk.remaining) == ("disk", 0, 1000)


def test_the_same_owner_is_counted_once() -> None:
    """T-54, DK-16: a task that runs again asks again; it may also need more or less."""
    pools = book()
    for nbytes in (60, 60, 90, 30):
        pools.grant(claim("a", nbytes))
        assert pools.remaining("w1", "host") == 100 - nbytes
    with pytest.raises(MemoryBudgetError) as caught:
        pools.grant(claim("a", 101))
    assert caught.value.remaining == 100  # its own bytes would be given back
    assert pools.held("a", "w1", "host") == 30


def test_released_by_owner_session_client_and_worker() -> None:
    """DK-07: whichever goes first; the second release finds nothing."""
    pools = book()
    pools.join("w2", {"host": 100})
    a = pools.grant(claim("a", 10))
    moved = pools.grant(claim("a", 10, worker="w2"))
    b = pools.grant(claim("b", 10, session="t"))
    c = pools.grant(claim("c", 10, session="u", client="d"))
    assert pools.release("a", "w1") == (a,)
    assert pools.release("a", "w1") == ()
    assert pools.leases() == (moved, b, c)
    assert pools.release_session("t") == (b,)
    assert pools.release_client("d") == (c,)
    assert pools.leave("w2") == (moved,)
    assert pools.leases() == ()
    assert [pool.reserved for pool in pools.report()] == [0, 0]


def test_a_worker_that_is_gone_has_nothing() -> None:
    """T-48, T-55: a late request is refused, and a restarted worker begins empty."""
    pools = book()
    held = pools.grant(claim("a", 60))
    assert pools.leave("w1") == (held,)
    for grant in (pools.grant, pools.adopt):
        with pytest.raises(MemoryBudgetError, match="not a worker of this cluster") as caught:
            grant(claim("b", 5))
        assert (caught.value.requested, caught.value.remaining) == (5, 0)
    assert pools.join("w1", {"host": 50}) == ()
    held = pools.grant(claim("b", 50))
    assert pools.join("w1", {"host": 70}) == (held,)
    assert pools.remaining("w1", "host") == 70
    assert pools.report()[0].high_water == 0


def test_the_limit_of_a_session_comes_first() -> None:
    """ME-04: two sessions of 80 on a worker of 100; each knows whose limit stopped it."""
    pools = book(host=100)
    for session in ("s", "t"):
        pools.limit(session, "w1", "host", 80)
    pools.grant(claim("a", 70, session="s"))
    with pytest.raises(MemoryBudgetError, match="host budget of this session") as caught:
        pools.grant(claim("b", 11, session="s"))
    assert caught.value.remaining == 10
    with pytest.raises(MemoryBudgetError, match="host memory on w1") as caught:
        pools.grant(claim("c", 31, session="t"))
    assert caught.value.remaining == 30
    pools.grant(claim("c", 30, session="t"))
    pools.release_session("s")
    assert pools.limit_of("s", "w1", "host") is None
    assert pools.limit_of("t", "w1", "host") == 80


def test_what_is_in_use_is_counted_though_it_exceeds_the_pool() -> None:
    """DK-08, T-55: data that Dask moved, or limits that shrank; nothing remains, never less."""
    pools = book(host=100)
    pools.grant(claim("a", 80))
    pools.adopt(claim("moved here", 50))
    pools.resize("w1", {"host": 60})
    assert pools.remaining("w1", "host") == 0
    assert pools.report()[0].reserved == 130
    with pytest.raises(MemoryBudgetError) as caught:
        pools.grant(claim("b", 1))
    assert caught.value.remaining == 0
    pools.grant(claim("a", 10))  # giving back is always granted
    assert pools.remaining("w1", "host") == 0
    pools.release("moved here")
    assert pools.remaining("w1", "host") == 50


@pytest.mark.parametrize("nbytes", [-1, 1.5, True])
def test_only_whole_numbers_are_entered(nbytes: object) -> None:
    pools = book()
    with pytest.raises(MemoryBudgetError, match="whole number"):
        pools.grant(claim("a", nbytes))  # type: ignore[arg-type]  # what the test is about
    assert pools.leases() == ()


def outcome(pools: PoolBook, wanted: Claim) -> tuple[int, int] | None:
    """What a refusal says: requested and remaining; None when it was granted."""
    try:
        pools.grant(wanted)
    except MemoryBudgetError as error:
        return error.requested, error.remaining
    return None


@given(st.lists(st.integers(0, 120), max_size=30))
def test_refusals_say_exactly_what_remains(wanted: list[int]) -> None:
    """ME-04: the most that would have been granted, to the byte."""
    pools = book(host=100)
    for number, nbytes in enumerate(wanted):
        left = pools.remaining("w1", "host")
        told = outcome(pools, claim(str(number), nbytes))
        assert told == (None if nbytes <= left else (nbytes, left))
        if told is not None:
            assert outcome(pools, claim(str(number), told[1])) is None
            pools.release(str(number))


WORKERS = st.sampled_from(["w1", "w2", "w3"])
RESOURCES = st.sampled_from(["host", "disk", "device:GPU-1"])
OWNERS = st.sampled_from(["a", "b", "c", "d", "e"])
SESSION_OF = {"a": "s", "b": "s", "c": "t", "d": "t", "e": "u"}
CLIENT_OF = {"s": "c1", "t": "c1", "u": "c2"}
BYTES = st.integers(0, 100)


class AnyHistory(RuleBasedStateMachine):
    """DK-07: whatever happens in whatever order, against a plain table of what is held."""

    @initialize()
    def begin(self) -> None:
        self.pools = PoolBook()
        self.capacity: dict[str, dict[str, int]] = {}
        self.held: dict[tuple[str, str, str], int] = {}  # owner, worker, resource
        self.limits: dict[tuple[str, str, str], int] = {}  # session, worker, resource

    def total(self, worker: str, resource: str, sessions: str = "stu") -> int:
        return sum(
            nbytes
            for (owner, w, r), nbytes in self.held.items()
            if (w, r) == (worker, resource) and SESSION_OF[owner] in sessions
        )

    def keep(self, wanted: object) -> None:
        self.held = {key: n for key, n in self.held.items() if wanted(key)}  # type: ignore[operator]  # a function

    @rule(worker=WORKERS, host=BYTES, disk=BYTES)
    def join(self, worker: str, host: int, disk: int) -> None:
        self.pools.join(worker, {"host": host, "disk": disk})
        self.capacity[worker] = {"host": host, "disk": disk}
        self.keep(lambda key: key[1] != worker)
        self.limits = {key: n for key, n in self.limits.items() if key[1] != worker}

    @rule(worker=WORKERS)
    def leave(self, worker: str) -> None:
        self.pools.leave(worker)
        self.capacity.pop(worker, None)
        self.keep(lambda key: key[1] != worker)
        self.limits = {key: n for key, n in self.limits.items() if key[1] != worker}

    @rule(owner=OWNERS, worker=WORKERS, resource=RESOURCES, nbytes=BYTES)
    def grant(self, owner: str, worker: str, resource: str, nbytes: int) -> None:
        session = SESSION_OF[owner]
        own = self.held.get((owner, worker, resource), 0)
        known = worker in self.capacity
        room = self.capacity.get(worker, {}).get(resource, 0)
        left = max(room - self.total(worker, resource) + own, 0)
        limit = self.limits.get((session, worker, resource))
        if limit is not None:
            allowed = max(limit - self.total(worker, resource, session), 0) + own
        wanted = Claim(owner, worker, resource, nbytes, session, CLIENT_OF[session])
        told = outcome(self.pools, wanted)
        if not known:
            assert told == (nbytes, 0)
        elif limit is not None and nbytes > allowed:
            assert told == (nbytes, allowed)
        elif nbytes > left:
            assert told == (nbytes, left)
        else:
            assert told is None
            self.held[owner, worker, resource] = nbytes

    @rule(session=st.sampled_from("stu"), worker=WORKERS, resource=RESOURCES, nbytes=BYTES)
    def limit(self, session: str, worker: str, resource: str, nbytes: int) -> None:
        self.pools.limit(session, worker, resource, nbytes)
        self.limits[session, worker, resource] = nbytes

    @rule(owner=OWNERS)
    def release(self, owner: str) -> None:
        self.pools.release(owner)
        self.keep(lambda key: key[0] != owner)

    @rule(owner=OWNERS, worker=WORKERS)
    def release_on(self, owner: str, worker: str) -> None:
        self.pools.release(owner, worker)
        self.keep(lambda key: key[:2] != (owner, worker))

    @rule(session=st.sampled_from("stu"))
    def release_session(self, session: str) -> None:
        self.pools.release_session(session)
        self.keep(lambda key: SESSION_OF[key[0]] != session)
        self.limits = {key: n for key, n in self.limits.items() if key[0] != session}

    @rule(client=st.sampled_from(["c1", "c2"]))
    def release_client(self, client: str) -> None:
        self.pools.release_client(client)
        self.keep(lambda key: CLIENT_OF[SESSION_OF[key[0]]] != client)

    @invariant()
    def the_book_is_exact(self) -> None:
        for pool in self.pools.report():
            assert pool.reserved == self.total(pool.name, pool.resource)
            assert 0 <= pool.reserved <= pool.capacity
            assert pool.remaining == pool.capacity - pool.reserved
            assert pool.reserved <= pool.high_water <= pool.capacity
        entered = {(c.owner, c.worker, c.resource): c.nbytes for c in self.pools.leases()}
        assert entered == {key: nbytes for key, nbytes in self.held.items() if nbytes}

    def teardown(self) -> None:
        for client in ("c1", "c2"):
            self.pools.release_client(client)
        assert self.pools.leases() == ()
        assert all(pool.reserved == 0 for pool in self.pools.report())


TestAnyHistory = AnyHistory.TestCase
