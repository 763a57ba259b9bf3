"""Searching prepared events for extreme numbers, as `laddu_dask.compiler.precision.has_extreme`.

Most columns of all events are searched when they are prepared. NumPy passes over a column eight
times for it, which took twice as long as preparing the 40 columns of a model; this passes once.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from laddu_dask.compiler.precision import RANGES, Precision
from laddu_dask.kernels.accumulator import LANES
from laddu_dask.kernels.arguments import address
from laddu_dask.kernels.backend import Array
from laddu_dask.kernels.native import Code, assemble, cache_key
from laddu_dask.kernels.object_cache import default_cache
from laddu_dask.kernels.target import Target, current_target

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 8)
_WORDS, _BITS = f"<{LANES} x i64>", f"<{LANES} x i1>"


def is_any_extreme(
    rows: Array, which: Sequence[int], start: int, stop: int, precision: Precision
) -> bool:
    """Whether events `start` to `stop` of some rows have a number that is extreme.

    `start` and `stop` are multiples of the lanes; the rows are C-contiguous.
    """
    if not which or start >= stop:
        return False
    numbers = np.asarray(which, dtype=np.int64)
    smallest, largest = map(_bits, RANGES[precision])
    _, function = _compiled(current_target())
    return bool(
        function(
            *(address(rows), rows.shape[1], address(numbers), len(numbers), start, stop),
            *(max(smallest - 1, 0), largest),
        )
    )


def _bits(modulus: float) -> int:
    """What a double is as an integer; those of moduli have the same order."""
    found: int = struct.unpack("<q", struct.pack("<d", modulus))[0]
    return found


@functools.cache
def _compiled(target: Target) -> tuple[Code, Any]:
    key = cache_key("extreme", target)
    made = default_cache().get(key)
    if made is None:
        made = assemble(_text(), target, 2)
        default_cache().put(key, made)
    code = Code(made, target)
    return code, _FUNCTION(code.address("extreme"))


def _text() -> str:
    """LLVM assembly of ``extreme(numbers, stride, rows, count, start, stop, small, large)``.

    Less one, the bits of zero are the largest of all unsigned integers. So those of both kinds of
    extreme numbers are a range each: below `small`, and `large` to those of infinity.
    """

    def splat(name: str, value: str) -> str:
        return (
            f"  {name}0 = insertelement {_WORDS} poison, i64 {value}, i64 0\n"
            f"  {name} = shufflevector {_WORDS} {name}0, {_WORDS} poison, "
            f"<{LANES} x i32> zeroinitializer"
        )

    return f"""
declare i1 @llvm.vector.reduce.or.v{LANES}i1({_BITS})

define i64 @extreme(ptr %numbers, i64 %stride, ptr %rows, i64 %count, i64 %start, i64 %stop,
                    i64 %small, i64 %large) #0 {{
entry:
  %width = sub i64 {_bits(math.inf) - 1}, %large
{splat("%signs", str(2**63 - 1))}
{splat("%ones", "1")}
{splat("%smalls", "%small")}
{splat("%larges", "%large")}
{splat("%widths", "%width")}
  br label %row
row:
  %k = phi i64 [ 0, %entry ], [ %next_k, %clean ]
  %row_at = getelementptr i64, ptr %rows, i64 %k
  %number = load i64, ptr %row_at
  %offset = mul i64 %number, %stride
  %base = getelementptr double, ptr %numbers, i64 %offset
  br label %loop
loop:
  %event = phi i64 [ %start, %row ], [ %next, %loop ]
  %found = phi {_BITS} [ zeroinitializer, %row ], [ %all, %loop ]
  %place = getelementptr double, ptr %base, i64 %event
  %bits = load {_WORDS}, ptr %place, align 8
  %modulus = and {_WORDS} %bits, %signs
  %less = sub {_WORDS} %modulus, %ones
  %tiny = icmp ult {_WORDS} %less, %smalls
  %above = sub {_WORDS} %less, %larges
  %huge = icmp ult {_WORDS} %above, %widths
  %either = or {_BITS} %tiny, %huge
  %all = or {_BITS} %found, %either
  %next = add i64 %event, {LANES}
  %more = icmp slt i64 %next, %stop
  br i1 %more, label %loop, label %end
end:
  %any = call i1 @llvm.vector.reduce.or.v{LANES}i1({_BITS} %all)
  br i1 %any, label %yes, label %clean
clean:
  %next_k = add i64 %k, 1
  %more_rows = icmp slt i64 %next_k, %count
  br i1 %more_rows, label %row, label %no
yes:
  ret i64 1
no:
  ret i64 0
}}

attributes #0 = {{ "prefer-vector-width"="512" "min-legal-vector-width"="512" }}
"""
