"""Where the time of a run went."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Stopwatch:
    """Named phases of a run, in order.

    Attributes
    ----------
    phases
        Seconds by name.
    """

    def __init__(self) -> None:
        self.phases: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block; a phase that occurs twice adds up."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - started)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds measured elsewhere."""
        self.phases[name] = self.phases.get(name, 0.0) + seconds

    @property
    def total(self) -> float:
        """Sum of all phases in seconds."""
        return sum(self.phases.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.phases.items())
        return f"{self.total:.1f} s in all: {parts}"


def seconds_since_process_start() -> float | None:
    """Age of this process, imports included; None where the system does not tell (not Linux)."""
    try:
        # After the command's name, which may hold blanks: field 20 is the start in clock ticks.
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return None
