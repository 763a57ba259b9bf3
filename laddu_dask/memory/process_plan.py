"""What one process is to hold, and what it was seen to hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from laddu_dask.memory.sizes import format_bytes


@dataclass(frozen=True)
class Measured:
    """What a process was seen to take.

    Attributes
    ----------
    growth
        By how many bytes it grew at most.
    datasets
        Bytes that each data set took at most.
    """

    growth: int
    datasets: Mapping[str, int]


@dataclass(frozen=True)
class ProcessPlan:
    """The plan of a process, all data sets together.

    Attributes
    ----------
    name
        Address of the worker; "" for this process.
    threads
        Its threads.
    budget_bytes, disk_bytes
        What the plan may use of its memory and its disk.
    resident_bytes, spilled_bytes
        What stays in memory and on disk between passes.
    peak_bytes
        Most bytes of memory at once.
    datasets
        The same for each data set alone.
    measured_bytes
        By how much the process grew at most over what it had before, once known.
    measured
        Bytes that each data set was seen to take at most, once known: kept ones, and what grew
        while it was worked on.
    """

    name: str
    threads: int
    budget_bytes: int
    disk_bytes: int
    resident_bytes: int
    spilled_bytes: int
    peak_bytes: int
    datasets: Mapping[str, int] = field(default_factory=dict)
    measured_bytes: int | None = None
    measured: Mapping[str, int] = field(default_factory=dict)

    @property
    def error(self) -> float | None:
        """Measured over planned peak, less one; None before it is measured, or without a plan."""
        return _error(self.peak_bytes, self.measured_bytes)

    @property
    def errors(self) -> dict[str, float]:
        """The same for each data set that was measured."""
        found = {label: _error(self.datasets.get(label), n) for label, n in self.measured.items()}
        return {label: error for label, error in found.items() if error is not None}

    def to_dict(self) -> dict[str, Any]:
        """The fields and the errors as plain data for JSON."""
        return {**asdict(self), "error": self.error, "errors": self.errors}

    def __str__(self) -> str:
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        told = (
            f"{self.name or 'this process'}: {threads}, holds {format_bytes(self.resident_bytes)}"
            f" and {format_bytes(self.spilled_bytes)} on disk, peak "
            f"{format_bytes(self.peak_bytes)} of {format_bytes(self.budget_bytes)}"
        )
        if self.measured_bytes is None:
            return told
        lines = [f"{told}; measured {_with_error(self.measured_bytes, self.error)}"]
        for label, peak in self.datasets.items():
            if label in self.measured:
                seen = _with_error(self.measured[label], self.errors.get(label))
                lines.append(f"  {label}: planned {format_bytes(peak)}, measured {seen}")
        return "\n".join(lines)


def _error(planned: int | None, measured: int | None) -> float | None:
    return measured / planned - 1 if planned and measured is not None else None


def _with_error(measured: int, error: float | None) -> str:
    return format_bytes(measured) + ("" if error is None else f" ({100 * error:+.0f} %)")
