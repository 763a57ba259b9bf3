"""What a session knows about its workers, and how long it waits for them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from statistics import median


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
    deaths
        The evaluation fails when so many workers died over one partition.
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
    deaths: int = 5

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
