"""What the planner decided, in a form that prints, compares and turns into JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from laddu_dask.errors import MemoryBudgetError
from laddu_dask.memory.lease import PoolReport
from laddu_dask.memory.process_plan import Measured, ProcessPlan
from laddu_dask.memory.sizes import format_bytes, saturate

Storage: TypeAlias = Literal["resident", "spilled", "streaming"]

Strategy: TypeAlias = Literal["resident", "spilled", "streaming", "mixed"]


@dataclass(frozen=True)
class Decision:
    """How one data set is kept and in what portions it is processed.

    Attributes
    ----------
    label
        Which data set, such as "signal/data".
    strategy
        "resident": prepared columns stay in memory; "spilled": they stay on disk and are mapped
        chunk by chunk; "streaming": rebuilt in every pass; "mixed": some partitions one way,
        some another.
    events, chunk_events
        Events in all, and the most that one chunk holds.
    resident_bytes
        What stays reserved between passes; 0 when streaming.
    peak_bytes
        Most bytes held at once: `resident_bytes + fixed_bytes + bytes_per_event * chunk_events`.
    available_bytes
        The budget it was planned in, less what other data sets planned with it keep resident.
    reason
        One English sentence: why this strategy and chunk.
    fixed_bytes, bytes_per_event
        The transient footprint of a pass, all tasks in flight together.
    measured_bytes
        The peak seen in execution, once known.
    resident_events, spilled_events
        Events of the partitions kept in memory and on disk; the rest is streamed. The first
        partitions are resident, the next ones spilled.
    spilled_bytes
        Room taken on disk.
    """

    label: str
    strategy: Strategy
    events: int
    chunk_events: int
    resident_bytes: int
    peak_bytes: int
    available_bytes: int
    reason: str
    fixed_bytes: int = 0
    bytes_per_event: int = 0
    measured_bytes: int | None = None
    resident_events: int = 0
    spilled_events: int = 0
    spilled_bytes: int = 0

    @property
    def streamed_events(self) -> int:
        """Events that every pass reads from their source."""
        return self.events - self.resident_events - self.spilled_events

    def tiers(self, partition_events: Sequence[int]) -> list[Storage]:
        """The planned storage of each of the partitions that the data set is cut into.

        The plan is that of one process with the largest share. Partitions are dealt out in turn,
        so a process has the same proportions as the first ones of all of them.
        """
        total, done = sum(partition_events), 0
        tiers: list[Storage] = []
        for events in partition_events:
            done += events
            if done * self.events <= self.resident_events * total:
                tiers.append("resident")
            elif done * self.events <= (self.resident_events + self.spilled_events) * total:
                tiers.append("spilled")
            else:
                tiers.append("streaming")
        return tiers

    @property
    def transient_bytes(self) -> int:
        """Bytes to reserve for the duration of one pass."""
        return self.peak_bytes - self.resident_bytes

    @property
    def chunks(self) -> int:
        """Number of chunks if all but the last are full."""
        return -(-self.events // self.chunk_events)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        chunks = "1 chunk" if self.chunks == 1 else f"{self.chunks} chunks"
        holds = f"holds {format_bytes(self.resident_bytes)}, " if self.resident_bytes else ""
        if self.spilled_bytes:
            holds += f"{format_bytes(self.spilled_bytes)} on disk, "
        measured = ""
        if self.measured_bytes is not None:
            measured = f" (measured {format_bytes(self.measured_bytes)})"
        return (
            f"{self.label}: {self.strategy}, {self.events} events in {chunks} of at most "
            f"{self.chunk_events}, {holds}peak {format_bytes(self.peak_bytes)}{measured} of "
            f"{format_bytes(self.available_bytes)}: {self.reason}"
        )


class MemoryReport:
    """Decisions in the order they were taken, and the pools they were taken for.

    Prints as a plain-text table. Data sets are passed over one after the other, so the peak of
    all is everything resident plus the largest transient, not the sum of the peaks.

    Parameters
    ----------
    decisions
        For the process with the largest share.
    pools
        Of every worker of a cluster.
    processes
        What each of the processes is to hold.
    notes
        Lines about what else has a part in it, such as leases of other sessions.
    """

    def __init__(
        self,
        decisions: Iterable[Decision] = (),
        pools: Iterable[PoolReport] = (),
        processes: Iterable[ProcessPlan] = (),
        notes: Iterable[str] = (),
    ) -> None:
        self._decisions = list(decisions)
        self.pools = tuple(pools)
        self.processes = tuple(processes)
        self.notes = tuple(notes)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All decisions so far."""
        return tuple(self._decisions)

    @property
    def resident_bytes(self) -> int:
        """Bytes that stay reserved between passes, all data sets together."""
        return saturate(sum(decision.resident_bytes for decision in self._decisions))

    @property
    def spilled_bytes(self) -> int:
        """Room taken on disk, all data sets together."""
        return saturate(sum(decision.spilled_bytes for decision in self._decisions))

    @property
    def peak_bytes(self) -> int:
        """Most bytes held at once over a whole evaluation."""
        transient = max((decision.transient_bytes for decision in self._decisions), default=0)
        return saturate(self.resident_bytes + transient)

    def record(self, *decisions: Decision) -> None:
        """Append decisions."""
        self._decisions.extend(decisions)

    def measure(self, label: str, measured_bytes: int) -> None:
        """Fill in the measured peak of the data set `label`.

        Raises
        ------
        MemoryBudgetError
            If no decision carries that label.
        """
        known = [decision.label for decision in self._decisions]
        if label not in known:
            raise MemoryBudgetError(
                f"no memory decision is labelled {label!r}; there are {known}",
                resource=label,
                requested=measured_bytes,
                remaining=None,
            )
        for position, decision in enumerate(self._decisions):
            if decision.label == label:
                self._decisions[position] = replace(decision, measured_bytes=measured_bytes)

    def with_measured(self, seen: Mapping[str, Measured]) -> MemoryReport:
        """The same with what processes were seen to take, by their names.

        A data set is told the most that any of them took for it.
        """
        processes = [
            process
            if process.name not in seen
            else replace(
                process,
                measured_bytes=seen[process.name].growth,
                measured=dict(seen[process.name].datasets),
            )
            for process in self.processes
        ]
        report = MemoryReport(self._decisions, self.pools, processes, self.notes)
        known = {decision.label for decision in self._decisions}
        most: dict[str, int] = {}
        for process in processes:
            for label, nbytes in process.measured.items():
                most[label] = max(most.get(label, 0), nbytes)
        for label in most.keys() & known:
            report.measure(label, most[label])
        return report

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        return {
            "decisions": [decision.to_dict() for decision in self._decisions],
            "pools": [pool.to_dict() for pool in self.pools],
            "processes": [process.to_dict() for process in self.processes],
            "notes": list(self.notes),
            "resident_bytes": self.resident_bytes,
            "spilled_bytes": self.spilled_bytes,
            "peak_bytes": self.peak_bytes,
        }

    def __str__(self) -> str:
        # Of this process alone the table says all before it is measured.
        told = [
            str(process)
            for process in self.processes
            if process.name or process.measured_bytes is not None
        ]
        told += [*map(str, self.pools), *self.notes]
        if not self._decisions:
            return "\n".join(["no memory decisions yet", *told])
        sizes = ("resident", "disk", "peak", "measured")
        head = ("data set", "storage", "events", "chunk", *sizes, "why")
        kept, peak = format_bytes(self.resident_bytes), format_bytes(self.peak_bytes)
        disk = format_bytes(self.spilled_bytes)
        together = ("together", "", "", "", kept, disk, peak, "", "one pass at a time")
        rows = [head, *map(_row, self._decisions), together]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_line(row, widths) for row in rows]
        rule = "-" * max(map(len, lines))
        table = [lines[0], rule, *lines[1:-1], rule, lines[-1]]
        return "\n".join([*table, *told])


_LEFT_ALIGNED = (0, 1, 8)


def _row(decision: Decision) -> tuple[str, ...]:
    measured = decision.measured_bytes
    return (
        decision.label,
        decision.strategy,
        str(decision.events),
        str(decision.chunk_events),
        format_bytes(decision.resident_bytes),
        format_bytes(decision.spilled_bytes),
        format_bytes(decision.peak_bytes),
        "-" if measured is None else format_bytes(measured),
        decision.reason,
    )


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = (
        cell.ljust(width) if column in _LEFT_ALIGNED else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()
