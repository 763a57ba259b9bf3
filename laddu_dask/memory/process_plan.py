"""What one process is to hold, and what it was seen to hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from laddu_dask.memory.sizes import format_bytes


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
    measured_bytes
        By how much the process grew at most over what it had before, once known.
    """

    name: str
    threads: int
    budget_bytes: int
    disk_bytes: int
    resident_bytes: int
    spilled_bytes: int
    peak_bytes: int
    measured_bytes: int | None = None

    @property
    def error(self) -> float | None:
        """Measured over planned peak, less one; None before it is measured, or without a plan."""
        if self.measured_bytes is None or not self.peak_bytes:
            return None
        return self.measured_bytes / self.peak_bytes - 1

    def to_dict(self) -> dict[str, Any]:
        """The fields and the error as plain data for JSON."""
        return {**asdict(self), "error": self.error}

    def __str__(self) -> str:
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        told = (
            f"{self.name or 'this process'}: {threads}, holds {format_bytes(self.resident_bytes)}"
            f" and {format_bytes(self.spilled_bytes)} on disk, peak "
            f"{format_bytes(self.peak_bytes)} of {format_bytes(self.budget_bytes)}"
        )
        if self.measured_bytes is None:
            return told
        error = "" if self.error is None else f", {100 * self.error:+.0f} %"
        return f"{told}; measured {format_bytes(self.measured_bytes)}{error}"
