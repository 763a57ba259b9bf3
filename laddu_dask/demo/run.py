"""The demonstration from sample to figure."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from laddu_dask.compiler import Assumptions
from laddu_dask.demo import pseudo_data
from laddu_dask.demo.model import TRUTH, build, sample
from laddu_dask.demo.projections import panels
from laddu_dask.demo.stopwatch import Stopwatch
from laddu_dask.fit import FitResult
from laddu_dask.fit.output import make_folder, refuse_existing, write_together
from laddu_dask.kernels import get_backend
from laddu_dask.likelihood import NLL, Likelihood
from laddu_dask.likelihood.report import LikelihoodReport
from laddu_dask.memory import format_bytes, peak_resident_bytes
from laddu_dask.plot.figure import render_projections, require_matplotlib
from laddu_dask.runtime import Execution, Model

RESULT, FIGURE = "fit.json", "fit.png"


def run_demo(
    output: Path,
    *,
    events: int,
    seed: int,
    overwrite: bool,
    execution: Execution,
    console: Console,
    stopwatch: Stopwatch,
) -> FitResult:
    """Draw pseudo-data, fit them, print the outcome and write ``fit.json`` and ``fit.png``.

    Parameters
    ----------
    output
        Folder for the two files; created if it does not exist.
    events
        Number of pseudo-data events.
    seed
        Seed of the draw.
    overwrite
        Whether existing files may be replaced.
    execution
        Where and how to evaluate.
    console
        Where to print.
    stopwatch
        Keeps the time of each phase; may have begun before.

    Raises
    ------
    OutputError
        The folder cannot be used, or a file exists and `overwrite` is False; raised before any
        work. Neither file is there unless both are.
    ExecutionError
        Matplotlib is not installed; raised before any work.
    """
    folder = make_folder(output)
    targets = [refuse_existing(folder / name, overwrite=overwrite) for name in (RESULT, FIGURE)]
    require_matplotlib()
    with stopwatch.phase("read sample"):
        mc = sample()
    with stopwatch.phase("compile model"):
        model, quantities = build()
    console.print(
        f"[bold]gamma p -> K_S K_S p[/bold]: {mc.n_events} events of a real sample as accepted "
        f"Monte Carlo, {events} pseudo-data events drawn with seed {seed}",
        highlight=False,
    )
    with stopwatch.phase("compile kernels"):
        compile_kernels(model, execution)
    with stopwatch.phase("draw pseudo-data"):
        data = pseudo_data.draw(mc, model, TRUTH, events, seed, execution)
    with Likelihood(
        [NLL(model, data=data, accepted_mc=mc, name="ksks")], execution=execution
    ) as likelihood:
        console.print("\nMemory plan", style="bold")
        console.print(str(likelihood.plan()), highlight=False, soft_wrap=True)
        with stopwatch.phase("prepare data"):
            likelihood.value_and_gradient()
        with stopwatch.phase("fit"):
            result = likelihood.fit(progress="auto")
        report = likelihood.report()
    _print_result(console, result, report)
    with stopwatch.phase("projections"):
        drawn = panels(model, quantities, data, mc, result.parameters, execution)
        picture = render_projections(drawn, "png")
    artifact = _artifact(result, report, stopwatch, events, seed)
    text = json.dumps(artifact, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    contents = (text.encode(), picture)
    write_together(dict(zip(targets, contents, strict=True)), overwrite=overwrite)
    console.print(f"wrote {targets[0]} and {targets[1]}", highlight=False, soft_wrap=True)
    console.print(f"{stopwatch}", highlight=False, soft_wrap=True)
    return result


def compile_kernels(model: Model, execution: Execution) -> None:
    """Compile what the fit will run, so that its time is known apart."""
    backend = get_backend(execution.backend_name)
    options = execution.kernel_options
    values = model.compiled("complex", options).programs
    for program in (values.prepare, values.value):
        backend.compile(program, "map")
    for transform in ("log", "linear"):
        programs = model.grouped(transform, Assumptions(), options).programs
        backend.compile(programs.prepare, "map")
        for program in (programs.value, programs.gradient):
            backend.compile(program, "reduce")


def _pulls(result: FitResult) -> list[float]:
    truth = np.array([TRUTH[name] for name in result.parameter_names])
    with np.errstate(divide="ignore", invalid="ignore"):
        return [float(pull) for pull in (result.values - truth) / result.errors]


def _print_result(console: Console, result: FitResult, report: LikelihoodReport) -> None:
    table = Table(title=result.message, title_justify="left", title_style="bold")
    for heading in ("parameter", "truth", "fitted", "error", "pull"):
        table.add_column(heading, justify="left" if heading == "parameter" else "right")
    for name, value, error, unit, pull in zip(
        result.parameter_names,
        result.values,
        result.errors,
        result.units,
        _pulls(result),
        strict=True,
    ):
        label = f"{name} / {unit}" if unit else name
        table.add_row(label, f"{TRUTH[name]:.4f}", f"{value:.4f}", f"{error:.4f}", f"{pull:+.2f}")
    console.print()
    console.print(table)
    console.print(
        f"-2 ln L = {result.objective:.6f}, EDM {result.edm:.1e}, "
        f"{'converged' if result.converged else 'NOT CONVERGED'}\n"
        f"{result.n_evaluations} evaluations, {result.evaluations_per_second:.0f} per second over "
        f"{report.events} events; peak memory {format_bytes(peak_resident_bytes())}",
        highlight=False,
    )
    for warning in result.warnings:
        console.print(f"note: {warning}", highlight=False)


def _artifact(
    result: FitResult, report: LikelihoodReport, stopwatch: Stopwatch, events: int, seed: int
) -> dict[str, Any]:
    """The fit result with what is needed to repeat the demonstration."""
    packages = ("laddu-dask", "numpy", "llvmlite", "dask", "iminuit", "pyarrow")
    return {
        **result.to_dict(),
        "demo": {
            "seed": seed,
            "events": events,
            "truth": {name: TRUTH[name] for name in result.parameter_names},
            "pulls": [pull if np.isfinite(pull) else str(pull) for pull in _pulls(result)],
            "report": report.to_dict(),
            "seconds": dict(stopwatch.phases),
            "peak_resident_bytes": peak_resident_bytes(),
            "software": {
                "python": platform.python_version(),
                **{package: version(package) for package in packages},
            },
        },
    }
