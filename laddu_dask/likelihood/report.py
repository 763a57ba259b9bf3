"""What a likelihood has done so far, for people and as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from laddu_dask.memory import Measured, MemoryReport, format_bytes
from laddu_dask.runtime.worker_info import WorkerInfo


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

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "plan": self.plan.to_dict(),
            "workers": [asdict(worker) for worker in self.workers],
            "evaluations": self.evaluations,
            "evaluation_seconds": self.evaluation_seconds,
            "preparation_seconds": self.preparation_seconds,
            "events": self.events,
        }

    def __str__(self) -> str:
        lines = [
            str(self.plan),
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
