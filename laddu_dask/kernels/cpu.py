"""Compiled CPU kernels: vector LLVM IR inside numba.

The instructions of a program are emitted as explicit eight-lane vector IR through a numba
intrinsic; scalar Python source would meet an exponential compile time and has no vector math. The
loop over tiles and the exact accumulation are compiled once per process and call a kernel by its
address.
"""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numpy as np
from numba import cfunc, int64, njit, types
from numba.extending import intrinsic as numba_intrinsic

from laddu_dask.compiler.program import Program
from laddu_dask.errors import ExecutionError
from laddu_dask.kernels.accumulator import (
    FOLDS,
    INVERSE_UNIT,
    LEVEL_LIMIT,
    LEVEL_MIN,
    LIMIT,
    LOW_BITS,
    MAGIC,
    Accumulator,
)
from laddu_dask.kernels.backend import Array
from laddu_dask.kernels.expand import expand
from laddu_dask.kernels.vector_ir import DOUBLE, LANES, WORD, fold_function, map_function

#: numba's decorator drops the typing context from the signature, which type checkers cannot see.
intrinsic: Any = numba_intrinsic
#: Events whose output rows lie in cache together between evaluation and accumulation.
TILE = 256

_MAP_SIGNATURE = types.void(*[types.int64] * 7)
_LOW_MASK = (1 << LOW_BITS) - 1


@intrinsic
def _call_kernel(typing_context, address, a, b, c, d, e, f, g):  # type: ignore[no-untyped-def]
    """Call a kernel by its address; pointers travel as integers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [WORD] * 7)
        function = builder.inttoptr(args[0], kind.as_pointer())
        builder.call(function, list(args[1:]))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8), generate


@intrinsic
def _fold_row(typing_context, values, count, magic, out):  # type: ignore[no-untyped-def]
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
def _mask_bad(rows, events, first_event, meta):  # type: ignore[no-untyped-def]
    """Zero every event with a value that cannot be summed; return how many."""
    bad = 0
    for i in range(events):
        good = True
        for j in range(rows.shape[0]):
            if not abs(rows[j, i]) < LIMIT:
                good = False
        if not good:
            bad += 1
            meta[1] = min(meta[1], first_event + i)
            for j in range(rows.shape[0]):
                rows[j, i] = 0.0
    return bad


@njit(nogil=True)
def _add_tile(rows, events, padded, first_event, levels, words, meta, magic, folds):  # type: ignore[no-untyped-def]
    """Add a tile of output rows to the accumulator state in place."""
    n = rows.shape[0]
    bad = 0
    settled = False
    while not settled:
        settled = True
        for j in range(n):
            for k in range(FOLDS):
                magic[k] = MAGIC[levels[j] - k - LEVEL_MIN + FOLDS - 1]
            _fold_row(
                rows.ctypes.data + j * rows.strides[0],
                padded,
                magic.ctypes.data,
                folds.ctypes.data + j * folds.strides[0],
            )
            if not folds[j, FOLDS] < LIMIT:
                settled = False
        if not settled:
            # Before any level: a bad event counts nowhere, its good values do not raise a level.
            bad += _mask_bad(rows, events, first_event, meta)
            continue
        for j in range(n):
            while not folds[j, FOLDS] < LEVEL_LIMIT[levels[j] - LEVEL_MIN]:
                # A level that is too low invalidates this row's digits: go up and redo the tile.
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
    meta[0] += events - bad


@njit(nogil=True)
def _reduce(address, inputs, events, parameters, first_event, levels, words, meta, rows):  # type: ignore[no-untyped-def]
    """Loop over tiles: evaluate, then accumulate while the rows are in cache."""
    magic = np.empty(FOLDS)
    folds = np.empty((rows.shape[0], FOLDS + 1))
    for start in range(0, events, TILE):
        size = min(TILE, events - start)
        padded = (size + LANES - 1) // LANES * LANES
        _call_kernel(
            address,
            inputs.ctypes.data,
            inputs.shape[1],
            parameters.ctypes.data,
            start,
            start + padded,
            rows.ctypes.data,
            TILE,
        )
        rows[:, size:padded] = 0.0
        _add_tile(rows, size, padded, first_event + start, levels, words, meta, magic, folds)


@njit(nogil=True)
def _map(address, inputs, parameters, out):  # type: ignore[no-untyped-def]
    _call_kernel(
        address,
        inputs.ctypes.data,
        inputs.shape[1],
        parameters.ctypes.data,
        0,
        out.shape[1],
        out.ctypes.data,
        out.shape[1],
    )


class CpuKernel:
    """A compiled program.

    Attributes
    ----------
    compile_seconds
        Wall time that compilation took.
    """

    def __init__(self, program: Program) -> None:
        started = time.perf_counter()
        self.program = program
        self._compiled = _compile(program)
        self._warm_up()
        self.compile_seconds = time.perf_counter() - started

    def _warm_up(self) -> None:
        """Run over no events: in a new process this compiles the loops that kernels share.

        Otherwise the first evaluation would, in which a cluster already counts the seconds.
        """
        inputs = np.empty((self.program.n_inputs, 0))
        parameters = np.zeros(self.program.n_parameters)
        self.reduce(inputs, 0, parameters, Accumulator(self.program.n_outputs), 0)
        _map(self._compiled.address, inputs, parameters, np.empty((self.program.n_outputs, 0)))

    def map(self, inputs: Array, parameters: Array, out: Array) -> None:
        """See `laddu_dask.kernels.backend.Kernel.map`."""
        self._check(inputs, parameters)
        _check_rows("output", out, self.program.n_outputs)
        if out.shape != (self.program.n_outputs, inputs.shape[1]) or not out.flags.writeable:
            raise ValueError(
                f"map: outputs {out.shape} must be writeable and match inputs {inputs.shape}"
            )
        if out.shape[0] and out.shape[1]:
            _map(self._compiled.address, inputs, parameters, out)

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
        rows = np.empty((self.program.n_outputs, TILE))
        _reduce(
            self._compiled.address,
            inputs,
            events,
            parameters,
            first_event,
            accumulator.levels,
            accumulator.words,
            accumulator.meta,
            rows,
        )

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


def _compile(program: Program) -> Any:
    name = f"laddu_dask_{program.digest}"

    @intrinsic
    def body(typing_context, a, b, c, d, e, f, g):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            ops, outputs = expand(program)
            function = map_function(builder.module, name, ops, outputs)
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

    def kernel(a, b, c, d, e, f, g):  # type: ignore[no-untyped-def]
        body(a, b, c, d, e, f, g)

    return cfunc(_MAP_SIGNATURE)(kernel)


class CpuBackend:
    """Kernels compiled for the processor of this machine; one cache per process."""

    name = "cpu"
    _kernels: ClassVar[dict[str, CpuKernel]] = {}
    _lock = threading.Lock()

    def __init__(self) -> None:
        _require_fma()

    def compile(self, program: Program) -> CpuKernel:
        """Kernel of a program; compiled on first use."""
        with self._lock:  # numba compiles one function at a time anyway
            kernel = self._kernels.get(program.digest)
            if kernel is None:
                kernel = self._kernels[program.digest] = CpuKernel(program)
            return kernel


def _require_fma() -> None:
    features = llvm.get_host_cpu_features()
    if "fma" in features and not features["fma"]:
        raise ExecutionError(
            f"the processor {llvm.get_host_cpu_name()} has no fused multiply-add, which the "
            "reproducible elementary functions need; use backend='interpreter'",
            option="backend",
        )
