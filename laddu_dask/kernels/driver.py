"""The loop over tiles and the exact accumulation as LLVM IR, written once for all kernels.

In Python terms::

    for position in range(start, events, TILE):
        weights = all_weights if position + TILE <= events else last_weights
        kernel(inputs, stride, step, weights, mask, parameters, position, stop, lanes, 2 * LANES)
        if not add_lanes(...):
            return position

and `add_lanes` folds the lane sums of every row into the digits of an
`laddu_dask.kernels.accumulator.Accumulator`, as its method `_fold` does.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

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
)
from laddu_dask.kernels.loops import (
    BIT,
    DOUBLE,
    KERNEL,
    NUMBERS,
    VECTOR,
    VECTOR_WORD,
    VOID,
    WORD,
    WORDS,
    Function,
    every_lane,
    lanes_of,
    word,
)

_MODULUS = 0x7FFFFFFFFFFFFFFF
#: Of the table of rounding constants that belongs to level 0 of a sum's top bin.
_FIRST = FOLDS - 1 - LEVEL_MIN


def driver_text() -> str:
    """LLVM assembly of the function ``reduce``.

    ``int64 reduce(kernel, inputs, stride, step, weights, last_weights, mask, parameters, start,
    events, rows, lanes, levels, words, meta, folds)`` sums tiles from `start` on and returns where
    a tile with a bad event begins, or `events`. ``last_weights`` are those of a last tile that is
    not full. ``lanes`` has `rows` times ``2 LANES`` doubles of room, ``folds`` `rows` times ``FOLDS
    + 1``; levels, words and meta are the accumulator's.
    """
    module = ir.Module()
    add_lanes = _add_lanes(module, _fold(module))
    f = Function(
        module,
        "reduce",
        WORD,
        [
            KERNEL.as_pointer(),
            NUMBERS,
            WORD,
            WORD,
            NUMBERS,
            NUMBERS,
            WORD,
            NUMBERS,
            WORD,
            WORD,
            WORD,
            NUMBERS,
            WORDS,
            WORDS,
            WORDS,
            NUMBERS,
        ],
    )
    kernel, inputs, stride, step, weights, last, mask, parameters, *others = f.function.args
    start, events, rows, lanes, levels, words, meta, folds = others
    b = f.b
    with f.count(start, events, TILE) as position:
        left = b.sub(events, position)
        partial = b.icmp_signed("<", left, word(TILE))
        size = b.select(partial, left, word(TILE))
        padded = b.and_(b.add(size, word(LANES - 1)), word(-LANES))
        stop = b.add(position, padded)
        tile = [inputs, stride, step, b.select(partial, last, weights), mask, parameters]
        b.call(kernel, [*tile, position, stop, lanes, word(2 * LANES)])
        good = b.call(add_lanes, [lanes, rows, word(2 * LANES), levels, words, folds])
        with b.if_then(b.not_(good)):
            b.ret(position)
        f.add(meta, size)
    b.ret(events)
    return str(module)


def numbers_text() -> str:
    """LLVM assembly of the function ``add``.

    ``int64 add(numbers, count, levels, words, folds)`` adds single numbers to one sum, `TILE` at a
    time, and returns where some begin that cannot be added, or `count`, a multiple of `LANES`.
    ``folds`` has room for ``FOLDS + 1`` doubles.
    """
    module = ir.Module()
    add_lanes = _add_lanes(module, _fold(module))
    f = Function(module, "add", WORD, [NUMBERS, WORD, WORDS, WORDS, NUMBERS])
    numbers, count, levels, words, folds = f.function.args
    b = f.b
    with f.count(word(0), count, TILE) as position:
        left = b.sub(count, position)
        size = b.select(b.icmp_signed("<", left, word(TILE)), left, word(TILE))
        some = f.at(numbers, position)
        with b.if_then(b.not_(b.call(add_lanes, [some, word(1), size, levels, words, folds]))):
            b.ret(position)
    b.ret(count)
    return str(module)


def _fold(module: Any) -> Any:
    """``fold(values, count, level, out)``: digit sums and the largest modulus of a row.

    ``out`` receives `FOLDS` sums, each an exact multiple of its unit, then the largest ``|v|`` by
    its bits, so that infinities and NaN show as the largest. `count` is a multiple of `LANES` and
    at most `TILE`, which keeps every lane sum exact.
    """
    f = Function(module, "fold", VOID, [NUMBERS, WORD, WORD, NUMBERS])
    f.function.linkage = "internal"
    values, count, level, out = f.function.args
    b = f.b
    magic = f.table("magic", MAGIC)
    constants = []
    for k in range(FOLDS):
        constants.append(every_lane(b, b.load(f.at(magic, level, word(_FIRST - k)))))
    sums = [f.variable(ir.Constant(VECTOR, [0.0] * LANES)) for _ in range(FOLDS)]
    largest = f.variable(ir.Constant(VECTOR_WORD, [0] * LANES))
    with f.count(word(0), count, LANES) as position:
        rest = b.load(b.bitcast(f.at(values, position), VECTOR.as_pointer()))
        rest.align = 8
        modulus = b.and_(b.bitcast(rest, VECTOR_WORD), lanes_of(_MODULUS))
        top = b.load(largest)
        b.store(b.select(b.icmp_signed(">", modulus, top), modulus, top), largest)
        for total, constant in zip(sums, constants, strict=True):
            digit = b.fsub(b.fadd(rest, constant), constant)
            b.store(b.fadd(b.load(total), digit), total)
            rest = b.fsub(rest, digit)
    biggest = _largest_lane(module)
    for k, total in enumerate(sums):
        b.store(_sum_of_lanes(b, b.load(total)), f.at(out, word(k)))
    modulus = b.bitcast(b.call(biggest, [b.load(largest)]), DOUBLE)
    b.store(modulus, f.at(out, word(FOLDS)))
    b.ret_void()
    return f.function


def _sum_of_lanes(b: Any, vector: Any) -> Any:
    """Half by half, which takes three additions in turn instead of seven; digits add exactly."""
    width = LANES
    while width > 1:
        width //= 2
        low, high = (
            ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(first, first + width)))
            for first in (0, width)
        )
        vector = b.fadd(
            b.shuffle_vector(vector, vector, low), b.shuffle_vector(vector, vector, high)
        )
    return b.extract_element(vector, word(0))


def _largest_lane(module: Any) -> Any:
    kind = ir.FunctionType(WORD, [VECTOR_WORD])
    return ir.Function(module, kind, f"llvm.vector.reduce.smax.v{LANES}i64")


def _add_lanes(module: Any, fold: Any) -> Any:
    """``add_lanes(lanes, rows, size, levels, words, folds)``: false if a sum cannot be accumulated.

    `size` says how many numbers are added to the first `COMPENSATED` sums; the others get `LANES`.

    No digit is added before all rows are known to be good, at levels that are high enough.
    """
    f = Function(module, "add_lanes", BIT, [NUMBERS, WORD, WORD, WORDS, WORDS, NUMBERS])
    f.function.linkage = "internal"
    lanes, rows, size, levels, words, folds = f.function.args
    b = f.b
    limits = f.table("limits", LEVEL_LIMIT)
    units = f.table("units", INVERSE_UNIT)
    settled = f.variable(ir.Constant(BIT, 0))
    with f.loop(lambda: b.not_(b.load(settled))):
        b.store(ir.Constant(BIT, 1), settled)
        with f.count(word(0), rows) as j:
            compensated = b.icmp_signed("<", j, word(COMPENSATED))
            count = b.select(compensated, size, word(LANES))
            digits = f.at(folds, b.mul(j, word(FOLDS + 1)))
            row = f.at(lanes, b.mul(j, word(2 * LANES)))
            b.call(fold, [row, count, b.load(f.at(levels, j)), digits])
            largest = b.load(f.at(digits, word(FOLDS)))
            below = b.fcmp_ordered("<", largest, ir.Constant(DOUBLE, TILE_LIMIT))
            with b.if_then(b.not_(below)):
                b.ret(ir.Constant(BIT, 0))
        with f.count(word(0), rows) as j:
            level = f.at(levels, j)
            largest = b.load(f.at(folds, b.mul(j, word(FOLDS + 1)), word(FOLDS)))

            def too_low(level: Any = level, largest: Any = largest) -> Any:
                limit = b.load(f.at(limits, b.load(level), word(-LEVEL_MIN)))
                return b.not_(b.fcmp_ordered("<", largest, limit))

            with f.loop(too_low):
                # A level that is too low invalidates this row's digits: go up and do it again.
                b.store(ir.Constant(BIT, 0), settled)
                f.add(level, word(1))
                digits = f.at(words, b.mul(j, word(2 * FOLDS)))
                for k in reversed(range(2 * FOLDS)):
                    moved = b.load(f.at(digits, word(k - 2))) if k > 1 else word(0)
                    b.store(moved, f.at(digits, word(k)))
    with f.count(word(0), rows) as j:
        level = b.load(f.at(levels, j))
        for k in range(FOLDS):
            unit = f.at(units, b.shl(level, word(1)), word(2 * (_FIRST - k)))
            total = b.load(f.at(folds, b.mul(j, word(FOLDS + 1)), word(k)))
            total = b.fmul(total, b.load(unit))
            total = b.fmul(total, b.load(f.at(unit, word(1))))
            whole = b.fptosi(total, WORD)
            high = f.at(words, b.mul(j, word(2 * FOLDS)), word(2 * k))
            f.add(high, b.ashr(whole, word(LOW_BITS)))
            f.add(f.at(high, word(1)), b.and_(whole, word((1 << LOW_BITS) - 1)))
    b.ret(ir.Constant(BIT, 1))
    return f.function
