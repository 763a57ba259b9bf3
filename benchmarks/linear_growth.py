"""Whether a pass over generated events takes time in proportion to their number.

Events are made from their row numbers where they are wanted (`Dataset.from_ranges`): there is no
file, and memory does not grow either. Prints CPU time per event for every number of events, that of
generating alone beside it, and fails if any differs from the first by more than ten percent.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

from fresh_process import peak_bytes

import laddu_dask as ld
from laddu_dask.data import row_uniforms

EVENTS = (10**6, 10**7, 10**8)
#: Largest deviation from time in proportion to events.
TOLERANCE = 0.10
REPEATS = 3


class Pass(NamedTuple):
    """Seconds of one pass, of the processors and by the clock."""

    cpu: float
    wall: float


def sample(start: int, stop: int) -> dict[str, Any]:
    """Masses and cosines, flat."""
    mass, costheta = row_uniforms(2024, start, stop, 2)
    return {"mass": 0.9 + mass, "costheta": 2.0 * costheta - 1.0}


def dataset(events: int) -> ld.Dataset:
    """So many of these events."""
    return ld.Dataset.from_ranges(
        sample, ["mass", "costheta"], rows=events, identity="flat, seed 2024"
    )


def intensity() -> ld.Expr:
    """A resonance with an angle."""
    wave = ld.breit_wigner(
        ld.scalar("mass"),
        mass=ld.parameter("mass", initial=1.3),
        width=ld.parameter("width", initial=0.12),
    )
    return (wave * ld.scalar("costheta")).norm_sqr() + 0.1


def generate(events: int) -> Pass:
    """Generate all events and do nothing with them."""

    def work() -> None:
        for _ in dataset(events).batches(["mass", "costheta"]):
            pass

    return timed(work)


def evaluate(events: int, threads: int) -> Pass:
    """Value and gradient over the events as data, of which nothing is kept.

    The second time: the first one also looks for what can be left out.
    """
    execution = ld.Execution(storage="streaming", threads=threads, normalization="general")
    term = ld.NLL(ld.Model(intensity()), data=dataset(events), accepted_mc=dataset(1000))
    with ld.Likelihood([term], execution) as likelihood:
        likelihood.value_and_gradient()
        return timed(likelihood.value_and_gradient)


def timed(work: Callable[[], object]) -> Pass:
    """The least of several times: whatever else a machine does only adds to it."""
    passes = []
    for _ in range(REPEATS):
        cpu, wall = process_time(), perf_counter()
        work()
        passes.append(Pass(process_time() - cpu, perf_counter() - wall))
    return min(passes)


def main() -> None:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=EVENTS)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    print("     events  pass, CPU ns/event  wall ns/event  generating  peak memory")
    first, wrong = None, []
    for events in options.events:
        found, alone = evaluate(events, options.threads), generate(events)
        peak = peak_bytes(Path("/proc/self/status").read_text())
        each = 1e9 * found.cpu / events
        print(
            f"{events:11,d}  {each:18.1f}  {1e9 * found.wall / events:13.1f}  "
            f"{1e9 * alone.cpu / events:10.1f}  {peak / 2**20:7.0f} MiB"
        )
        first = each if first is None else first
        if abs(each / first - 1) > TOLERANCE:
            wrong.append(events)
    if wrong:
        raise SystemExit(f"not in proportion within {TOLERANCE:.0%}: {wrong}")


if __name__ == "__main__":
    main()
