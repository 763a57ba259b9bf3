"""What this package promises in comparison with laddu, and whether measurements keep it.

All speed is CPU time of value, or of value and gradient, for 200 000 data and a million accepted
Monte Carlo events: laddu's divided by ours. Smaller samples say nothing about the promises, since
what does not grow with the events then counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: Least ratio of value and gradient, by model and normalisation: every accepted event summed in
#: every evaluation ("general"), or each program with its own shortcut ("auto").
GRADIENT_RATIO = {
    ("A", "general"): 5.0,
    ("A", "auto"): 4.0,
    ("B", "general"): 40.0,
    ("B", "auto"): 40.0,
    ("C-fixed", "general"): 20.0,
    ("C-fixed", "auto"): 60.0,
    ("C-free", "general"): 50.0,
    ("C-free", "auto"): 50.0,
    ("D", "general"): 30.0,
    ("D", "auto"): 30.0,
}
#: Least ratio of the value alone, on every model.
VALUE_RATIO = 3.0
#: Least share of the memory's read bandwidth that model A reaches on one thread, every event read.
BANDWIDTH_SHARE = 0.8


@dataclass(frozen=True)
class Times:
    """CPU seconds of repeated evaluations."""

    median: float
    least: float


@dataclass(frozen=True)
class Evaluation:
    """One row of the comparison.

    Attributes
    ----------
    model, normalization, threads, what
        What was evaluated; `what` is the name of the likelihood's method.
    ours, theirs
        CPU times of this package and of laddu.
    events
        Data and accepted Monte Carlo events.
    column_bytes
        Bytes of columns that one of our evaluations reads.
    bandwidth
        Read bandwidth of one thread in bytes per second, measured beside this row.
    """

    model: str
    normalization: str
    threads: int
    what: str
    ours: Times
    theirs: Times
    events: int
    column_bytes: int
    bandwidth: float

    @property
    def ratio(self) -> float:
        """How many times less CPU time ours needs, by the medians."""
        return self.theirs.median / self.ours.median

    @property
    def ratio_of_least(self) -> float:
        """The same by the fastest evaluation of each, which other work disturbs least."""
        return self.theirs.least / self.ours.least

    @property
    def required(self) -> float:
        """The promised ratio."""
        if self.what == "value":
            return VALUE_RATIO
        return GRADIENT_RATIO[self.model, self.normalization]

    @property
    def bandwidth_share(self) -> float | None:
        """Share of the read bandwidth, where memory is what limits: A, one thread, every event."""
        if (self.model, self.normalization, self.threads) != ("A", "general", 1):
            return None
        return self.column_bytes / self.ours.median / self.bandwidth

    def misses(self) -> Iterator[str]:
        """What is not as promised."""
        where = f"{self.model} {self.normalization} {self.what}, {self.threads} thread(s)"
        if not self.ratio >= self.required:
            yield f"{where}: {self.ratio:.1f} times laddu's speed, promised {self.required:g}"
        share = self.bandwidth_share
        if share is not None and not share >= BANDWIDTH_SHARE:
            yield f"{where}: {share:.0%} of the read bandwidth, promised {BANDWIDTH_SHARE:.0%}"


@dataclass(frozen=True)
class Start:
    """A likelihood from its construction to the first value and gradient, in a fresh process.

    Attributes
    ----------
    model, normalization, threads
        What was evaluated.
    program
        ``"laddu"``, or ours with a ``"cold"`` or a ``"warm"`` kernel cache.
    cpu, wall
        Seconds, medians.
    peak
        Most bytes of memory that the process held, start-up included; median.
    """

    model: str
    normalization: str
    threads: int
    program: str
    cpu: float
    wall: float
    peak: int


def memory_misses(starts: Sequence[Start], startup: int) -> Iterator[str]:
    """Where ours needs more memory than laddu and `startup`.

    `startup` is what Python with NumPy and llvmlite, the least that compiled kernels need, occupies
    before there is anything to do.
    """
    limits = {
        (s.model, s.normalization, s.threads): s.peak + startup
        for s in starts
        if s.program == "laddu"
    }
    for s in starts:
        limit = limits.get((s.model, s.normalization, s.threads))
        if s.program != "laddu" and limit is not None and s.peak > limit:
            yield (
                f"{s.model} {s.normalization}, {s.program} kernel cache, {s.threads} thread(s): "
                f"{s.peak / 2**20:.0f} MiB, promised {limit / 2**20:.0f} MiB"
            )
