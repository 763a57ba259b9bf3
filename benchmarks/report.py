"""The comparison as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from machine import Machine
from promises import BANDWIDTH_SHARE, Evaluation, Start

EVALUATION_HEAD = (
    f"{'CPU time, medians':<45}{'ours/ms':>9}{'laddu/ms':>10}{'ns/event':>9}{'ratio':>8}"
    f"{'of min':>8}{'promised':>9}  read bandwidth"
)
START_HEAD = (
    f"{'to the first value and gradient, fresh process':<55}"
    f"{'CPU/s':>8}{'wall/s':>8}{'peak/MiB':>10}"
)
_MISS = "  MISS"


def machine_lines(machine: Machine, bandwidth: float) -> str:
    """What the numbers below were measured on."""
    return (
        f"{machine.processor}, {machine.threads} processors, kernels for {machine.target} with "
        f"{machine.vector_bits}-bit vectors\n"
        f"reading {bandwidth / 1e9:.1f} GB/s per thread; load average {machine.load:.1f} before "
        "the start"
    )


def evaluation_line(row: Evaluation) -> str:
    """One evaluation; what is not as promised is marked."""
    where = f"{row.model:<8} {row.normalization:<8} {row.threads:>2}T {row.what}"
    line = (
        f"{where:<45}{1e3 * row.ours.median:>9.2f}{1e3 * row.theirs.median:>10.2f}"
        f"{1e9 * row.ours.median / row.events:>9.2f}{row.ratio:>8.1f}{row.ratio_of_least:>8.1f}"
        f"{row.required:>9g}"
    )
    share = row.bandwidth_share
    if share is not None:
        line += (
            f"  {row.column_bytes / row.ours.median / 1e9:.1f} GB/s, {share:.0%} of "
            f"{row.bandwidth / 1e9:.1f} (promised {BANDWIDTH_SHARE:.0%})"
        )
    return line + _MISS * any(row.misses())


def start_lines(starts: Sequence[Start], missed: bool) -> str:
    """What one model takes to start, in both programs."""
    lines = []
    for row in starts:
        program = row.program if row.program == "laddu" else f"ours, {row.program} kernel cache"
        where = f"{row.model:<8} {row.normalization:<8} {row.threads:>2}T {program}"
        lines.append(f"{where:<55}{row.cpu:>8.2f}{row.wall:>8.2f}{row.peak / 2**20:>10.0f}")
    return "\n".join(lines) + _MISS * missed


def startup_lines(startup: dict[str, int]) -> str:
    """Memory of processes that only import."""
    return "\n".join(f"{name:<71}{peak / 2**20:>10.0f}" for name, peak in startup.items())
