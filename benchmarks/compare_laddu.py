"""Everything that is promised in comparison with laddu's just-in-time compiler, in one table.

Both programs evaluate the same negative log-likelihood alternately in one loop, and what is
compared is the CPU time of the process (all threads), so that other work on the machine disturbs
both alike. Wall times and single measurements mean little; the ratio of medians is the result, and
the ratio of minima is a check on it. Before anything is timed, values and gradients must agree, and
our compiler must have finished its work in the background.

Preparation and memory are measured in fresh processes: from the construction of a likelihood, of
events in Parquet files, to its first value and gradient.

Run: pip install '.[bench]' && python benchmarks/compare_laddu.py [--models A B] [--help]
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import asdict
from itertools import groupby, product
from pathlib import Path
from typing import Any

import models
from evaluation import compare_apart
from fresh_process import STARTUPS, measure_starts, startup_memory
from machine import Bandwidth, Machine, available_threads
from promises import memory_misses
from report import (
    EVALUATION_HEAD,
    START_HEAD,
    evaluation_line,
    machine_lines,
    start_lines,
    startup_lines,
)

#: Every accepted event in every evaluation, or each program with its own shortcut.
NORMALIZATIONS = ("general", "auto")
PARTS = ("evaluation", "start")


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="speed and memory beside laddu")
    parser.add_argument("--models", nargs="+", choices=[*models.MODELS], default=[*models.MODELS])
    parser.add_argument(
        "--normalizations",
        nargs="+",
        choices=NORMALIZATIONS,
        default=[*NORMALIZATIONS],
    )
    parser.add_argument("--threads", nargs="+", type=_threads, default=[1, available_threads()])
    parser.add_argument("--data", type=_count, default=200_000, help="data events")
    parser.add_argument("--mc", type=_count, default=1_000_000, help="accepted Monte Carlo events")
    parser.add_argument("--rounds", type=_count, default=15, help="timed evaluations")
    parser.add_argument("--starts", type=_count, default=3, help="fresh processes of each kind")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--check", action="store_true", help="fail if a promise is missed")
    parser.add_argument("--json", type=Path, help="file to write all numbers to")
    options = parser.parse_args(arguments)
    options.threads = list(dict.fromkeys(options.threads))
    return options


def _threads(text: str) -> int:
    return available_threads() if text == "all" else _count(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def main() -> int:
    """Compare what was asked for; 1 if laddu is missing, or with --check a promise missed."""
    options = options_of()
    try:
        importlib.import_module("laddu")
    except ModuleNotFoundError:
        print(
            "laddu, to compare with, is not installed: pip install 'laddu-dask[bench]'",
            file=sys.stderr,
        )
        return 1
    machine = Machine.here()
    reading = Bandwidth().measure()
    print(machine_lines(machine, reading))
    print(f"{options.data} data and {options.mc} accepted Monte Carlo events")
    missed: list[str] = []
    record: dict[str, Any] = {
        "machine": {**asdict(machine), "bandwidth": reading},
        "events": {"data": options.data, "accepted_mc": options.mc},
    }
    events = (options.data, options.mc)
    if "evaluation" in options.parts:
        record["evaluations"] = []
        print(f"\n{options.rounds} evaluations of each\n{EVALUATION_HEAD}")
        ways = product(options.models, options.normalizations, options.threads)
        for name, normalization, threads in ways:
            for row in compare_apart(name, events, normalization, threads, options.rounds):
                print(evaluation_line(row), flush=True)
                missed += row.misses()
                record["evaluations"].append({**asdict(row), "ratio": row.ratio})
    if "start" in options.parts:
        startup = record["startup"] = startup_memory()
        base = startup[next(iter(STARTUPS))]
        record["starts"] = []
        print(f"\n{options.starts} processes of each kind\n{START_HEAD}\n{startup_lines(startup)}")
        for name in options.models:
            rows = measure_starts(
                name, events, options.normalizations, options.threads[-1], options.starts
            )
            for _, group in groupby(rows, key=lambda row: row.normalization):
                starts = list(group)
                found = list(memory_misses(starts, base))
                print(start_lines(starts, bool(found)), flush=True)
                missed += found
                record["starts"] += [asdict(row) for row in starts]
    record["missed"] = missed
    if missed:
        print("\nnot as promised:", *missed, sep="\n  ")
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return int(options.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
