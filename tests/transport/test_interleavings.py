"""Random interleavings of failures of one evaluation, in virtual time.

Covers DK-15, DK-16 and DK-17: whatever happens to workers, links and messages, it ends in
the exact result, or in a clear failure only if no worker is left that answers, or if as many as
are allowed died over one partition.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from laddu_dask.runtime.cluster_view import ClusterView, Limits
from laddu_dask.runtime.coordinator import (
    AskOwners,
    Evaluation,
    Event,
    FailCluster,
    FailDeaths,
    FailModel,
    Finish,
    Instruction,
    LinkFailed,
    Owners,
    Rebuild,
    Reply,
    Send,
    Start,
    Tick,
    WorkerGone,
)

EPOCH = 7
FIXED = Limits(ask_after=1.0, adaptive=False, patience=20.0)


@dataclass
class Outcome:
    """How one simulated evaluation ended."""

    finished: bool
    seconds: float
    messages: int
    deadly: tuple[int, ...] = ()


@dataclass
class Simulation:
    """Workers, Dask and a network in virtual time, all of them unreliable for four seconds.

    Workers are killed, added, stopped and resumed, partitions move, replies come twice, late, from
    an older epoch or not at all, healthy links break, questions get lost, the first table is
    wrong, hints of departures come late or never. Dask believes stopped workers healthy: what it
    recomputes there never gets done.

    With `deadly`, whoever evaluates that partition dies, and another worker is started.
    """

    seed: int
    hostile: bool = True
    deadly: int | None = None
    n_partitions: int = 12
    now: float = 0.0
    queue: list[tuple[float, int, Callable[[float], Event | None]]] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)
    stuck: dict[int, str] = field(default_factory=dict)  # being recomputed on a stopped worker
    sends: list[Send] = field(default_factory=list)
    deaths: Counter[int] = field(default_factory=Counter)  # of workers that were asked for it

    def __post_init__(self) -> None:
        r = self.random = random.Random(self.seed)
        self.numbers = itertools.count()
        self.value = {p: r.randbytes(8) for p in range(self.n_partitions)}
        self.up = {f"w{i}" for i in range(1 + self.seed % 4)}
        self.names = itertools.count(len(self.up))
        self.noise = 0.4 if self.seed % 3 == 0 else 0.1
        self.holders = {p: {r.choice(sorted(self.up))} for p in self.value}
        owners = {p: tuple(sorted(w)) for p, w in self.holders.items()}
        if self.hostile and r.random() < 0.3:
            owners = {p: (r.choice(sorted(self.up)),) for p in self.value}
        limits = Limits(ask_after=1.0, adaptive=False, patience=8.0, orphan_after=1.5)
        self.machine = Evaluation(EPOCH, self.value, ClusterView(owners=owners), limits)

    def later(self, delay: float, make: Callable[[float], Event | None]) -> None:
        heapq.heappush(self.queue, (self.now + delay, next(self.numbers), make))

    def run(self) -> Outcome:
        self.later(0.0, Start)
        for _ in range(20_000):
            make: Callable[[float], Event | None] = Tick
            if self.queue and self.queue[0][0] <= self.now + 0.03:
                when, _, make = heapq.heappop(self.queue)
                self.now = max(self.now, when)
            else:
                self.now += 0.03
            if (event := make(self.now)) is None:
                continue
            before = dict(self.machine.records)
            instructions = self.machine.handle(event)
            assert before.items() <= self.machine.records.items(), "a counted record changed"
            for instruction in instructions:
                outcome = self.carry_out(instruction)
                if outcome is not None:
                    return outcome
            if self.hostile and self.now < 4.0:
                self.misfortune()
            self.recompute()
        raise AssertionError("livelock")

    # ---------------------------------------------------------------- what the cluster does

    def carry_out(self, instruction: Instruction) -> Outcome | None:
        r = self.random
        match instruction:
            case Send():
                self.receive(instruction)
            case AskOwners(partitions):
                if not (self.hostile and r.random() < 0.1):
                    self.later(0.1 * r.random(), lambda t: Owners(t, self.table(partitions)))
            case Rebuild(partitions, avoid):
                for partition in partitions:
                    self.rebuild(partition, avoid)
            case Finish(records):
                assert records == self.value
                return Outcome(True, self.now, len(self.sends))
            case FailCluster():
                alive = self.up - self.stopped
                deadly = self.deadly is not None and self.deadly not in self.machine.records
                assert deadly or not alive, f"gave up although {alive} were there"
                return Outcome(False, self.now, len(self.sends))
            case FailDeaths(partitions, deaths):
                assert deaths >= self.machine.limits.deaths
                assert self.deaths[partitions[0]] >= deaths
                assert not self.machine.records.keys() & set(partitions)
                return Outcome(False, self.now, len(self.sends), partitions)
            case FailModel():
                raise AssertionError("there are no model errors here")
        return None

    def table(self, partitions: tuple[int, ...]) -> dict[int, tuple[str, ...]]:
        return {p: tuple(sorted(self.holders[p])) for p in partitions}

    def receive(self, send: Send) -> None:
        r = self.random
        assert not self.machine.records.keys() & set(send.partitions), "asked for what is counted"
        assert len(set(send.partitions)) == len(send.partitions)
        self.sends.append(send)
        if send.worker not in self.up:
            self.later(0.3 * r.random(), lambda t: LinkFailed(t, send.request, "refused"))
            return
        if send.worker in self.stopped:
            return
        if self.deadly in send.partitions:
            self.later(0.3 * r.random(), lambda t: self.kill(send.worker, hint=1.0))
            return

        def answer(t: float) -> Event | None:
            if send.worker not in self.up:
                return LinkFailed(t, send.request, "cut")
            if send.worker in self.stopped:
                return None
            here = [p for p in send.partitions if send.worker in self.holders[p]]
            return Reply(t, send.request, EPOCH, {p: self.value[p] for p in here})

        if not (self.hostile and self.now < 4 and r.random() < 0.03):
            self.later(r.expovariate(4), answer)
        if self.hostile and r.random() < 0.3:
            self.later(5 * r.random(), answer)
        if self.hostile and r.random() < 0.2:
            wrong = dict.fromkeys(send.partitions, b"older")
            self.later(r.random(), lambda t: Reply(t, send.request, EPOCH - 1, wrong))
        if self.hostile and self.now < 4 and r.random() < self.noise:
            self.later(0.5 * r.random(), lambda t: LinkFailed(t, send.request, "link"))

    def rebuild(self, partition: int, avoid: frozenset[str]) -> None:
        candidates = self.up - avoid or self.up - self.holders[partition]
        if candidates:
            worker = self.dask_chooses(candidates)
            if worker in self.stopped:
                self.stuck.setdefault(-next(self.numbers) - 1, worker)

            def done(t: float) -> None:
                if worker in self.up - self.stopped:
                    self.holders[partition].add(worker)

            self.later(0.3 * self.random.random(), done)

    def dask_chooses(self, candidates: set[str]) -> str:
        """Least occupied first; a stopped worker never gets rid of its tasks."""
        occupied = Counter(self.stuck.values())
        return min(sorted(candidates), key=lambda w: (occupied[w], self.random.random()))

    def recompute(self) -> None:
        """Dask's own recovery of partitions that nobody holds."""
        for partition, holders in self.holders.items():
            if holders:
                self.stuck.pop(partition, None)
            elif self.stuck.get(partition) not in self.up & self.stopped and self.up:
                self.stuck.pop(partition, None)
                if self.random.random() < 0.2:
                    worker = self.dask_chooses(self.up)
                    if worker in self.stopped:
                        self.stuck[partition] = worker
                    else:
                        holders.add(worker)

    def misfortune(self) -> None:
        r, dice = self.random, self.random.random()
        if dice < 0.02 and len(self.up) > 1:
            self.kill(r.choice(sorted(self.up)))
        elif dice < 0.04:
            self.up.add(f"w{next(self.names)}")
        elif dice < 0.05 and len(self.up - self.stopped) > 1:
            self.stopped.add(r.choice(sorted(self.up)))
        elif dice < 0.06 and self.stopped:
            self.stopped.discard(r.choice(sorted(self.stopped)))
        elif dice < 0.10:
            self.holders[r.randrange(self.n_partitions)] = {r.choice(sorted(self.up))}

    def kill(self, worker: str, hint: float = 0.5) -> None:
        if worker not in self.up:
            return
        self.up.discard(worker)
        asked = {p for send in self.sends if send.worker == worker for p in send.partitions}
        self.deaths.update(asked - self.machine.records.keys())
        if self.deadly is not None:
            self.up.add(f"w{next(self.names)}")
        for holders in self.holders.values():
            holders.discard(worker)
        if self.random.random() < hint:
            self.later(0.2 * self.random.random(), lambda t: WorkerGone(t, worker))
        for send in self.sends:
            if send.worker == worker:
                self.later(0.01, lambda t, n=send.request: LinkFailed(t, n, "reset"))


