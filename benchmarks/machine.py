"""The machine that a benchmark runs on: name, processors, vector width, read bandwidth."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from laddu_dask.kernels.target import current_target

_ADDITION = """
define <8 x double> @add(<8 x double> %a, <8 x double> %b) #0 {
  %sum = fadd <8 x double> %a, %b
  ret <8 x double> %sum
}
attributes #0 = { "prefer-vector-width"="512" "min-legal-vector-width"="512" }
"""
#: Numbers that a measurement of the bandwidth reads: 512 MiB, far more than caches hold.
_NUMBERS = 1 << 26


@dataclass(frozen=True)
class Machine:
    """What limits the numbers that a benchmark prints.

    Attributes
    ----------
    processor
        Its name.
    threads
        Processors that this process may use.
    target
        What kernels are compiled for.
    vector_bits
        Width of the vector registers that they use.
    load
        Load average of the last minute, before the benchmark.
    """

    processor: str
    threads: int
    target: str
    vector_bits: int
    load: float

    @classmethod
    def here(cls) -> Machine:
        """This machine."""
        target = current_target()
        return cls(
            processor_name(),
            available_threads(),
            target.cpu,
            vector_bits(assembly_of_addition(target)),
            os.getloadavg()[0],
        )


def available_threads() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name of the processor as the system knows it."""
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def assembly_of_addition(target: Any) -> str:
    """Machine code, as text, of an addition as kernels write it."""
    module = llvm.parse_assembly(_ADDITION, llvm.create_context())
    machine = target.machine(2)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    return str(machine.emit_assembly(module))


def vector_bits(assembly: str) -> int:
    """Width of the widest registers in machine code; those without a name known here have 128."""
    for name, bits in (("zmm", 512), ("ymm", 256)):
        if re.search(rf"\b{name}\d", assembly):
            return bits
    return 128


def cpu_time(call: Callable[..., Any], *arguments: Any) -> float:
    """CPU seconds of this process, all threads together, spent in one call."""
    begun = process_time()
    call(*arguments)
    return process_time() - begun


class Bandwidth:
    """Bytes per second and processor of reading memory in one stream.

    The best of NumPy's vectorised loops that only read: the maximum, and the dot product of an
    array with itself. (Its sum and its counts are slower than memory on some processors.) The dot
    product may run on several threads; CPU time counts all of them.
    """

    def __init__(self) -> None:
        self._numbers = np.ones(_NUMBERS)

    def measure(self, rounds: int = 3) -> float:
        """Measure."""
        numbers = self._numbers
        readers = (numbers.max, lambda: np.dot(numbers, numbers))
        times = [cpu_time(reader) for _ in range(rounds) for reader in readers]
        return float(numbers.nbytes / min(times))
