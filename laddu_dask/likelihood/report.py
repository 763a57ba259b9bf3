"""What a likelihood has done so far, for people and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from laddu_dask.memory import Measured, MemoryReport, Storage, format_bytes
from laddu_dask.runtime.worker_info import Kept, WorkerInfo


@dataclass(frozen=True)
class LikelihoodReport:
    """Counters and measurements.

    Attributes
    ----------
    plan
        The memory plan.
    workers
        Every process that holds partitions, measured now.
    evaluations
        Passes over the events for a value or a value with gradient.
    evaluation_seconds
        Wall time in these.
    preparation_seconds
        Wall time of compiling kernels and preparing partitions.
    events
        Events in all data sets.
    """

    plan: MemoryReport
    workers: tuple[WorkerInfo, ...]
    evaluations: int
    evaluation_seconds: float
    preparation_seconds: float
    events: int

    @property
    def evaluations_per_second(self) -> float:
        """Mean rate; 0 before the first evaluation."""
        if not self.evaluations:
            return 0.0
        return self.evaluations / max(self.evaluation_seconds, 1e-9)

    @property
    def storage(self) -> dict[str, dict[Storage, int]]:
        """Events of each data set by how they are kept now, all processes together."""
        found: dict[str, Counter[Storage]] = {}
        for worker in self.workers:
            for kept in worker.kept:
                found.setdefault(kept.label, Counter())[kept.used] += kept.events
        return {label: dict(events) for label, events in found.items()}

    @property
    def not_as_planned(self) -> tuple[Kept, ...]:
        """What is kept in another way than the plan says, as there was no room."""
        found: dict[tuple[str, Storage, Storage], Kept] = {}
        for worker in self.workers:
            for kept in worker.kept:
                if kept.used != kept.planned:
                    key = kept.label, kept.planned, kept.used
                    before = found.get(key, replace(kept, partitions=0, events=0))
                    found[key] = replace(
                        kept,
                        partitions=before.partitions + kept.partitions,
                        events=before.events + kept.events,
                    )
        return tuple(found.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "plan": self.plan.to_dict(),
            "storage": self.storage,
            "not_as_planned": [asdict(kept) for kept in self.not_as_planned],
            "workers": [asdict(worker) for worker in self.workers],
            "evaluations": self.evaluations,
            "evaluation_seconds": self.evaluation_seconds,
            "preparation_seconds": self.preparation_seconds,
            "events": self.events,
        }

    def __str__(self) -> str:
        lines = [
            str(self.plan),
            *(
                f"NOT AS PLANNED: {kept.label}: {kept.events} events in {kept.partitions} "
                f"partitions are {kept.used}, not {kept.planned}; {kept.reason}"
                for kept in self.not_as_planned
            ),
            f"{self.evaluations} evaluations of {self.events} events in "
            f"{self.evaluation_seconds:.2f} s ({self.evaluations_per_second:.1f} per second); "
            f"preparation {self.preparation_seconds:.2f} s",
        ]
        for worker in self.workers:
            lines.append(
                f"{worker.address}: {worker.nthreads} threads, {worker.partitions} partitions, "
                f"resident memory {format_bytes(worker.resident_bytes)}, "
                f"peak {format_bytes(worker.peak_resident_bytes)}"
            )
            if worker.shrunk:
                lines.append(f"  memory ran out: {worker.shrunk} partitions in smaller chunks")
            if worker.moved_to_disk:
                lines.append(
                    f"  {worker.moved_to_disk} partitions were moved to disk by Dask and are read "
                    "back in every evaluation; give a smaller Execution(memory=...)"
                )
        return "\n".join(lines)


def seen_by(workers: Iterable[WorkerInfo]) -> dict[str, Measured]:
    """What processes were seen to take, by their names in a plan."""
    return {worker.name: Measured(worker.growth, worker.measured) for worker in workers}
