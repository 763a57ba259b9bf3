"""The command line: ``laddu-dask demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from laddu_dask.runtime.execution import BackendName


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="laddu-dask")
def main() -> None:
    """Amplitude analysis of data that outgrow one machine."""


@main.command()
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path(),
    show_default="the current folder",
    help="Folder for fit.json and fit.png.",
)
@click.option(
    "--events",
    type=click.IntRange(min=1),
    default=5000,
    show_default=True,
    help="Number of pseudo-data events.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of the draw."
)
@click.option("--overwrite", is_flag=True, help="Replace fit.json and fit.png if they exist.")
@click.option(
    "--backend",
    type=click.Choice(["auto", "cpu", "interpreter"]),
    default="auto",
    show_default=True,
    help="Compiled kernels, or NumPy without compilation.",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads; all processors by default.")
@click.option("--memory", help="Memory budget, such as '2 GiB' or '50%'.")
def demo(
    output: Path,
    events: int,
    seed: int,
    overwrite: bool,
    backend: BackendName,
    threads: int | None,
    memory: str | None,
) -> None:
    """Fit pseudo-data drawn from a real K_S K_S photoproduction sample.

    Prints truth, fitted value, error and pull of each parameter, and writes the result and a figure
    of the mass and angular projections. Exit code 0: converged; 1: an error; 3: not converged.
    """
    from rich.console import Console

    from laddu_dask.demo.run import run_demo
    from laddu_dask.demo.stopwatch import Stopwatch, seconds_since_process_start
    from laddu_dask.errors import LadduError
    from laddu_dask.runtime import Execution

    stopwatch = Stopwatch()
    since_start = seconds_since_process_start()
    if since_start is not None:
        stopwatch.add("start Python and import", since_start)
    try:
        execution = Execution(
            backend=backend,
            threads=threads,
            memory=memory,
        )
        result = run_demo(
            output,
            events=events,
            seed=seed,
            overwrite=overwrite,
            execution=execution,
            console=Console(),
            stopwatch=stopwatch,
        )
    except LadduError as error:
        raise click.ClickException(str(error)) from error
    if not result.converged:
        raise SystemExit(3)
