"""Compiled CPU kernels: vector LLVM IR inside numba.

The instructions of a program are emitted as explicit eight-lane vector IR through a numba
intrinsic; scalar Python source would meet an exponential compile time and has no vector math. The
loop over tiles and the exact accumulation are compiled once per process and call a kernel by its
address.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numpy as np
from numba import cfunc, int64, njit, types
from numba.extending import intrinsic as numba_intrinsic

from laddu_dask.compiler.program import Program
from laddu_dask.errors import ExecutionError
from laddu_dask.kernels.accumulator import (
    COMPENSATED,
    FOLDS,
    INVERSE_UNIT,
    LANES,
    LEVEL_LIMIT,
    LEVEL_MIN,
    LOW_BITS,
    MAGIC,
    TILE,
    TILE_LIMIT,
    Accumulator,
)
from laddu_dask.kernels.backend import Array, Purpose, padded
from laddu_dask.kernels.expand import expand
from laddu_dask.kernels.vector_ir import DOUBLE, WORD, event_function, fold_function

#: numba's decorator drops the typing context from the signature, which type checkers cannot see.
intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = numba_intrinsic
_MAP_SIGNATURE = types.void(*[types.int64] * 7)
_LOW_MASK = (1 << LOW_BITS) - 1


@intrinsic
def _call_kernel(
    typing_context: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any
) -> Any:
    """Call a kernel by its address; pointers travel as integers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [WORD] * 7)
        function = builder.inttoptr(args[0], kind.as_pointer())
        builder.call(function, list(args[1:]))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8), generate


@intrinsic
def _fold_row(typing_context: Any, values: Any, count: Any, magic: Any, out: Any) -> Any:
    """Digit sums and largest modulus of one row; see `fold_function`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name = "laddu_dask_fold"
        function = builder.module.globals.get(name) or fold_function(builder.module, name, FOLDS)
        pointer = DOUBLE.as_pointer()
        builder.call(
            function,
            [
                builder.inttoptr(args[0], pointer),
                args[1],
                builder.inttoptr(args[2], pointer),
                builder.inttoptr(args[3], pointer),
            ],
        )
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@njit(nogil=True)
def _add_lanes(lanes: Any, levels: Any, words: Any, magic: Any, folds: Any) -> Any:
    """Add the lane sums of a tile to the accumulator state; False if one cannot be summed."""
    n = lanes.shape[0]
    settled = False
    while not settled:
        settled = True
        for j in range(n):
            for k in range(FOLDS):
                magic[k] = MAGIC[levels[j] - k - LEVEL_MIN + FOLDS - 1]
            _fold_row(
                lanes.ctypes.data + j * lanes.strides[0],
                2 * LANES if j < COMPENSATED else LANES,
                magic.ctypes.data,
                folds.ctypes.data + j * folds.strides[0],
            )
            if not folds[j, FOLDS] < TILE_LIMIT:
                return False
        for j in range(n):
            while not folds[j, FOLDS] < LEVEL_LIMIT[levels[j] - LEVEL_MIN]:
                # A level that is too low invalidates this row's digits: go up and do it again.
                settled = False
                levels[j] += 1
                for k in range(FOLDS - 1, 0, -1):
                    words[j, k] = words[j, k - 1]
                words[j, 0] = 0
    for j in range(n):
        for k in range(FOLDS):
            unit = INVERSE_UNIT[levels[j] - k - LEVEL_MIN + FOLDS - 1]
            digits = int64(folds[j, k] * unit[0] * unit[1])
            words[j, k, 0] += digits >> LOW_BITS
            words[j, k, 1] += digits & _LOW_MASK
    return True


@njit(nogil=True)
def _reduce(
    address: Any,
    inputs: Any,
    start: Any,
    events: Any,
    parameters: Any,
    levels: Any,
    words: Any,
    meta: Any,
    lanes: Any,
) -> Any:
    """Sum tiles from `start` on; returns where a tile with a bad event begins, or `events`."""
    magic = np.empty(FOLDS)
    folds = np.empty((lanes.shape[0], FOLDS + 1))
    for position in range(start, events, TILE):
        size = min(TILE, events - position)
        padded = (size + LANES - 1) // LANES * LANES
        _call_kernel(
            address,
            inputs.ctypes.data,
            inputs.shape[1],
            parameters.ctypes.data,
            position,
            position + padded,
            lanes.ctypes.data,
            2 * LANES,
        )
        if not _add_lanes(lanes, levels, words, magic, folds):
            return position
        meta[0] += size
    return events


@njit(nogil=True)
def _map(address: Any, inputs: Any, parameters: Any, start: Any, stop: Any, out: Any) -> Any:
    _call_kernel(
        address,
        inputs.ctypes.data,
        inputs.shape[1],
        parameters.ctypes.data,
        start,
        stop,
        out.ctypes.data,
        out.shape[1],
    )


class CpuKernel:
    """A program compiled for what it is used for.

    Attributes
    ----------
    compile_seconds
        Wall time that compilation has taken so far.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.compile_seconds = 0.0
        self._compiled: dict[Purpose, Any] = {}
        self._lock = threading.RLock()

    def prepare(self, purpose: Purpose) -> int:
        """Compile for a purpose if that has not been done; address of the code."""
        with self._lock:
            if purpose not in self._compiled:
                started = time.perf_counter()
                self._compiled[purpose] = _compile(self.program, purpose)
                self._warm_up(purpose)
                self.compile_seconds += time.perf_counter() - started
            return int(self._compiled[purpose].address)

    def _warm_up(self, purpose: Purpose) -> None:
        """Run over no events: in a new process this compiles the loops that kernels share.

        Otherwise the first evaluation would, in which a cluster already counts the seconds.
        """
        inputs = np.empty((self.program.n_inputs, 0))
        parameters = np.zeros(self.program.n_parameters)
        if purpose == "map":
            out = np.empty((self.program.n_outputs, 0))
            _map(self.prepare("map"), inputs, parameters, 0, 0, out)
        else:
            self.reduce(inputs, 0, parameters, Accumulator(self.program.n_outputs), 0)

    def map(self, inputs: Array, parameters: Array, out: Array) -> None:
        """See `laddu_dask.kernels.backend.Kernel.map`."""
        self._check(inputs, parameters)
        _check_rows("output", out, self.program.n_outputs)
        if out.shape != (self.program.n_outputs, inputs.shape[1]) or not out.flags.writeable:
            raise ValueError(
                f"map: outputs {out.shape} must be writeable and match inputs {inputs.shape}"
            )
        if out.shape[0] and out.shape[1]:
            _map(self.prepare("map"), inputs, parameters, 0, out.shape[1], out)

    def reduce(
        self,
        inputs: Array,
        events: int,
        parameters: Array,
        accumulator: Accumulator,
        first_event: int,
    ) -> None:
        """See `laddu_dask.kernels.backend.Kernel.reduce`."""
        self._check(inputs, parameters)
        if len(accumulator) != self.program.n_outputs or not 0 <= events <= inputs.shape[1]:
            raise ValueError(f"reduce: {events} events of {inputs.shape}, {len(accumulator)} sums")
        if events % LANES and inputs[-1, events : padded(events)].any():
            raise ValueError("reduce: the weight must be zero in the padding")
        lanes = np.empty((self.program.n_outputs, 2 * LANES))
        address, position = self.prepare("reduce"), 0
        while True:
            position = _reduce(
                address,
                inputs,
                position,
                events,
                parameters,
                accumulator.levels,
                accumulator.words,
                accumulator.meta,
                lanes,
            )
            if position == events:
                return
            self._add_bad_tile(inputs, position, events, parameters, accumulator, first_event)
            position = min(position + TILE, events)

    def _add_bad_tile(
        self,
        inputs: Array,
        start: int,
        events: int,
        parameters: Array,
        accumulator: Accumulator,
        first_event: int,
    ) -> None:
        """Event by event: a bad one is recorded and left out, the others count as always."""
        size = min(TILE, events - start)
        rows = np.empty((self.program.n_outputs, padded(size)))
        _map(self.prepare("map"), inputs, parameters, start, start + padded(size), rows)
        accumulator.add_tiles(rows[:, :size], first_event + start)

    def _check(self, inputs: Array, parameters: Array) -> None:
        """Compiled code checks nothing, so everything is checked before it runs."""
        _check_rows("input", inputs, self.program.n_inputs)
        wanted = self.program.n_parameters
        if (
            parameters.dtype != np.float64
            or parameters.ndim != 1
            or not parameters.flags.c_contiguous
            or len(parameters) < wanted
        ):
            raise ValueError(
                f"kernel needs {wanted} contiguous float64 parameters, "
                f"got {parameters.dtype} {parameters.shape}"
            )


