"""CPU time of compiling generated models, phase by phase, cold and with code from the disk cache.

Every model is compiled in processes of its own: one that finds an empty cache of machine code, one
that finds what the first has left, and one that asks for a first value by each backend. Times are
CPU seconds of the process, all threads together, from the expression on; starting Python and
importing packages is not among them. `front` is everything before machine code: the compiler's
work for both passes of a likelihood, the logarithm of the data and the integral over Monte Carlo.

Run: python benchmarks/compile_time.py [--shapes breit_wigners chain] [--sizes 22 109 435]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from time import process_time
from typing import Any

import generated_models
import numpy as np

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, Program, normalize, reverse, separable
from laddu_dask.compiler import program as programs
from laddu_dask.compiler.grouping import Grouping
from laddu_dask.kernels import get_backend
from laddu_dask.kernels.optimizer import optimizer

PACKAGE = "laddu_dask.compiler"
#: Sizes at which the Breit-Wigner model has about 1 000, 5 000 and 20 000 operations.
SIZES = [22, 109, 435]
EVENTS = 64


class Phases:
    """Clocks that exclude each other: time counts for the innermost phase that is running."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running: list[str] = []
        self._since = 0.0

    def _switch(self) -> None:
        now = process_time()
        if self._running:
            phase = self._running[-1]
            self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._since
        self._since = now

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with its time counted for a phase."""

        def call(*args: Any, **options: Any) -> Any:
            self._switch()
            self._running.append(phase)
            try:
                return function(*args, **options)
            finally:
                self._switch()
                self._running.pop()

        return call

    def watch(self, phase: str, function: Callable[..., Any]) -> None:
        """Count for a phase what any module of the compiler spends in one of its functions."""
        timed = self.timed(phase, function)
        for name, module in list(sys.modules.items()):
            if name.startswith(PACKAGE) and vars(module).get(function.__name__) is function:
                setattr(module, function.__name__, timed)


def front_end(shape: str, size: int) -> tuple[dict[str, float], list[Program]]:
    """Seconds by phase, and the programs of both passes that machine code is made of."""
    clock = Phases()
    clock.watch("normalise", normalize.normalize)
    clock.watch("separate", separable.separate)
    clock.watch("reverse", reverse.adjoints)
    clock.watch("cut", programs.cut)
    for owner, method, phase in ((Grouping, "lower", "group"), (Program, "verify", "verify")):
        setattr(owner, method, clock.timed(phase, getattr(owner, method)))
    expr = clock.timed("build", generated_models.SHAPES[shape])(size)

    def compiled() -> list[Program]:
        model = ld.Model(expr)
        assert model.columns
        data = model.grouped("log", Assumptions())
        integral = model.integral(Assumptions())
        passes = [data.programs]
        if integral.residual is not None:
            passes.append(integral.residual.programs)
        if integral.separable is not None:
            passes.append(integral.separable.statistics)
        return [p for each in passes for p in (each.prepare, each.value, each.gradient)]

    made = clock.timed("other", compiled)()
    clock.timed("digest", lambda: [program.digest for program in made])()
    return clock.seconds, made


def machine_code(made: list[Program]) -> float:
    """Seconds until all code is there, the optimised one too."""
    begun = process_time()
    backend = get_backend("cpu")
    for index, program in enumerate(made):
        backend.compile(program, "map" if index % 3 == 0 else "reduce")
    optimizer.wait()
    return process_time() - begun


def first_answer(shape: str, size: int, backend: str) -> float:
    """Seconds from an expression to the first value of a likelihood of few events."""
    rng = np.random.default_rng(1)
    samples = [
        ld.Dataset.from_arrays(p4s={}, scalars={c: rng.uniform(1.1, 2.0, EVENTS) for c in "st"})
        for _ in range(2)
    ]
    begun = process_time()
    term = ld.NLL(generated_models.SHAPES[shape](size), data=samples[0], accepted_mc=samples[1])
    with ld.Likelihood([term], ld.Execution(backend=backend, threads=1)) as likelihood:
        likelihood.value()
        return process_time() - begun


def measure(task: str, shape: str, size: int) -> dict[str, float]:
    """What a process of its own finds out."""
    if task != "phases":
        return {task: first_answer(shape, size, task)}
    seconds, made = front_end(shape, size)
    front = sum(seconds.values()) - seconds["build"]
    nodes = float(len(made[2].instructions))
    return {"nodes": nodes, **seconds, "front": front, "machine code": machine_code(made)}


def in_a_process(task: str, shape: str, size: int, folder: str) -> dict[str, float]:
    """Run `measure` in a fresh process whose code cache is `folder`."""
    command = [sys.executable, __file__, "--task", task, "--shapes", shape, "--sizes", str(size)]
    environment = {**os.environ, "LADDU_DASK_CACHE_DIR": folder}
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(found.stdout)
    return result


def report(shape: str, size: int) -> dict[str, float]:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as cold, tempfile.TemporaryDirectory() as empty:
        row = in_a_process("phases", shape, size, cold)
        cached = in_a_process("phases", shape, size, cold)
        row["machine code, cached"] = cached["machine code"]
        row["first, interpreter"] = in_a_process("interpreter", shape, size, empty)["interpreter"]
        row["first, cpu"] = in_a_process("cpu", shape, size, empty)["cpu"]
    return row


def main() -> None:
    """Print a block of lines for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    shapes = list(generated_models.SHAPES)
    parser.add_argument("--shapes", nargs="+", choices=shapes, default=["breit_wigners"])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--task", choices=["phases", "interpreter", "cpu"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task is not None:
        print(json.dumps(measure(options.task, options.shapes[0], options.sizes[0])))
        return
    for shape in options.shapes:
        for size in options.sizes:
            row = report(shape, size)
            print(f"{shape} {size}: {row.pop('nodes'):.0f} operations in value and gradient")
            print("  " + ", ".join(f"{name} {seconds:.3f}" for name, seconds in row.items()))


if __name__ == "__main__":
    main()
