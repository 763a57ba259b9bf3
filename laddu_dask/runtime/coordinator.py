"""The state machine of one evaluation over partitions that live in many Dask workers.

`Evaluation.handle(event)` changes the state and returns the instructions that the event calls for.
There is no clock, no socket and no Dask here: time arrives inside events, and whoever owns the
machine carries the instructions out (`ClusterSession`). That makes every failure a value, so the
recovery rules are tested with random interleavings in virtual time.

Rules
-----
* Results are keyed by (epoch, partition). The first record counts; duplicates are dropped.
* The owner table (partition -> workers) is corrected by evidence only: a partition reported
  missing, a broken link, a departure. A table that Dask hands out never outranks a reply.
* Every suspicion expires (bans, lateness, requests written off): else a healthy survivor
  of one bad second would never be asked again.
* A partition whose owners are all under suspicion gets a second copy of its recipe under a new
  key, because Dask believes those owners healthy and would not move it.
* Errors of the model are final; errors of links and processes are retried until `patience`.
* A partition that was being evaluated by each of several workers when they died is taken for the
  cause: it would bring down the whole cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from laddu_dask.runtime.cluster_view import SLOW_AT_MOST, SLOW_FACTOR, ClusterView, Limits

# ------------------------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class Start:
    """The evaluation begins; the clock of progress starts."""

    now: float


@dataclass(frozen=True, slots=True)
class Reply:
    """A worker answered `request` with one record per partition that it could evaluate."""

    now: float
    request: int
    epoch: int
    records: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class LinkFailed:
    """The connection or the process behind `request` broke, or the service is not there."""

    now: float
    request: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The model or a recipe said no; `error` is handed back to the caller, never retried."""

    now: float
    epoch: int
    error: object


@dataclass(frozen=True, slots=True)
class Owners:
    """Dask's own view of who holds which partition; an empty tuple means nobody right now."""

    now: float
    table: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """A hint of the scheduler that a worker left. Sparing us a deadline, never relied upon."""

    now: float
    worker: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""

    now: float


Event: TypeAlias = Start | Reply | LinkFailed | ModelFailed | Owners | WorkerGone | Tick

# ------------------------------------------------------------------------------ instructions


