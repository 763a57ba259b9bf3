"""CPU time of value and gradient per event, beside laddu's just-in-time compiler.

Model D: a free S-wave and a free D-wave Breit-Wigner in K_S K_S, six parameters, uniform event
variables. Both programs evaluate the same negative log-likelihood alternately in one loop, and what
is compared is the CPU time of the process (all threads), so that other work on the machine disturbs
both alike. Wall times and single measurements mean little; the ratio of medians is the
result, and the minima are a check on it. Before anything is timed, values and gradients must agree.

Run: pip install '.[bench]' && python benchmarks/model_d.py [--help]
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from time import process_time
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import laddu_dask

Array = NDArray[np.float64]

M_KAON = 0.497611
AGREEMENT = 1e-9  # relative; of the largest component for the gradient


def intensity(api: ModuleType) -> Any:
    """|BW0 + c BW2 D*|² written with `api`: both programs read the same lines."""
    s = api.scalar("s")

    def resonance(mass: str, at: float, width: str, of: float, l: int) -> Any:
        return api.relativistic_breit_wigner(
            s,
            mass=api.parameter(mass, initial=at),
            width=api.parameter(width, initial=of),
            mass1=M_KAON,
            mass2=M_KAON,
            l=l,
        )

    coupling = api.polar_complex(
        api.parameter("mag", initial=0.3), api.parameter("ph", initial=0.4)
    )
    angles = {"alpha": api.scalar("phi"), "beta": api.scalar("theta")}
    d_wave = resonance("m2", 1.27, "g2", 0.18, 2) * api.WignerD(2, 0, 0).D(**angles).conj()
    return (resonance("m0", 1.50, "g0", 0.12, 0) + coupling * d_wave).norm_sqr()


def sample(api: ModuleType, n: int, seed: int, weighted: bool) -> Any:
    """`n` events uniform in s (above threshold), cos(theta) and phi, as a data set of `api`."""
    rng = np.random.default_rng(seed)
    scalars = {
        "s": rng.uniform(1.01 * 4.0 * M_KAON**2, 4.5, n),
        "theta": np.arccos(rng.uniform(-1.0, 1.0, n)),
        "phi": rng.uniform(-np.pi, np.pi, n),
    }
    weights = rng.uniform(0.5, 1.5, n) if weighted else np.ones(n)
    return api.Dataset.from_arrays(p4s={}, scalars=scalars, weights=weights)


def likelihood(api: ModuleType, events: tuple[int, int], execution: Any) -> Any:
    """The likelihood of `events` = (data, accepted Monte Carlo) events."""
    data, accepted_mc = events
    term = api.NLL(
        api.Model(intensity(api)),
        data=sample(api, data, 1, weighted=False),
        accepted_mc=sample(api, accepted_mc, 2, weighted=True),
        name="model D",
    )
    return api.Likelihood([term], execution=execution)


def check_agreement(ours: Any, theirs: Any, point: dict[str, float]) -> None:
    """Raise unless both give the same value and gradient at `point`."""
    value, gradient = ours.value_and_gradient([point[name] for name in ours.parameter_names])
    reference, unordered = theirs.value_and_gradient(
        [point[name] for name in theirs.parameter_names]
    )
    by_name = dict(zip(theirs.parameter_names, unordered, strict=True))
    expected = np.array([by_name[name] for name in ours.parameter_names])
    value_error = abs(value - reference) / abs(reference)
    gradient_error = float(np.max(np.abs(gradient - expected)) / np.max(np.abs(expected)))
    print(f"agreement: value {value_error:.1e}, gradient {gradient_error:.1e} (relative)")
    if not max(value_error, gradient_error) <= AGREEMENT:
        raise SystemExit(f"the two programs disagree by more than {AGREEMENT}")


def cpu_time(call: Callable[[], Any]) -> float:
    """CPU seconds of this process, all threads together, spent in one call."""
    begun = process_time()
    call()
    return process_time() - begun


def main() -> int:
    """Build both likelihoods, compare them, time them, and print the table."""
    options = argparse.ArgumentParser(description="value and gradient of model D beside laddu")
    options.add_argument("--data", type=int, default=200_000, help="data events")
    options.add_argument("--mc", type=int, default=1_000_000, help="accepted Monte Carlo events")
    options.add_argument("--rounds", type=int, default=25, help="timed evaluations of each program")
    options.add_argument("--threads", type=int, default=1, help="threads of each program")
    chosen = options.parse_args()
    try:
        laddu = importlib.import_module("laddu")
    except ModuleNotFoundError:
        print(
            "laddu, to compare with, is not installed: pip install 'laddu-dask[bench]'",
            file=sys.stderr,
        )
        return 1

    events = (chosen.data, chosen.mc)
    begun = process_time()
    ours = likelihood(
        laddu_dask,
        events,
        laddu_dask.Execution(backend="cpu", storage="resident", threads=chosen.threads),
    )
    prepared = process_time()
    theirs = likelihood(
        laddu,
        events,
        laddu.Execution("jit", precision="f64", threads=chosen.threads),
    )
    print(
        f"prepared (CPU s, compilation included as far as it is not left to the first call): "
        f"ours {prepared - begun:.2f}, laddu {process_time() - prepared:.2f}"
    )

    rng = np.random.default_rng(5)
    start = dict(zip(ours.parameter_names, ours.default_parameters, strict=True))
    check_agreement(ours, theirs, {name: 1.05 * value for name, value in start.items()})

    # A new point in every round: no program can answer from memory.
    times = np.empty((chosen.rounds, 2))
    for row in times:
        point = {name: value * rng.uniform(0.95, 1.05) for name, value in start.items()}
        for column, program in enumerate((ours, theirs)):
            p = [point[name] for name in program.parameter_names]
            row[column] = cpu_time(lambda program=program, p=p: program.value_and_gradient(p))

    n = sum(events)
    print(
        f"\n{chosen.data} data + {chosen.mc} MC events, {chosen.threads} thread(s), "
        f"{chosen.rounds} rounds, load average {os.getloadavg()[0]:.1f}\n"
        f"{'CPU time per value+gradient':<30}{'median':>12}{'minimum':>12}"
    )
    medians, minima = np.median(times, axis=0), np.min(times, axis=0)
    for name, median, least in zip(("laddu_dask", "laddu jit"), medians, minima, strict=True):
        print(f"{name + ' (ms)':<30}{1e3 * median:>12.2f}{1e3 * least:>12.2f}")
        print(f"{name + ' (ns per event)':<30}{1e9 * median / n:>12.2f}{1e9 * least / n:>12.2f}")
    print(
        f"{'ratio laddu / laddu_dask':<30}{medians[1] / medians[0]:>12.1f}"
        f"{minima[1] / minima[0]:>12.1f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
