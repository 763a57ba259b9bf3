"""Nanoseconds per event, bytes per event and time to compile of every kernel of the comparison.

Needs nothing but this package: what a change of the compiler or of a kernel does to the models
shows here in seconds, without the bookkeeping around an evaluation. Kernels of Monte Carlo events
sum the weighted intensity (``linear``), those of data its logarithm (``log``).

Run: python benchmarks/kernel_speed.py [--models A B] [--help]
"""

from __future__ import annotations

import argparse
import os
import time

import models
import numpy as np
from evaluation import sample
from machine import Bandwidth, Machine, cpu_time
from numpy.typing import NDArray
from report import machine_lines

import laddu_dask
from laddu_dask.compiler import Assumptions, CompiledModel, Transform, compile_model
from laddu_dask.compiler.program import Program
from laddu_dask.errors import AssumptionError
from laddu_dask.kernels import Accumulator, get_backend
from laddu_dask.kernels.optimizer import optimizer
from laddu_dask.memory import MAX_BYTES, LeasePool, LocalRoom
from laddu_dask.runtime.partitions import partition_dataset
from laddu_dask.runtime.preparation import Recipe
from laddu_dask.runtime.tiers import PreparedPartition, prepare

#: Of the Monte Carlo sample and of the data.
ROOM = LocalRoom(LeasePool("host", MAX_BYTES))
TRANSFORMS: tuple[Transform, ...] = ("linear", "log")

_HEAD = (
    f"{'kernel':<28}{'operations':>11}{'compile/ms':>11}{'bytes/event':>12}{'ns/event':>9}"
    f"{'GB/s':>7}{'of read bandwidth':>19}"
)


def measure(name: str, transform: Transform, events: int, rounds: int, reading: float) -> None:
    """Time value and gradient of one model, and print them."""
    compiled, partition = _prepare(name, transform, events)
    point = laddu_dask.Model(models.MODELS[name](laddu_dask)).default_parameters
    frontier = compiled.invariants.frontier(point)
    programs = compiled.programs
    for what, program in (("value", programs.value), ("gradient", programs.gradient)):
        compiling = _compile(program)
        _reduce(program, partition, frontier)
        times = [cpu_time(_reduce, program, partition, frontier) for _ in range(rounds)]
        spent = float(np.median(times))
        read = 8 * program.n_inputs
        speed = read * events / spent
        print(
            f"{f'{name} {transform} {what}':<28}{len(program.instructions):>11}"
            f"{1e3 * compiling:>11.0f}{read:>12}{1e9 * spent / events:>9.2f}{speed / 1e9:>7.1f}"
            f"{speed / reading:>19.0%}",
            flush=True,
        )


def _prepare(
    name: str, transform: Transform, events: int
) -> tuple[CompiledModel, PreparedPartition]:
    """A model compiled under assumptions that its events obey, and the events."""
    (partition,) = partition_dataset(sample(laddu_dask, name, events, "accepted_mc"), 1)
    assumptions = Assumptions()
    while True:
        compiled = compile_model(models.MODELS[name](laddu_dask), transform, assumptions)
        recipe = Recipe(name, compiled.programs, "cpu", 1 << 16)
        try:
            return compiled, prepare(recipe, partition, ["resident"], ROOM)
        except AssumptionError as error:
            found = {bytes.fromhex(digest): what for digest, what in error.findings.items()}
            assumptions = assumptions.weaken(found)


def _compile(program: Program) -> float:
    """Wall seconds until the first code is there; then waits for better code."""
    begun = time.perf_counter()
    get_backend("cpu").compile(program, "reduce")
    seconds = time.perf_counter() - begun
    optimizer.wait()
    return seconds


def _reduce(program: Program, partition: PreparedPartition, frontier: NDArray[np.float64]) -> None:
    sums = Accumulator(program.n_outputs)
    digest = program.digest
    for reduce in partition.reductions(
        digest, lambda: get_backend("cpu").compile(program, "reduce")
    ):
        reduce(frontier, sums)
    if sums.first_bad is not None:
        raise SystemExit(f"event {sums.first_bad} has no finite value")


def main() -> None:
    """Measure the kernels that were asked for."""
    parser = argparse.ArgumentParser(description="speed of the kernels")
    parser.add_argument("--models", nargs="+", choices=[*models.MODELS], default=[*models.MODELS])
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    # Nothing from disk: times to compile are of interest.
    os.environ["LADDU_DASK_CACHE_DIR"] = ""
    reading = Bandwidth().measure()
    print(f"{machine_lines(Machine.here(), reading)}\n{options.events} events\n\n{_HEAD}")
    for name in options.models:
        for transform in TRANSFORMS:
            measure(name, transform, options.events, options.rounds, reading)


if __name__ == "__main__":
    main()
