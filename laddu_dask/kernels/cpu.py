"""Compiled CPU kernels: programs as vector machine code, with the loop over tiles around them.

A kernel comes from the cache on disk, or is compiled. A large one is compiled twice: quickly, so
that it can answer at once, and well, in the background. Both are made from the same assembly, and
no operation of it may be changed, so the change from one to the other shows in no bit.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from laddu_dask.compiler.evaluator import Evaluator
from laddu_dask.compiler.program import Program
from laddu_dask.compiler.questions import Question
from laddu_dask.forks import renewed
from laddu_dask.kernels.accumulator import Accumulator
from laddu_dask.kernels.arguments import (
    address,
    check_inputs,
    check_parameters,
    check_rows,
    check_window,
    mask,
)
from laddu_dask.kernels.backend import Array, Purpose, Rows, Weights
from laddu_dask.kernels.column_layout import capacity, prefers_vectors, strides
from laddu_dask.kernels.driver import driver_text
from laddu_dask.kernels.expand import expand
from laddu_dask.kernels.llvm_text import ModuleText, event_function
from laddu_dask.kernels.native import Code, assemble, cache_key
from laddu_dask.kernels.number_sums import add_numbers
from laddu_dask.kernels.object_cache import default_cache
from laddu_dask.kernels.optimizer import optimizer
from laddu_dask.kernels.preparer import CpuPreparer
from laddu_dask.kernels.reduction import Reduction
from laddu_dask.kernels.scalar_code import NativeEvaluator
from laddu_dask.kernels.shared_code import shared_function
from laddu_dask.kernels.target import Target, current_target

#: Operations up to which good code is made at once, in some hundredths of a second.
DIRECT = 500
#: Effort that LLVM makes for good code.
LEVEL = 2

_KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 10)
#: The parameters are bytes: Python hands them over faster than it finds out where an array begins.
_DRIVER = ctypes.CFUNCTYPE(
    ctypes.c_int64, *[ctypes.c_int64] * 7, ctypes.c_char_p, *[ctypes.c_int64] * 8
)


@dataclass(frozen=True)
class Entry:
    """Code of a kernel for one purpose; keep it while its function runs."""

    code: Code
    address: int
    function: Any
    optimized: bool


class CpuKernel:
    """A program compiled for what it is used for.

    Attributes
    ----------
    target
        The processor.
    entries
        The best code that there is; better code takes its place at any time.
    compile_seconds
        Wall time that callers have waited for code so far.
    """

    def __init__(self, program: Program, target: Target) -> None:
        self.program = program
        self.target = target
        self.compile_seconds = 0.0
        self.entries: dict[Purpose, Entry] = {}
        self._lock = renewed(self, "_lock", threading.RLock)

    @functools.cached_property
    def loop(self) -> Any:
        """The loop over tiles; its code stays for as long as the process."""
        return shared_function("reduce", driver_text, _DRIVER, self.target)

    def prepare(self, purpose: Purpose) -> None:
        """Make code for a purpose if there is none."""
        if purpose in self.entries:
            return
        with self._lock:
            if purpose in self.entries:
                return
            started = time.perf_counter()
            optimizer.hold()
            known = default_cache().get(self._key(purpose))
            if known is not None:
                self._install(purpose, known, optimized=True)
            elif self.program.size <= DIRECT:
                self._optimize(purpose)
            else:
                quick = assemble(self.assembly(purpose), self.target, 0)
                self._install(purpose, quick, optimized=False)
                optimizer.submit(lambda: self._optimize(purpose))
            optimizer.hold()
            self.compile_seconds += time.perf_counter() - started

    def prepare_soon(self, purpose: Purpose) -> None:
        """Make code in the background; whoever needs it before gets what can be made at once."""
        if purpose not in self.entries:
            optimizer.submit(lambda: self._load_or_optimize(purpose))

    def is_optimized(self, purpose: Purpose) -> bool:
        """Whether the code for a purpose is the fast one already."""
        return self.entry(purpose).optimized

    def entry(self, purpose: Purpose) -> Entry:
        """The best code for a purpose that there is."""
        self.prepare(purpose)
        return self.entries[purpose]

    def assembly(self, purpose: Purpose) -> str:
        """LLVM assembly of the kernel."""
        ops, outputs = expand(self.program)
        module = ModuleText(self.target.tuning)
        event_function(module, "kernel", ops, outputs, reduce=purpose == "reduce")
        return str(module)

    def _key(self, purpose: Purpose) -> str:
        return cache_key(f"{purpose}|{self.program.digest}", self.target)

    def _optimize(self, purpose: Purpose) -> None:
        """Good code for a purpose, unless somebody has made it in the meantime."""
        entry = self.entries.get(purpose)
        if entry is None or not entry.optimized:
            made = assemble(self.assembly(purpose), self.target, LEVEL)
            default_cache().put(self._key(purpose), made)
            self._install(purpose, made, optimized=True)

    def _load_or_optimize(self, purpose: Purpose) -> None:
        known = default_cache().get(self._key(purpose))
        if known is None:
            self._optimize(purpose)
        else:
            self._install(purpose, known, optimized=True)

    def _install(self, purpose: Purpose, made: bytes, *, optimized: bool) -> None:
        code = Code(made, self.target)
        address = code.address("kernel")
        self.entries[purpose] = Entry(code, address, _KERNEL(address), optimized)

    def map(
        self,
        inputs: Rows,
        parameters: Array,
        out: Array,
        weights: Weights = None,
        first: int = 0,
    ) -> None:
        """See `laddu_dask.kernels.backend.Kernel.map`."""
        found = check_inputs(self.program, inputs, weights)
        check_parameters(self.program, parameters)
        check_rows("output", out, self.program.n_outputs, np.dtype(np.float64))
        check_window(self.program, inputs, out, first)
        self.map_part(inputs, found, parameters, 0, capacity(inputs), out, first)

    def map_part(
        self,
        inputs: Rows,
        weights: Array,
        parameters: Array,
        start: int,
        stop: int,
        out: Array,
        first: int = 0,
    ) -> None:
        """The same for some events and arrays that have been checked."""
        if stop > start and out.shape[0]:
            entry = self.entry("map")  # keeps its code while that runs: another may replace it
            entry.function(
                address(inputs),
                *strides(inputs),
                address(weights),
                mask(weights),
                address(parameters),
                start,
                stop,
                address(out) + out.itemsize * first,
                out.shape[1],
            )

    def bind(
        self, inputs: Rows, events: int, first_event: int, weights: Weights = None
    ) -> Reduction:
        """See `laddu_dask.kernels.backend.Kernel.bind`."""
        return Reduction(self, inputs, events, first_event, weights)


def how_it_runs(program: Program) -> str:
    """How a program is executed on this machine, and why so."""
    target, size = current_target(), program.size
    if size <= DIRECT:
        stages = f"good code at once, {size} operations being few"
    else:
        stages = f"quick code at once and good code soon after, {size} operations being many"
    lie = "vectors" if prefers_vectors(program.n_inputs - program.weighted, target) else "rows"
    return f"vector code for {target.cpu}; {stages}; columns by {lie}"


#: Kernels kept in a process, the last used ones; others come from the disk again in milliseconds.
MOST_KERNELS = 256


class CpuBackend:
    """Kernels compiled for the processor of this machine; one set per process."""

    name = "cpu"
    evaluator: type[Evaluator] = NativeEvaluator
    _kernels: ClassVar[dict[tuple[str, str], CpuKernel]] = {}
    _lock = threading.Lock()

    def by_vectors(self, columns: int) -> bool:
        """As this processor likes it."""
        return prefers_vectors(columns, current_target())

    def add_numbers(self, numbers: Array, first_event: int, sums: Accumulator) -> None:
        """See `laddu_dask.kernels.backend.Backend`."""
        add_numbers(numbers, first_event, sums)

    def preparer(self, program: Program, kept: int, questions: Sequence[Question]) -> CpuPreparer:
        """See `laddu_dask.kernels.backend.Backend`."""
        return CpuPreparer(self.compile(program), kept, questions)

    def compile(self, program: Program, purpose: Purpose = "map") -> CpuKernel:
        """Kernel of a program; made for the purpose on first use."""
        kernel = self._kernel(program)
        kernel.prepare(purpose)
        return kernel

    def compile_soon(self, program: Program, purpose: Purpose) -> None:
        """The same in the background."""
        self._kernel(program).prepare_soon(purpose)

    def _kernel(self, program: Program) -> CpuKernel:
        target = current_target()
        with self._lock:
            key = target.key, program.digest
            kernel = self._kernels.pop(key, None) or CpuKernel(program, target)
            self._kernels[key] = kernel  # last, as the one used last
            while len(self._kernels) > MOST_KERNELS:
                del self._kernels[next(iter(self._kernels))]
            return kernel


renewed(CpuBackend, "_lock", threading.Lock)