def _check_rows(what: str, rows: Array, wanted: int) -> None:
    if rows.dtype != np.float64 or rows.ndim != 2 or not rows.flags.c_contiguous:
        raise ValueError(
            f"kernel {what}s must be C-contiguous float64 rows, got {rows.dtype} {rows.shape}"
        )
    if rows.shape[0] < wanted or rows.shape[1] % LANES:
        raise ValueError(f"kernel needs {wanted} padded {what} rows, got {rows.shape}")


def _compile(program: Program, purpose: Purpose) -> Any:
    name = f"laddu_dask_{purpose}_{program.digest}"

    @intrinsic
    def body(typing_context: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            ops, outputs = expand(program)
            function = event_function(
                builder.module, name, ops, outputs, reduce=purpose == "reduce"
            )
            pointer = DOUBLE.as_pointer()
            source, stride, parameters, start, stop, out, out_stride = args
            builder.call(
                function,
                [
                    builder.inttoptr(source, pointer),
                    stride,
                    builder.inttoptr(parameters, pointer),
                    start,
                    stop,
                    builder.inttoptr(out, pointer),
                    out_stride,
                ],
            )
            return context.get_dummy_value()

        return _MAP_SIGNATURE, generate

    def kernel(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any) -> Any:
        body(a, b, c, d, e, f, g)

    return cfunc(_MAP_SIGNATURE)(kernel)


class CpuBackend:
    """Kernels compiled for the processor of this machine; one cache per process."""

    name = "cpu"
    _kernels: ClassVar[dict[str, CpuKernel]] = {}
    _lock = threading.Lock()

    def __init__(self) -> None:
        _require_fma()

    def compile(self, program: Program, purpose: Purpose = "map") -> CpuKernel:
        """Kernel of a program; compiled for the purpose on first use."""
        with self._lock:
            kernel = self._kernels.setdefault(program.digest, CpuKernel(program))
        kernel.prepare(purpose)
        return kernel


def _require_fma() -> None:
    features = llvm.get_host_cpu_features()
    if "fma" in features and not features["fma"]:
        raise ExecutionError(
            f"the processor {llvm.get_host_cpu_name()} has no fused multiply-add, which the "
            "reproducible elementary functions need; use backend='interpreter'",
            option="backend",
        )
