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
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple, TypeAlias

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
class FailCluster:
    """No partition was answered for `waited` seconds although these are still open."""

    unanswered: tuple[int, ...]
    waited: float


Instruction: TypeAlias = Send | AskOwners | Rebuild | Abandon | Finish | FailModel | FailCluster

# ------------------------------------------------------------------------------------- state


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines of the recovery, all in seconds.

    Parameters
    ----------
    ask_after
        Age at which a request counts as late, for a worker whose pace is unknown (its first
        evaluation may compile kernels) and, unless `adaptive`, for every worker.
    adaptive
        Take `pace_factor` times the median pace of the worker's last replies instead, scaled with
        the partitions that it has to answer and never below `least`.
    poll
        Shortest pause between two questions to Dask; it doubles, up to 16 times, while these
        bring no progress.
    patience
        The evaluation fails when no new partition was counted for this long. It must exceed
        the longest honest message of one worker.
    strikes, ban
        After so many link failures in a row a worker is left alone for `ban` seconds.
    rebuild_every
        Shortest pause between two second copies of one partition.
    orphan_after
        A partition that nobody holds for this long is given a second copy, when some worker is
        under suspicion (Dask may be recomputing it exactly there).
    effort
        How many times as long as usual a reply may take.
    """

    ask_after: float = 60.0
    adaptive: bool = True
    least: float = 0.2
    pace_factor: float = 3.0
    poll: float = 0.03
    patience: float = 300.0
    strikes: int = 2
    ban: float = 1.0
    rebuild_every: float = 1.0
    orphan_after: float = 5.0
    effort: float = 1.0

    def stretched(self, effort: float) -> Limits:
        """Deadlines for a request that takes `effort` times as long as a usual one.

        Its kernels may have to be compiled first, so no pace counts as too slow before
        `ask_after`.
        """
        if effort == 1.0:
            return self
        return replace(
            self,
            effort=effort,
            ask_after=effort * self.ask_after,
            least=max(self.least, self.ask_after),
            patience=effort * self.patience,
        )


SLOW_FACTOR = 30.0
"""A late worker is not preferred for this many times the deadline that it missed..."""
SLOW_AT_MOST = 60.0
"""...but for no more than so many seconds."""
PACES_KEPT = 7
"""Replies of a worker that its pace is the median of."""


@dataclass
class ClusterView:
    """What is known about the workers; it outlives evaluations.

    Attributes
    ----------
    owners
        Partition -> addresses believed to hold it, best first.
    slow_until
        Address -> time until which others are preferred.
    paces
        Address -> seconds per partition of the last replies.
    """

    owners: dict[int, tuple[str, ...]] = field(default_factory=dict)
    slow_until: dict[str, float] = field(default_factory=dict)
    paces: dict[str, deque[float]] = field(default_factory=dict)

    def deadline(self, worker: str, partitions: int, limits: Limits) -> float:
        """Seconds after which `worker`, having `partitions` to answer, counts as late.

        At most a third of the patience, so that there is time to recover.
        """
        paces = self.paces.get(worker)
        if not limits.adaptive or not paces:
            return min(limits.ask_after, limits.patience / 3)
        expected = limits.pace_factor * limits.effort * median(paces) * partitions
        return min(max(limits.least, expected), limits.patience / 3)

    def remember_pace(self, worker: str, seconds: float, partitions: int) -> None:
        """Note that `worker` answered `partitions` in so many seconds."""
        self.paces.setdefault(worker, deque(maxlen=PACES_KEPT)).append(seconds / partitions)


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
        if now - self._progress > self.limits.patience:
            unanswered = tuple(sorted(self.partitions - self.records.keys()))
            return instructions + self._end(FailCluster(unanswered, now - self._progress))
        return instructions + self._advance(now)

    def _on_reply(self, event: Reply) -> None:
        request = self._open.pop(event.request, None)
        if request is not None:
            self._strikes.pop(request.worker, None)
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
        self._stale |= request.partitions  # ask who has them before trying again

    def _on_worker_gone(self, event: WorkerGone) -> list[Instruction]:
        self._banned_until[event.worker] = event.now + self.limits.ban
        self.view.paces.pop(event.worker, None)
        for partition, workers in self.view.owners.items():
            if event.worker in workers:  # corrects the evaluations to come as well
                self._disown(partition, event.worker)
        given_up = [n for n, request in self._open.items() if request.worker == event.worker]
        for number in given_up:
            self._stale |= self._open.pop(number).partitions
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
