"""Passes over prepared events on disk, beside reading as many bytes of a file.

The events are those of model A (40 columns) and D, spilled, read again and again from the page
cache or, with --cold, from the disk: the system is told to forget the pages before each pass. Both
are compared with reading the same files chunk by chunk into one buffer, which is how fast the page
cache or disk is. Promised: the value of a model of many columns is summed at no less than 80 % of
that.

Run: python benchmarks/spilled.py [--help]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any, BinaryIO

import models
from evaluation import likelihood, sample
from machine import Machine, available_threads

import laddu_dask
from laddu_dask.kernels.optimizer import optimizer
from laddu_dask.runtime.local import LocalSession
from laddu_dask.runtime.spilled import SpilledPartition

#: Least share of the read rate; model A is bound by reading, D computes more per byte.
LEAST = {"A": 0.8}
_CHUNK = 4 << 20
_PATIENCE = 600.0


def main() -> int:
    """Print a line per model and number of threads; 1 if --check and a promise was missed."""
    parser = argparse.ArgumentParser(description="prepared events on disk")
    parser.add_argument("--models", nargs="+", choices=[*models.MODELS], default=["A", "D"])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, available_threads()])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cold", action="store_true", help="from the disk, not the page cache")
    parser.add_argument("--check", action="store_true", help="fail if a promise is missed")
    options = parser.parse_args()
    here = Machine.here()
    print(f"{here.processor}, {here.threads} processors, load average {here.load:.1f}")
    kept = [
        compare(name, options.events, threads, options.rounds, cold=options.cold)
        for name in options.models
        for threads in dict.fromkeys(options.threads)
    ]
    return int(options.check and not all(kept))


def compare(name: str, events: int, threads: int, rounds: int, *, cold: bool) -> bool:
    """Value, and value and gradient, of spilled events, and plain reading, in turns."""
    numbers = dict(zip(models.ROLES, (1024, events), strict=True))
    samples = [sample(laddu_dask, name, n, role) for role, n in numbers.items()]
    execution = laddu_dask.Execution(
        storage="spilled", threads=threads, normalization="general", partitions=2 * threads
    )
    with likelihood(laddu_dask, name, samples, execution) as spilled:
        spilled.value_and_gradient()
        optimizer.wait(_PATIENCE)
        files = spilled_files(spilled)
        size = sum(os.fstat(file.fileno()).st_size for file in files)
        point = spilled.default_parameters
        calls: dict[str, Callable[[], object]] = {
            "reading": lambda: read(files, threads),
            "value": lambda: spilled.value(point),
            "value and gradient": lambda: spilled.value_and_gradient(point),
        }
        times: dict[str, list[float]] = {what: [] for what in calls}
        for _ in range(rounds):
            for what, call in calls.items():
                if cold:
                    forget(files)
                begun = time.perf_counter()
                call()
                times[what].append(time.perf_counter() - begun)
    rates = {what: size / median(own) for what, own in times.items()}
    share = rates["value"] / rates["reading"]
    least = LEAST.get(name)
    fine = least is None or share >= least
    promised = "" if least is None else f", promised {least:.0%}"
    print(
        f"{name:8} {threads} threads, {size / 2**20:.0f} MiB: reading {rates['reading'] / 1e9:.1f} "
        f"GB/s, value {share:.0%} of it{promised}, value and gradient "
        f"{rates['value and gradient'] / rates['reading']:.0%}" + ("" if fine else "  MISS"),
        flush=True,
    )
    return fine


def spilled_files(likelihood_: Any) -> list[BinaryIO]:
    """The files, which have no names, of a likelihood in this process."""
    session = likelihood_._reducer.reducer._session
    assert isinstance(session, LocalSession)
    partitions = [prepared.partition for prepared in session._prepared]
    assert all(isinstance(partition, SpilledPartition) for partition in partitions)
    return [p.write()._file for p in partitions if isinstance(p, SpilledPartition)]


def read(files: list[BinaryIO], threads: int) -> None:
    """Everything in the files, each thread into a buffer of its own."""

    def one(file: BinaryIO) -> None:
        buffer, place = bytearray(_CHUNK), 0
        while count := os.preadv(file.fileno(), [buffer], place):
            place += count

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, files))


def forget(files: list[BinaryIO]) -> None:
    """Let the system drop the pages of the files."""
    for file in files:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    sys.exit(main())
