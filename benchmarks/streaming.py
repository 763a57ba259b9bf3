"""How fast events on disk are read, worked on, and both at once.

Everything is measured in turn, in the same rounds, so that other work on the machine disturbs all
of it alike. What is promised are ratios:

- a streaming pass runs at 85 % of the rate of its slowest part: decoding the same columns with
  pyarrow alone, or the kernels alone, those that prepare and those that sum, over events in memory;
  with as many threads that a processor is left for each of their readers, as the processors have to
  do both otherwise;
- 32 parameter sets in one pass cost at most twice as much as one, where reading takes longer than
  their kernels.

Run: python benchmarks/streaming.py [--models A D] [--threads 1 2] [--check] [--help]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from types import ModuleType
from typing import Any

import models
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from machine import Machine, available_threads

import laddu_dask
from laddu_dask.kernels.optimizer import optimizer

#: Least rate of a streaming pass, as a share of that of its slowest part.
RATE_SHARE = 0.85
#: Most that 32 parameter sets cost, in passes with one.
MANY, MANY_COST = 32, 2.0
#: Events of each sample: about as many numbers for wide models as for narrow ones, and row groups
#: of usual size enough to be shared by several threads.
EVENTS = {"A": 1 << 20, "wide": 1 << 20}
USUAL_EVENTS = 1 << 23
#: What pyarrow decodes fastest at a time.
BATCH_ROWS = 1 << 16
#: Seconds that the compiler may need.
PATIENCE = 600.0


def wide(api: ModuleType) -> Any:
    """Many columns and one number of each event that meets parameters: reading dominates."""
    total = models.coherent_sum([api.scalar(name) for name in models.READS["A"]])
    return (models.coupling(api, "c0", real=True) + models.coupling(api, "c1") * total).norm_sqr()


MODELS = {**models.MODELS, "wide": wide}


@dataclass(frozen=True)
class Row:
    """Seconds for both samples of a likelihood, medians.

    Attributes
    ----------
    model, threads, events
        What was evaluated; events of both samples together.
    decode, decode_cpu
        Decoding with pyarrow alone, batch by batch: wall time, and of all processors.
    kernel, kernel_cpu
        The same pass over events in memory: wall time, and of all processors.
    resident
        Value and gradient of events that are prepared already.
    stream
        The pass while the events are read.
    many, many_kernel
        Value and gradient at 32 points, of events that are read and of those in memory.
    processors
        That there are.
    """

    model: str
    threads: int
    events: int
    decode: float
    decode_cpu: float
    kernel: float
    kernel_cpu: float
    resident: float
    stream: float
    many: float
    many_kernel: float
    processors: int

    @property
    def both(self) -> float:
        """Seconds that all processors together need to decode and to pass over the events."""
        return (self.decode_cpu + self.kernel_cpu) / self.processors

    @property
    def share(self) -> float:
        """Rate of the streaming pass in that of the slower of decoding and kernels."""
        return max(self.decode, self.kernel) / self.stream

    @property
    def shares_processors(self) -> bool:
        """Whether readers take processors from kernels."""
        return 2 * self.threads > self.processors

    @property
    def reading_dominates(self) -> bool:
        """Whether reading takes longer than the kernels at all points."""
        return self.decode > self.many_kernel

    def misses(self) -> Iterator[str]:
        """What is not as promised."""
        where = f"{self.model}, {self.threads} thread(s)"
        if not (self.share >= RATE_SHARE or self.shares_processors):
            yield f"{where}: streaming at {self.share:.0%} of its slower part, not {RATE_SHARE:.0%}"
        cost = self.many / self.stream
        if self.reading_dominates and not cost <= MANY_COST:
            yield f"{where}: {MANY} sets cost {cost:.2f} passes, promised {MANY_COST:g}"


HEAD = (
    f"{'ns per event, medians':<24}{'decode':>8}{'kernels':>8}{'resident':>9}{'both/cpu':>9}"
    f"{'stream':>8}{'share':>7}{f'{MANY} sets':>9}{'cost':>6}"
)


def line(row: Row) -> str:
    """A row for people."""
    scale = 1e9 / row.events
    cells = (
        f"{f'{row.model} {row.threads}T':<24}{scale * row.decode:>8.1f}{scale * row.kernel:>8.1f}"
        f"{scale * row.resident:>9.1f}{scale * row.both:>9.1f}{scale * row.stream:>8.1f}"
        f"{row.share:>7.0%}{scale * row.many:>9.1f}{row.many / row.stream:>6.2f}"
    )
    return cells + "  MISS" * any(row.misses())


def write(folder: Path, name: str, events: int, group_rows: int) -> list[Path]:
    """Both samples of a model as files with the settings that pyarrow has by default."""
    paths = []
    for role in models.ROLES:
        columns = models.events("A" if name == "wide" else name, events, role)
        path = folder / f"{name}-{role}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=group_rows)
        paths.append(path)
    return paths


def decode(paths: Sequence[Path], columns: Sequence[str], threads: int) -> None:
    """Decode columns as fast as pyarrow can in bounded memory, each thread its row groups."""

    def part(path: Path, share: int) -> None:
        with pa.OSFile(str(path)) as source, pq.ParquetFile(source, pre_buffer=False) as file:
            groups = file.num_row_groups
            own = list(range(groups * share // threads, groups * (share + 1) // threads))
            for _ in file.iter_batches(BATCH_ROWS, own, list(columns), use_threads=False):
                pass

    for path in paths:
        if threads == 1:
            part(path, 0)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(part, [path] * threads, range(threads)))


def in_memory(path: Path) -> laddu_dask.Dataset:
    """The events of a file as arrays."""
    columns = {name: column.to_numpy() for name, column in _columns(pq.read_table(path))}
    weights = columns.pop("weight")
    return laddu_dask.Dataset.from_arrays(scalars=columns, weights=weights)


def _columns(table: Any) -> Iterator[tuple[str, Any]]:
    return zip(table.column_names, table.columns, strict=True)


def likelihood(
    name: str,
    paths: Sequence[Path],
    storage: str,
    threads: int,
    opened: Callable[[Path], laddu_dask.Dataset] = laddu_dask.read_parquet,
) -> Any:
    """The likelihood over files; every event is summed in every evaluation."""
    samples = [opened(path) for path in paths]
    term = laddu_dask.NLL(
        laddu_dask.Model(MODELS[name](laddu_dask)),
        **dict(zip(models.ROLES, samples, strict=True)),
        name=name,
    )
    return laddu_dask.Likelihood(
        [term],
        execution=laddu_dask.Execution(storage=storage, threads=threads, normalization="general"),
    )


def measure(name: str, paths: Sequence[Path], threads: int, events: int, rounds: int) -> Row:
    """Time everything in turn, `rounds` times."""
    columns = [*laddu_dask.Model(MODELS[name](laddu_dask)).columns, "weight"]
    kinds = {kind: likelihood(name, paths, kind, threads) for kind in ("resident", "streaming")}
    kinds["memory"] = likelihood(name, paths, "streaming", threads, in_memory)
    start = kinds["resident"].default_parameters
    values = [kind.value_and_gradient(start)[0] for kind in kinds.values()]
    if len(set(values)) > 1:
        raise SystemExit(f"{name}: resident and streaming events give {values}")
    if not optimizer.wait(PATIENCE):
        raise SystemExit(f"{name}: kernels are not optimised after {PATIENCE:.0f} s")
    rng = np.random.default_rng(7)

    def points(count: int) -> Any:
        return [start * rng.uniform(0.99, 1.01, len(start)) for _ in range(count)]

    calls: dict[str, Callable[[], Any]] = {
        "decode": lambda: decode(paths, columns, threads),
        "kernel": lambda: kinds["memory"].value_and_gradient(*points(1)),
        "resident": lambda: kinds["resident"].value_and_gradient(*points(1)),
        "stream": lambda: kinds["streaming"].value_and_gradient(*points(1)),
        "many": lambda: kinds["streaming"].value_and_gradient_many(points(MANY)),
        "many_kernel": lambda: kinds["memory"].value_and_gradient_many(points(MANY)),
    }
    seconds: dict[str, list[float]] = {what: [] for what in calls}
    cpu: dict[str, list[float]] = {what: [] for what in calls}
    for _ in range(rounds):
        for what, call in calls.items():
            wall, busy = perf_counter(), process_time()
            call()
            seconds[what].append(perf_counter() - wall)
            cpu[what].append(process_time() - busy)
    for kind in kinds.values():
        kind.close()
    medians = {what: float(np.median(found)) for what, found in seconds.items()}
    return Row(
        model=name,
        threads=threads,
        events=2 * events,
        decode_cpu=float(np.median(cpu["decode"])),
        kernel_cpu=float(np.median(cpu["kernel"])),
        processors=available_threads(),
        **medians,
    )


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description="reading and computing at once")
    parser.add_argument("--models", nargs="+", choices=[*MODELS], default=["D", "A", "B", "wide"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--events", type=int, help="of each of two samples")
    parser.add_argument("--group-rows", type=int, default=1 << 17, help="rows of a row group")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="fail if a promise is not kept")
    options = parser.parse_args()
    machine = Machine.here()
    print(
        f"{machine.processor}, {machine.threads} processors, load average {machine.load:.1f} "
        f"before the start\nrow groups of {options.group_rows}, {options.rounds} rounds\n\n{HEAD}"
    )
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            events = options.events or EVENTS.get(name, USUAL_EVENTS)
            paths = write(Path(folder), name, events, options.group_rows)
            for threads in options.threads:
                row = measure(name, paths, threads, events, options.rounds)
                print(line(row), flush=True)
                missed += row.misses()
            for path in paths:
                path.unlink()
    if options.check and missed:
        print("\n".join(["", *missed]))
        sys.exit(1)


if __name__ == "__main__":
    main()
