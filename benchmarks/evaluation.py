"""Both programs evaluate one likelihood, alternately.

laddu's optimiser alters literal constants of model B, so there its own error of 5e-7 in the value
and 4e-4 in the gradient is allowed for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import ModuleType
from typing import Any

import models
import numpy as np
from machine import Bandwidth, cpu_time
from numpy.typing import NDArray
from promises import Evaluation, Times

import laddu_dask
from laddu_dask.kernels.optimizer import optimizer

Point = dict[str, float]

AGREEMENT = {"B": (1e-5, 1e-2)}
USUAL_AGREEMENT = (1e-12, 1e-9)
#: Seconds that the compiler may need before a measurement is given up.
PATIENCE = 600.0


def likelihood(api: ModuleType, name: str, samples: Sequence[Any], execution: Any) -> Any:
    """The likelihood of a model of the comparison in one of the programs.

    `samples` are data and accepted Monte Carlo.
    """
    term = api.NLL(
        api.Model(models.MODELS[name](api)),
        **dict(zip(models.ROLES, samples, strict=True)),
        name=name,
    )
    return api.Likelihood([term], execution=execution)


def execution(api: ModuleType, normalization: str, threads: int) -> Any:
    """The same way to run for both programs: events and columns stay in memory."""
    if api is laddu_dask:
        return api.Execution(
            backend="cpu", storage="resident", threads=threads, normalization=normalization
        )
    return api.Execution("jit", precision="f64", threads=threads, normalization=normalization)


def sample(api: ModuleType, name: str, n: int, role: str) -> Any:
    """`n` events as a data set in memory."""
    scalars = models.events(name, n, role)
    weights = scalars.pop("weight")
    return api.Dataset.from_arrays(p4s={}, scalars=scalars, weights=weights)


def compare_apart(
    name: str, events: tuple[int, int], normalization: str, threads: int, rounds: int
) -> list[Evaluation]:
    """Both rows of one way to run a model, from a process of its own.

    What earlier rows have left of the memory would decide how fast this one reads: on a virtual
    machine, the value of model A took 2.7 ms or 4.2 ms by it.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_compare, name, events, normalization, threads, rounds).result()


def _compare(
    name: str, events: tuple[int, int], normalization: str, threads: int, rounds: int
) -> list[Evaluation]:
    laddu = importlib.import_module("laddu")
    return list(compare(laddu, name, events, normalization, threads, rounds, Bandwidth()))


def compare(
    laddu: ModuleType,
    name: str,
    events: tuple[int, int],
    normalization: str,
    threads: int,
    rounds: int,
    bandwidth: Bandwidth,
) -> Iterator[Evaluation]:
    """Time value and gradient, and value alone, of a model.

    `events` are (data, accepted Monte Carlo).
    """
    samples = {
        api: [sample(api, name, n, role) for n, role in zip(events, models.ROLES, strict=True)]
        for api in (laddu_dask, laddu)
    }
    programs = [
        likelihood(api, name, samples[api], execution(api, normalization, threads))
        for api in (laddu_dask, laddu)
    ]
    ours, theirs = programs
    start = dict(zip(ours.parameter_names, ours.default_parameters, strict=True))
    check_agreement(name, ours, theirs, {p: 1.05 * x for p, x in start.items()})
    if not optimizer.wait(PATIENCE):
        raise SystemExit(f"{name}: kernels are not optimised after {PATIENCE:.0f} s")
    column_bytes = sum(d.resident_bytes for d in ours.plan().decisions)
    for what in ("value_and_gradient", "value"):
        mine, other = _time(programs, what, start, rounds)
        yield Evaluation(
            model=name,
            normalization=normalization,
            threads=threads,
            what=what,
            ours=mine,
            theirs=other,
            events=sum(events),
            column_bytes=column_bytes,
            bandwidth=bandwidth.measure(),
        )
    ours.close()


def _time(programs: list[Any], what: str, start: Point, rounds: int) -> list[Times]:
    rng = np.random.default_rng(5)
    seconds = np.empty((rounds, len(programs)))
    for row in seconds:
        # A new point in every round: no program can answer from memory.
        point = {p: x * rng.uniform(0.95, 1.05) for p, x in start.items()}
        for column, program in enumerate(programs):
            call, vector = getattr(program, what), _ordered(program, point)
            row[column] = cpu_time(call, vector)
    return [Times(float(np.median(s)), float(np.min(s))) for s in seconds.T]


def _ordered(program: Any, point: Point) -> list[float]:
    """A point as the vector that a program expects."""
    return [point[name] for name in program.parameter_names]


def check_agreement(name: str, ours: Any, theirs: Any, point: Point) -> None:
    """Raise unless both give the same value and gradient at `point`."""
    value, gradient = ours.value_and_gradient(_ordered(ours, point))
    reference, unordered = theirs.value_and_gradient(_ordered(theirs, point))
    by_name = dict(zip(theirs.parameter_names, unordered, strict=True))
    expected: NDArray[np.float64] = np.array([by_name[p] for p in ours.parameter_names])
    errors = (
        abs(value - reference) / abs(reference),
        float(np.max(np.abs(gradient - expected)) / np.max(np.abs(expected))),
    )
    allowed = AGREEMENT.get(name, USUAL_AGREEMENT)
    if not (errors[0] <= allowed[0] and errors[1] <= allowed[1]):
        raise SystemExit(f"{name}: value and gradient differ by {errors}, allowed {allowed}")