@dataclass(frozen=True, slots=True)
class Send:
    """Ask `worker` for these partitions; report back under the number `request`."""

    request: int
    worker: str
    epoch: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AskOwners:
    """Ask Dask who holds these partitions; the answer may get lost without harm."""

    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Run a second copy of these recipes, preferably on workers outside `avoid`."""

    partitions: tuple[int, ...]
    avoid: frozenset[str]


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop waiting for `request`; should it answer anyway, the answer is harmless."""

    request: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Every partition is counted once; `records` are in order of the partition number."""

    records: dict[int, bytes]


@dataclass(frozen=True, slots=True)
class FailModel:
    """The evaluation ends with the error of the model."""

    error: object


@dataclass(frozen=True, slots=True)
class FailDeaths:
    """So many workers died, one after the other, while they evaluated the first of these.

    The others are those over which nearly as many died.
    """

    partitions: tuple[int, ...]
    deaths: int


@dataclass(frozen=True, slots=True)
class FailCluster:
    """No partition was answered for `waited` seconds although these are still open."""

    unanswered: tuple[int, ...]
    waited: float


Instruction: TypeAlias = (
    Send | AskOwners | Rebuild | Abandon | Finish | FailModel | FailDeaths | FailCluster
)

# ------------------------------------------------------------------------------------- state


class _Open(NamedTuple):
    """A request that still may be answered."""

    worker: str
    partitions: frozenset[int]
    sent: float
    load: int  # partitions that the worker had to answer when this was sent
    late_after: float
    drop_after: float
    first_time: bool  # none of its partitions was asked for before: a fair measure of pace
    late: bool = False


class Evaluation:
    """One evaluation: `handle` events until `over`.

    Parameters
    ----------
    epoch
        Number of this evaluation within its session, larger than that of any before.
    partitions
        What has to be counted.
    view
        Knowledge about the workers, shared with the evaluations before and after.
    limits
        Deadlines.
    """

    def __init__(
        self, epoch: int, partitions: Iterable[int], view: ClusterView, limits: Limits
    ) -> None:
        self.epoch = epoch
        self.partitions = frozenset(partitions)
        self.view = view
        self.limits = limits
        self.records: dict[int, bytes] = {}
        self.over = False
        self._started = False
        self._open: dict[int, _Open] = {}
        self._requests = 0
        self._asked_for: set[int] = set()
        self._stale: set[int] = set()
        self._strikes: dict[str, int] = {}
        self._banned_until: dict[str, float] = {}
        self._written_off: dict[str, int] = {}
        self._broken: dict[str, frozenset[int]] = {}  # worker -> partitions it failed with
        self._deaths: Counter[int] = Counter()
        self._rebuilt_at: dict[int, float] = {}
        self._orphan_since: dict[int, float] = {}
        self._progress = 0.0
        self._next_question = 0.0
        self._pause = limits.poll

    # -------------------------------------------------------------------------------- events

    def handle(self, event: Event) -> list[Instruction]:
        """Take in `event`; return what is to be done now. After the end: nothing, ever."""
        if self.over:
            return []
        now = event.now
        instructions: list[Instruction] = []
        match event:
            case Start():
                self._started, self._progress = True, now
            case Reply() | ModelFailed() if event.epoch != self.epoch:
                return []
            case Reply():
                self._on_reply(event)
            case ModelFailed():
                return self._end(FailModel(event.error))
            case LinkFailed():
                self._on_link_failed(event)
            case WorkerGone():
                instructions += self._on_worker_gone(event)
            case Owners():
                instructions += self._on_owners(event)
        if not self._started:
            return instructions
        instructions += self._expire(now)
        if self.partitions <= self.records.keys():
            ordered = {p: self.records[p] for p in sorted(self.partitions)}
            return instructions + self._end(Finish(ordered))
        worst = max(self._deaths.values(), default=0)
        if worst >= self.limits.deaths:
            # Which of those asked together was the cause, the count alone cannot tell.
            ordered_by_deaths = sorted(self._deaths.items(), key=lambda item: (-item[1], item[0]))
            deadly = tuple(p for p, deaths in ordered_by_deaths if 2 * deaths > worst)
            return instructions + self._end(FailDeaths(deadly, worst))
        if now - self._progress > self.limits.patience:
            unanswered = tuple(sorted(self.partitions - self.records.keys()))
            return instructions + self._end(FailCluster(unanswered, now - self._progress))
        return instructions + self._advance(now)

    def _on_reply(self, event: Reply) -> None:
        request = self._open.pop(event.request, None)
        if request is not None:
            self._strikes.pop(request.worker, None)
            self._broken.pop(request.worker, None)
            if not request.late:
                self.view.slow_until.pop(request.worker, None)
            missing = request.partitions - event.records.keys()
            for partition in missing:
                self._disown(partition, request.worker)
            self._stale |= missing
            if request.first_time and not missing and self.limits.effort == 1.0:
                self.view.remember_pace(request.worker, event.now - request.sent, request.load)
        # Records count even when the request was written off: they are as good as any.
        for partition, record in event.records.items():
            if partition in self.partitions and partition not in self.records:
                self.records[partition] = record
                self._deaths.pop(partition, None)
                self._progress = event.now
                self._pause, self._next_question = self.limits.poll, 0.0

    def _on_link_failed(self, event: LinkFailed) -> None:
        request = self._open.pop(event.request, None)
        if request is None:
            return
        strikes = self._strikes.get(request.worker, 0) + 1
        self._strikes[request.worker] = strikes
        if strikes >= self.limits.strikes:
            self._banned_until[request.worker] = event.now + self.limits.ban
        self._broken[request.worker] = request.partitions | self._broken.get(
            request.worker, frozenset()
        )
        self._stale |= request.partitions  # ask who has them before trying again

    def _on_worker_gone(self, event: WorkerGone) -> list[Instruction]:
        self._banned_until[event.worker] = event.now + self.limits.ban
        self.view.paces.pop(event.worker, None)
        for partition, workers in self.view.owners.items():
            if event.worker in workers:  # corrects the evaluations to come as well
                self._disown(partition, event.worker)
        given_up = [n for n, request in self._open.items() if request.worker == event.worker]
        died_with = self._broken.pop(event.worker, frozenset())
        for number in given_up:
            died_with |= self._open.pop(number).partitions
        self._stale |= died_with
        self._deaths.update(died_with - self.records.keys())
        return [Abandon(number) for number in given_up]

    def _on_owners(self, event: Owners) -> list[Instruction]:
        suspects = self._suspects(event.now)
        copies: dict[frozenset[str], list[int]] = {}
        for partition, workers in event.table.items():
            self.view.owners[partition] = tuple(workers)
            self._stale.discard(partition)
            if partition in self.records:
                continue
            avoid = suspects | {
                request.worker
                for request in self._open.values()
                if request.late and partition in request.partitions
            }
            if workers:
                self._orphan_since.pop(partition, None)
                needed = avoid.issuperset(workers)
            else:
                since = self._orphan_since.setdefault(partition, event.now)
                # With nobody under suspicion Dask is trusted to be at work on it, for long.
                wait = self.limits.orphan_after if avoid else self.limits.patience / 4
                needed = event.now - since > wait
            last = self._rebuilt_at.get(partition)
            if needed and (last is None or event.now - last > self.limits.rebuild_every):
                self._rebuilt_at[partition] = event.now
                copies.setdefault(frozenset(avoid), []).append(partition)
        return [Rebuild(tuple(partitions), avoid) for avoid, partitions in copies.items()]

    # ------------------------------------------------------------------------------ helpers

    def _disown(self, partition: int, worker: str) -> None:
        owners = self.view.owners.get(partition, ())
        self.view.owners[partition] = tuple(w for w in owners if w != worker)

    def _suspects(self, now: float) -> set[str]:
        suspicions = (self._banned_until, self.view.slow_until)
        return {w for table in suspicions for w, until in table.items() if until > now}

    def _end(self, last: Instruction) -> list[Instruction]:
        self.over = True
        return [*(Abandon(number) for number in self._open), last]

    def _expire(self, now: float) -> list[Instruction]:
        """Late requests are no longer relied on, very late ones are written off."""
        instructions: list[Instruction] = []
        for number, request in list(self._open.items()):
            age = now - request.sent
            if not request.late and age > request.late_after:
                self._open[number] = request._replace(late=True)  # keep listening
                slow_for = min(SLOW_FACTOR * request.late_after, SLOW_AT_MOST)
                self.view.slow_until[request.worker] = now + slow_for
            elif request.late and age > request.drop_after:
                # A message can be lost for good on a living connection: ask again, even there.
                del self._open[number]
                self._stale |= request.partitions - self.records.keys()
                self._written_off[request.worker] = self._written_off.get(request.worker, 0) + 1
                instructions.append(Abandon(number))
        return instructions

    def _advance(self, now: float) -> list[Instruction]:
        """Send what can be sent; ask Dask about the rest."""
        relied_on = [r.partitions for r in self._open.values() if not r.late]
        uncovered = self.partitions.difference(self.records, *relied_on)
        messages: dict[str, list[int]] = {}
        unplaced: list[int] = []
        for partition in sorted(uncovered):
            worker = None if partition in self._stale else self._choose(partition, now)
            if worker is None:
                unplaced.append(partition)
            else:
                messages.setdefault(worker, []).append(partition)
        instructions: list[Instruction] = [
            self._send(worker, partitions, now) for worker, partitions in sorted(messages.items())
        ]
        if unplaced and now >= self._next_question:
            self._next_question = now + self._pause
            self._pause = min(2 * self._pause, 16 * self.limits.poll)
            instructions.append(AskOwners(tuple(unplaced)))
        return instructions

    def _choose(self, partition: int, now: float) -> str | None:
        """Owner to ask: none that is banned or already asked, slow ones last."""
        busy = {r.worker for r in self._open.values() if partition in r.partitions}
        usable = [
            worker
            for worker in self.view.owners.get(partition, ())
            if worker not in busy and self._banned_until.get(worker, now) <= now
        ]
        return min(usable, key=lambda w: self.view.slow_until.get(w, now) > now, default=None)

    def _send(self, worker: str, partitions: list[int], now: float) -> Send:
        queued = sum(len(r.partitions) for r in self._open.values() if r.worker == worker)
        load = queued + len(partitions)
        late_after = self.view.deadline(worker, load, self.limits)
        patient = 2 * late_after * 2 ** self._written_off.get(worker, 0)
        self._requests += 1
        self._open[self._requests] = _Open(
            worker=worker,
            partitions=frozenset(partitions),
            sent=now,
            load=load,
            late_after=late_after,
            drop_after=min(patient, self.limits.patience / 4),
            first_time=self._asked_for.isdisjoint(partitions),
        )
        self._asked_for.update(partitions)
        return Send(self._requests, worker, self.epoch, tuple(partitions))