def check_deadly_partitions(seeds: range) -> None:
    """Named at the end, or without an answer for too long; not evaluated for ever."""
    named = 0
    for seed in seeds:
        simulation = Simulation(seed, deadly=seed % 12)
        outcome = simulation.run()
        assert not outcome.finished
        assert not outcome.deadly or seed % 12 in outcome.deadly
        assert seed % 12 not in simulation.machine.records
        assert outcome.seconds < 60.0
        named += bool(outcome.deadly)
    assert named >= 0.9 * len(seeds)


def check_random_interleavings(seeds: range) -> None:
    """Exact, or given up only when every worker that is left has stopped."""
    outcomes = [Simulation(seed).run() for seed in seeds]
    finished = [o for o in outcomes if o.finished]
    assert len(finished) >= 0.99 * len(outcomes)
    assert max(o.seconds for o in finished) < 20.0
    assert max(o.messages for o in outcomes) < 100


def test_random_interleavings() -> None:
    """DK-15, DK-16, DK-17."""
    check_random_interleavings(range(1500))


def test_a_partition_that_kills_its_workers() -> None:
    check_deadly_partitions(range(300))


@pytest.mark.slow
def test_many_random_interleavings() -> None:
    """DK-15, DK-16, DK-17, for nightly runs."""
    check_random_interleavings(range(1500, 21_500))
    check_deadly_partitions(range(300, 5000))


def test_without_faults_every_run_is_exact_with_one_message_per_worker() -> None:
    for seed in range(200):
        simulation = Simulation(seed, hostile=False)
        holders = {w for ws in simulation.holders.values() for w in ws}
        outcome = simulation.run()
        assert outcome.finished
        late = [s for s in simulation.sends if s.request > len(holders)]
        assert len(late) <= 4  # replies of the exponential's tail, beyond the fixed deadline
