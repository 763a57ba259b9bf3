"""Preparation and memory of a likelihood, in a process that does nothing else.

`measure_starts` writes the events to Parquet files and runs this file as a script, once for every
measurement; a script reads the files with one of the programs, and prints what it found as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import models
from promises import Start

#: Imports whose memory is reported.
STARTUPS = {
    "Python with NumPy and llvmlite": "import numpy, llvmlite.binding",
    "import laddu_dask": "import laddu_dask",
    "import laddu": "import laddu",
}
_PRINT_PEAK = "print(open('/proc/self/status').read())"


def peak_bytes(status: str) -> int:
    """Most bytes of memory that a process has held, from the text of its ``/proc/PID/status``.

    Not from `getrusage`: there a process begins with the peak of its parent.
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise SystemExit("the system does not tell the peak memory of a process (VmHWM)")
    return 1024 * int(found[1])


def startup_memory() -> dict[str, int]:
    """Peak memory of processes that only import."""
    return {
        name: peak_bytes(_run(["-c", f"{code}; {_PRINT_PEAK}"], None))
        for name, code in STARTUPS.items()
    }


def measure_starts(
    name: str,
    events: tuple[int, int],
    normalizations: list[str],
    threads: int,
    rounds: int,
) -> Iterator[Start]:
    """Start both programs, ours with an empty and with a filled kernel cache.

    `events` are (data, accepted Monte Carlo). The programs take turns; results are medians.
    """
    with tempfile.TemporaryDirectory() as folder:
        for role, n in zip(models.ROLES, events, strict=True):
            _write(name, n, role, Path(folder))
        for normalization in normalizations:
            found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": [], "laddu": []}
            for _ in range(rounds):
                with tempfile.TemporaryDirectory(dir=folder) as cache:
                    for program, results in found.items():
                        api = "laddu" if program == "laddu" else "laddu_dask"
                        options = [api, name, normalization, str(threads), folder]
                        results.append(json.loads(_run([__file__, *options], cache)))
            for program, results in found.items():
                cpu, wall, peak = (median(r[k] for r in results) for k in ("cpu", "wall", "peak"))
                yield Start(name, normalization, threads, program, cpu, wall, int(peak))


def _write(name: str, n: int, role: str, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Row groups as large as they usually are; one of all events could not be read in portions.
    table = pa.table(models.events(name, n, role))
    pq.write_table(table, folder / f"{role}.parquet", row_group_size=1 << 16)


def _run(arguments: list[str], cache: str | None) -> str:
    environment = dict(os.environ)
    if cache is not None:
        environment["LADDU_DASK_CACHE_DIR"] = cache
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def _measure(program: str, name: str, normalization: str, threads: int, folder: Path) -> Any:
    api = importlib.import_module(program)
    data, accepted_mc = (api.read_parquet(folder / f"{role}.parquet") for role in models.ROLES)
    model = api.Model(models.MODELS[name](api))
    # As in `evaluation`, which imports this package and would spoil laddu's figures.
    options = {"threads": threads, "normalization": normalization}
    if program == "laddu":
        how = api.Execution("jit", precision="f64", **options)
    else:
        how = api.Execution(backend="cpu", storage="resident", **options)
    cpu, wall = process_time(), perf_counter()
    term = api.NLL(model, data=data, accepted_mc=accepted_mc, name=name)
    likelihood = api.Likelihood([term], execution=how)
    likelihood.value_and_gradient(likelihood.default_parameters)
    return {
        "cpu": process_time() - cpu,
        "wall": perf_counter() - wall,
        "peak": peak_bytes(Path("/proc/self/status").read_text()),
    }


if __name__ == "__main__":
    _program, _name, _normalization, _threads, _folder = sys.argv[1:]
    print(json.dumps(_measure(_program, _name, _normalization, int(_threads), Path(_folder))))
