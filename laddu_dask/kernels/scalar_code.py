"""Parameter programs as machine code, where that has exactly the bits of Python.

Between two passes over millions of events the caches of the processor hold nothing of this process.
Python code that has just been evicted takes many times as long as usual; machine code is short.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from laddu_dask.compiler.evaluator import Demands, Evaluator, ScalarProgram
from laddu_dask.compiler.layout import Vector
from laddu_dask.kernels.native import Code, assemble, cache_key
from laddu_dask.kernels.object_cache import default_cache
from laddu_dask.kernels.optimizer import optimizer
from laddu_dask.kernels.scalar_text import is_printable, scalar_text
from laddu_dask.kernels.target import current_target

#: Effort of LLVM.
_LEVEL = 2

# They take some microseconds, so the interpreter is not given to another thread meanwhile.
_PROGRAM = ctypes.PYFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
_VALID = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_void_p)
_WEIGHTED = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_char_p)


@dataclass(frozen=True)
class _Functions:
    """See `laddu_dask.kernels.scalar_text.scalar_text`."""

    code: Code
    bytes_read: int
    program: Any
    valid: Any
    weighted: Any


class NativeEvaluator(Evaluator):
    """Programs that run more than once become machine code, in the background."""

    def __init__(self, program: ScalarProgram, demands: Demands | None = None) -> None:
        super().__init__(program, demands)
        self._functions: _Functions | None = None
        self._wanted = is_printable(self.instructions)
        #: Makes room for values, and for two sums of them.
        self._room: Any = ctypes.c_double * (len(self.outputs) + 2)

    def __call__(self, *inputs: Vector) -> Vector:
        """See `Evaluator`."""
        functions = self._functions
        if functions is None:
            return super().__call__(*inputs)
        values = self._room()
        functions.program(_packed(functions, inputs), values)
        return np.frombuffer(values, np.float64, len(self.outputs))

    def valid(self, *inputs: Vector) -> Vector | None:
        """See `Evaluator`."""
        functions = self._functions
        if functions is None:
            return super().valid(*inputs)
        values = self._room()
        good = functions.valid(_packed(functions, inputs), values)
        return np.frombuffer(values, np.float64, self.n_values) if good else None

    def weighted(self, weights: Vector, *inputs: Vector) -> tuple[float, float] | None:
        """See `Evaluator`."""
        functions = self._functions
        if functions is None:
            return super().weighted(weights, *inputs)
        if weights.shape != (2, self.n_values) or weights.dtype != np.float64:
            raise ValueError(
                f"weights must be float64 of shape {(2, self.n_values)}, "
                f"got {weights.dtype} {weights.shape}"
            )
        values = self._room()
        if not functions.weighted(_packed(functions, inputs), values, weights.tobytes()):
            return None
        return values[-2], values[-1]

    def compile(self) -> None:
        """Make the code, or get it from the disk."""
        target = current_target()
        text = scalar_text(self.instructions, self.outputs, self.demands)
        key = cache_key(text, target)
        made = default_cache().get(key)
        if made is None:
            made = assemble(text, target, _LEVEL)
            default_cache().put(key, made)
        code = Code(made, target)
        read = [int(str(payload)) for op, _, payload in self.instructions if op == "parameter"]
        self._functions = _Functions(
            code,
            8 * (max(read, default=-1) + 1),
            _PROGRAM(code.address("program")),
            _VALID(code.address("valid")),
            _WEIGHTED(code.address("weighted")),
        )

    def _hasten(self, runs: int) -> None:
        if self._wanted and runs > 1:
            self._wanted = False
            mine = weakref.ref(self)  # nothing is made for a likelihood that is gone
            optimizer.submit(lambda: _compile(mine()))
        super()._hasten(runs)  # it may take long until the optimizer has time, or fail


def _compile(evaluator: NativeEvaluator | None) -> None:
    if evaluator is not None:
        evaluator.compile()


def _packed(functions: _Functions, inputs: Sequence[Vector]) -> bytes:
    """The inputs one behind the other; machine code checks nothing."""
    packed = b""
    for vector in inputs:
        if vector.dtype != np.float64:
            raise ValueError(f"parameter programs read float64, got {vector.dtype}")
        packed += vector.tobytes()
    if len(packed) < functions.bytes_read:
        raise ValueError(
            f"parameter program reads {functions.bytes_read // 8} numbers, got {len(packed) // 8}"
        )
    return packed
