"""CPU time of value and gradient beside laddu's just-in-time compiler.

Both programs evaluate the same negative log-likelihood alternately in one loop, and what is
compared is the CPU time of the process (all threads), so that other work on the machine disturbs
both alike. Wall times and single measurements mean little; the ratio of medians is the result, and
the ratio of minima is a check on it. Before anything is timed, values and gradients must agree.

laddu's optimiser alters literal constants of model B, so there its own error of 5e-7 in the value
and 4e-4 in the gradient is allowed for.

Run: pip install '.[bench]' && python benchmarks/compare_laddu.py [--models A B D] [--help]
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
from collections.abc import Callable
from time import process_time
from types import ModuleType
from typing import Any, get_args

import models
import numpy as np
from numpy.typing import NDArray

import laddu_dask
from laddu_dask.runtime.execution import Normalization

Array = NDArray[np.float64]

AGREEMENT = {"B": (1e-5, 1e-2)}
USUAL_AGREEMENT = (1e-12, 1e-9)


def sample(api: ModuleType, name: str, n: int, seed: int, *, weighted: bool) -> Any:
    """`n` events as a data set of `api`."""
    every = models.columns(n, seed)
    weights = np.random.default_rng(seed + 100).uniform(0.5, 1.5, n) if weighted else np.ones(n)
    scalars = {column: every[column] for column in models.READS[name]}
    return api.Dataset.from_arrays(p4s={}, scalars=scalars, weights=weights)


def likelihood(api: ModuleType, name: str, events: tuple[int, int], execution: Any) -> Any:
    """The likelihood of `events` = (data, accepted Monte Carlo) events."""
    term = api.NLL(
        api.Model(models.MODELS[name](api)),
        data=sample(api, name, events[0], 1, weighted=False),
        accepted_mc=sample(api, name, events[1], 2, weighted=True),
        name=name,
    )
    return api.Likelihood([term], execution=execution)


def cpu_time(call: Callable[[], Any]) -> float:
    """CPU seconds of this process, all threads together, spent in one call."""
    begun = process_time()
    call()
    return process_time() - begun


def ordered(program: Any, point: dict[str, float]) -> list[float]:
    """A point as the vector that a program expects."""
    return [point[name] for name in program.parameter_names]


def check_agreement(name: str, ours: Any, theirs: Any, point: dict[str, float]) -> None:
    """Raise unless both give the same value and gradient at `point`."""
    value, gradient = ours.value_and_gradient(ordered(ours, point))
    reference, unordered = theirs.value_and_gradient(ordered(theirs, point))
    by_name = dict(zip(theirs.parameter_names, unordered, strict=True))
    expected = np.array([by_name[parameter] for parameter in ours.parameter_names])
    errors = (
        abs(value - reference) / abs(reference),
        float(np.max(np.abs(gradient - expected)) / np.max(np.abs(expected))),
    )
    allowed = AGREEMENT.get(name, USUAL_AGREEMENT)
    if not (errors[0] <= allowed[0] and errors[1] <= allowed[1]):
        raise SystemExit(f"{name}: value and gradient differ by {errors}, allowed {allowed}")


def read_bandwidth() -> float:
    """GB/s of summing 64 million numbers, the best of five: the wall that memory puts up."""
    numbers = np.ones(64_000_000)
    return float(max(numbers.nbytes / cpu_time(numbers.sum) / 1e9 for _ in range(5)))


def compare(
    name: str, normalization: Normalization, options: argparse.Namespace, laddu: ModuleType
) -> None:
    """Build both likelihoods, compare them, time them, and print a row of the table."""
    events = (options.data, options.mc)
    ours = likelihood(
        laddu_dask,
        name,
        events,
        laddu_dask.Execution(
            backend="cpu",
            storage="resident",
            threads=options.threads,
            normalization=normalization,
        ),
    )
    theirs = likelihood(
        laddu,
        name,
        events,
        laddu.Execution(
            "jit", precision="f64", threads=options.threads, normalization=normalization
        ),
    )
    rng = np.random.default_rng(5)
    start = dict(zip(ours.parameter_names, ours.default_parameters, strict=True))
    check_agreement(name, ours, theirs, {p: 1.05 * value for p, value in start.items()})
    for what in ("value_and_gradient", "value"):
        # A new point in every round: no program can answer from memory.
        times = np.empty((options.rounds, 2))
        for row in times:
            point = {p: value * rng.uniform(0.95, 1.05) for p, value in start.items()}
            for column, program in enumerate((ours, theirs)):
                call = getattr(program, what)
                vector = ordered(program, point)
                row[column] = cpu_time(lambda call=call, vector=vector: call(vector))
        medians, minima = np.median(times, axis=0), np.min(times, axis=0)
        print(
            f"{name:<8} {normalization:<8} {what:<19}"
            f"{1e3 * medians[0]:>10.2f}{1e3 * medians[1]:>10.2f}"
            f"{1e9 * medians[0] / sum(events):>10.2f}"
            f"{medians[1] / medians[0]:>9.1f}{minima[1] / minima[0]:>9.1f}",
            flush=True,
        )
    ours.close()


def main() -> int:
    """Compare the models that were asked for."""
    parser = argparse.ArgumentParser(description="value and gradient beside laddu")
    parser.add_argument("--models", nargs="+", choices=sorted(models.MODELS), default=["D"])
    parser.add_argument(
        "--normalizations",
        nargs="+",
        choices=get_args(Normalization),
        default=["general", "auto"],
    )
    parser.add_argument("--data", type=int, default=200_000, help="data events")
    parser.add_argument("--mc", type=int, default=1_000_000, help="accepted Monte Carlo events")
    parser.add_argument("--rounds", type=int, default=15, help="timed evaluations")
    parser.add_argument("--threads", type=int, default=1, help="threads of each program")
    options = parser.parse_args()
    try:
        laddu = importlib.import_module("laddu")
    except ModuleNotFoundError:
        print(
            "laddu, to compare with, is not installed: pip install 'laddu-dask[bench]'",
            file=sys.stderr,
        )
        return 1
    print(
        f"{options.data} data + {options.mc} accepted MC events, {options.threads} thread(s), "
        f"{options.rounds} rounds, load average {os.getloadavg()[0]:.1f}\n"
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors, reading "
        f"{read_bandwidth():.1f} GB/s\n"
        f"{'CPU time, medians':<37}{'ours/ms':>10}{'laddu/ms':>10}{'ours ns/ev':>10}"
        f"{'ratio':>9}{'of min':>9}"
    )
    for name in options.models:
        for normalization in options.normalizations:
            compare(name, normalization, options, laddu)
    return 0


if __name__ == "__main__":
    sys.exit(main())
