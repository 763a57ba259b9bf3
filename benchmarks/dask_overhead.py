"""What Dask adds to the kernels, and how a pass grows with the events.

`overhead`: wall time of an evaluation (value and gradient) on a cluster of this machine, less that
of the same partitions in this process, which is next to nothing for so few events. Beside it, as a
measure of the machine, the time of one empty message to each worker, all sent at once. Promised: at
most 3 ms with 2 workers, at most 10 ms with 16.

`preparation`: wall time from a likelihood of events in Parquet files to its first value and
gradient, kernels compiled before, in units of reading the same columns into memory with pyarrow
alone, by the same number of threads. Both begin with memory that the system has to clear. Promised:
at most 1.3.

`growth`: wall time of a pass over generated events, made in chunks and never stored. Promised: each
additional event takes the same time, within 10 %, from one size to the next; and no event takes
longer, by more than that, in a larger sample than in the smallest.

All that is compared is measured in turns. Run: python benchmarks/dask_overhead.py [--help]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import models
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster
from evaluation import likelihood, sample
from machine import Machine, available_threads

import laddu_dask
from laddu_dask.kernels.optimizer import optimizer

#: Most milliseconds that an evaluation may take beyond the kernels, by number of workers.
MOST_OVERHEAD = {2: 3.0, 16: 10.0}
#: Most times as long as reading alone.
MOST_PREPARATION = 1.3
#: Events that are prepared: about as many numbers for wide models as for narrow ones.
EVENTS = {"A": 4_000_000}
USUAL_EVENTS = 30_000_000
#: Most difference of the time that an additional event takes.
MOST_GROWTH = 0.1
PARTS = ("overhead", "preparation", "growth")
#: Seconds that the compiler may need before a measurement is given up.
_PATIENCE = 600.0


def main() -> int:
    """Print the parts that were asked for; 1 if --check and a promise was missed."""
    parser = argparse.ArgumentParser(description="what Dask adds, and how passes grow")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--workers", nargs="+", type=int, default=[*MOST_OVERHEAD])
    parser.add_argument("--models", nargs="+", choices=[*models.MODELS], default=["A", "D"])
    parser.add_argument("--rounds", type=int, default=200, help="evaluations of the overhead")
    parser.add_argument("--events", type=int, help="events that are prepared")
    parser.add_argument("--samples", nargs="+", type=int, default=[10**6, 10**7, 10**8])
    parser.add_argument("--check", action="store_true", help="fail if a promise is missed")
    options = parser.parse_args()
    here = Machine.here()
    print(f"{here.processor}, {here.threads} processors, load average {here.load:.1f}")
    kept = []
    if "overhead" in options.parts:
        kept += [
            overhead(n, name, options.rounds) for n in options.workers for name in options.models
        ]
    if "preparation" in options.parts:
        kept += [
            preparation(name, options.events or EVENTS.get(name, USUAL_EVENTS))
            for name in options.models
        ]
    if "growth" in options.parts:
        kept.append(growth(options.samples))
    return int(options.check and not all(kept))


def in_turns(calls: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Wall seconds of each call, all called once in every round."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, own in zip(calls, times, strict=True):
            begun = time.perf_counter()
            call()
            own.append(time.perf_counter() - begun)
    return times


def overhead(workers: int, name: str, rounds: int) -> bool:
    """An evaluation on workers and in this process, and an empty message to each worker."""
    samples = [sample(laddu_dask, name, 1024 * 2 * workers, role) for role in models.ROLES]
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers, timeout=_PATIENCE)
        addresses = [*client.scheduler_info(n_workers=-1)["workers"]]
        options: dict[str, Any] = {"normalization": "general", "partitions": 2 * workers}
        remote = likelihood(
            laddu_dask, name, samples, laddu_dask.Execution(cluster=client, **options)
        )
        local = likelihood(laddu_dask, name, samples, laddu_dask.Execution(threads=1, **options))

        async def echo() -> None:
            await asyncio.gather(*(client.rpc(address).identity() for address in addresses))

        point = remote.default_parameters
        calls = [
            lambda: remote.value_and_gradient(point),
            lambda: local.value_and_gradient(point),
            lambda: client.sync(echo),
        ]
        in_turns(calls, 20)  # compiled, connected
        wait_for_compilers(client)
        there, here, message = (1e3 * median(own) for own in in_turns(calls, rounds))
        remote.close()
        local.close()
    spent, most = there - here, MOST_OVERHEAD.get(workers)
    fine = most is None or spent <= most
    promised = "" if most is None else f", promised {most:.0f} ms"
    print(
        f"overhead     {name:8} {workers:3} workers: {spent:6.2f} ms an evaluation{promised}; "
        f"{spent / message:.1f} times an empty message to each worker ({message:.2f} ms)"
        + ("" if fine else "  MISS"),
        flush=True,
    )
    return fine


def wait_for_compilers(client: Client) -> None:
    """Until nobody compiles in the background any more."""
    optimizer.wait(_PATIENCE)
    client.run(_wait_here)


def _wait_here() -> None:
    from laddu_dask.kernels.optimizer import optimizer  # that of the worker

    optimizer.wait(_PATIENCE)


def preparation(name: str, events: int) -> bool:
    """The first value and gradient of events in files, and reading them with pyarrow alone."""
    threads = available_threads()
    with TemporaryDirectory() as folder:
        files = [Path(folder, f"{role}.parquet") for role in models.ROLES]
        for file, role, n in zip(files, models.ROLES, (events // 5, events), strict=True):
            pq.write_table(pa.table(models.events(name, n, role)), file, row_group_size=1 << 17)
        samples = [laddu_dask.read_parquet(file) for file in files]
        execution = laddu_dask.Execution(threads=threads, normalization="general")

        def first() -> None:
            likelihood(laddu_dask, name, samples, execution).value_and_gradient()

        columns = [*laddu_dask.Model(models.MODELS[name](laddu_dask)).columns, "weight"]

        def read() -> None:
            held = [pq.read_table(file, columns=columns, use_threads=threads > 1) for file in files]
            del held
            pa.default_memory_pool().release_unused()

        first()
        optimizer.wait(_PATIENCE)
        prepared, alone = (median(own) for own in in_turns([first, read], 7))
    ratio = prepared / alone
    fine = ratio <= MOST_PREPARATION
    print(
        f"preparation  {name:8} {1.2 * events:.3g} events: {ratio:.2f} times reading alone "
        f"({prepared:.2f} s, {alone:.2f} s), promised {MOST_PREPARATION}"
        + ("" if fine else "  MISS"),
        flush=True,
    )
    return fine


def generated(start: int, stop: int) -> dict[str, Any]:
    """Events of model D: a row depends on its number alone."""
    row = np.arange(start, stop, dtype=np.float64)
    return {
        "s": 1.1 + 1e-3 * (row % 977),
        "ct": -1 + 2e-3 * (row % 991),
        "phi": -3.1 + 6e-3 * (row % 1021),
    }


def growth(sizes: Sequence[int]) -> bool:
    """Passes over samples of several sizes, all by the same kernels."""
    x, y, z = (laddu_dask.scalar(name) for name in ("s", "ct", "phi"))
    a, b = laddu_dask.parameter("a", initial=0.4), laddu_dask.parameter("b", initial=0.5)
    model = laddu_dask.Model((1 + a * x + b * y * z.cos()) ** 2 + 1)
    data = laddu_dask.Dataset.from_ranges(generated, ["s", "ct", "phi"], rows=10_000, identity="d")
    passes = []
    for n in sizes:
        mc = laddu_dask.Dataset.from_ranges(generated, ["s", "ct", "phi"], rows=n, identity="mc")
        term = laddu_dask.NLL(model, data=data, accepted_mc=mc)
        execution = laddu_dask.Execution(storage="streaming", normalization="general")
        passes.append(laddu_dask.Likelihood([term], execution))
    passes[0].value_and_gradient()
    optimizer.wait(_PATIENCE)
    for used in passes:
        used.value()  # prepared
    # In turns, so that a slow moment of the machine meets all sizes; short passes several times.
    calls = [
        used.value_and_gradient
        for n, used in zip(sizes, passes, strict=True)
        for _ in range(max(1, min(9, sizes[-1] // (4 * n))))
    ]
    times: dict[Any, list[float]] = {}
    for call, own in zip(calls, in_turns(calls, 5), strict=True):
        times.setdefault(call, []).extend(own)
    each = {
        n: median(times[used.value_and_gradient]) for n, used in zip(sizes, passes, strict=True)
    }
    steps = {more: (each[more] - each[less]) / (more - less) for less, more in pairwise(sizes)}
    fine = True
    for n in sizes:
        text = f"growth       {n:.0e} events: {1e9 * each[n] / n:6.2f} ns per event"
        kept = each[n] / n <= (1 + MOST_GROWTH) * each[sizes[0]] / sizes[0]
        if n in steps:
            ratio = steps[n] / steps[sizes[1]]
            kept &= abs(ratio - 1) <= MOST_GROWTH
            text += f", {1e9 * steps[n]:6.2f} ns per additional event, {ratio:.3f} times the first"
        fine &= kept
        print(text + ("" if kept else "  MISS"), flush=True)
    return fine


if __name__ == "__main__":
    sys.exit(main())
