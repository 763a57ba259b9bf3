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

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import llvmlite.ir as ir
import numpy as np

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

_VOID, _BIT, _WORD, _DOUBLE = ir.VoidType(), ir.IntType(1), ir.IntType(64), ir.DoubleType()
_NUMBERS, _WORDS = _DOUBLE.as_pointer(), _WORD.as_pointer()
_VECTOR, _VECTOR_WORD = ir.VectorType(_DOUBLE, LANES), ir.VectorType(_WORD, LANES)
_MODULUS = 0x7FFFFFFFFFFFFFFF
#: Of the table of rounding constants that belongs to level 0 of a sum's top bin.
_FIRST = FOLDS - 1 - LEVEL_MIN

_KERNEL = ir.FunctionType(
    _VOID, [_NUMBERS, _WORD, _WORD, _NUMBERS, _WORD, _NUMBERS, _WORD, _WORD, _NUMBERS, _WORD]
)


def _word(x: int) -> Any:
    return ir.Constant(_WORD, x)


class _Builder:
    """LLVM's builder with variables, counted loops and constant tables."""

    def __init__(self, module: Any, name: str, result: Any, arguments: Sequence[Any]) -> None:
        self.function = ir.Function(module, ir.FunctionType(result, arguments), name)
        for text in ('"prefer-vector-width"="512"', '"min-legal-vector-width"="512"'):
            # llvmlite knows no string attributes
            self.function.attributes._known = self.function.attributes._known | {text}
            self.function.attributes.add(text)
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))

    def at(self, pointer: Any, *terms: Any) -> Any:
        """Place behind a pointer, the terms of the offset added."""
        for term in terms:
            pointer = self.b.gep(pointer, [term])
        return pointer

    def variable(self, value: Any) -> Any:
        """A variable with a first value."""
        with self.b.goto_entry_block():
            place = self.b.alloca(value.type)
        self.b.store(value, place)
        return place

    def add(self, place: Any, value: Any) -> None:
        """``place += value`` for integers."""
        self.b.store(self.b.add(self.b.load(place), value), place)

    @contextmanager
    def loop(self, test: Callable[[], Any]) -> Iterator[None]:
        """While."""
        head, body, done = (self.function.append_basic_block() for _ in range(3))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(test(), body, done)
        self.b.position_at_end(body)
        yield
        self.b.branch(head)
        self.b.position_at_end(done)

    @contextmanager
    def count(self, first: Any, stop: Any, step: int = 1) -> Iterator[Any]:
        """``for i in range(first, stop, step)``."""
        place = self.variable(first)
        with self.loop(lambda: self.b.icmp_signed("<", self.b.load(place), stop)):
            yield self.b.load(place)
            self.add(place, _word(step))

    def table(self, name: str, numbers: Any) -> Any:
        """Pointer to a constant table of doubles."""
        flat = [float(x) for x in np.ravel(numbers)]
        kind = ir.ArrayType(_DOUBLE, len(flat))
        table = ir.GlobalVariable(self.b.module, kind, name)
        table.global_constant, table.linkage = True, "internal"
        table.initializer = ir.Constant(kind, flat)
        return self.b.gep(table, [_word(0), _word(0)])


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
    f = _Builder(
        module,
        "reduce",
        _WORD,
        [
            _KERNEL.as_pointer(),
            _NUMBERS,
            _WORD,
            _WORD,
            _NUMBERS,
            _NUMBERS,
            _WORD,
            _NUMBERS,
            _WORD,
            _WORD,
            _WORD,
            _NUMBERS,
            _WORDS,
            _WORDS,
            _WORDS,
            _NUMBERS,
        ],
    )
    kernel, inputs, stride, step, weights, last, mask, parameters, *others = f.function.args
    start, events, rows, lanes, levels, words, meta, folds = others
    b = f.b
    with f.count(start, events, TILE) as position:
        left = b.sub(events, position)
        partial = b.icmp_signed("<", left, _word(TILE))
        size = b.select(partial, left, _word(TILE))
        padded = b.and_(b.add(size, _word(LANES - 1)), _word(-LANES))
        stop = b.add(position, padded)
        tile = [inputs, stride, step, b.select(partial, last, weights), mask, parameters]
        b.call(kernel, [*tile, position, stop, lanes, _word(2 * LANES)])
        good = b.call(add_lanes, [lanes, rows, levels, words, folds])
        with b.if_then(b.not_(good)):
            b.ret(position)
        f.add(meta, size)
    b.ret(events)
    return str(module)


def _fold(module: Any) -> Any:
    """``fold(values, count, level, out)``: digit sums and the largest modulus of a row.

    ``out`` receives `FOLDS` sums, each an exact multiple of its unit, then the largest ``|v|`` by
    its bits, so that infinities and NaN show as the largest. `count` is a multiple of `LANES` and
    at most `TILE`, which keeps every lane sum exact.
    """
    f = _Builder(module, "fold", _VOID, [_NUMBERS, _WORD, _WORD, _NUMBERS])
    f.function.linkage = "internal"
    values, count, level, out = f.function.args
    b = f.b
    magic = f.table("magic", MAGIC)
    constants = []
    for k in range(FOLDS):
        scalar = b.load(f.at(magic, level, _word(_FIRST - k)))
        first = b.insert_element(ir.Constant(_VECTOR, ir.Undefined), scalar, _word(0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        constants.append(b.shuffle_vector(first, first, lanes))
    sums = [f.variable(ir.Constant(_VECTOR, [0.0] * LANES)) for _ in range(FOLDS)]
    largest = f.variable(ir.Constant(_VECTOR_WORD, [0] * LANES))
    with f.count(_word(0), count, LANES) as position:
        rest = b.load(b.bitcast(f.at(values, position), _VECTOR.as_pointer()))
        rest.align = 8
        modulus = b.and_(b.bitcast(rest, _VECTOR_WORD), _every_lane(_MODULUS))
        top = b.load(largest)
        b.store(b.select(b.icmp_signed(">", modulus, top), modulus, top), largest)
        for total, constant in zip(sums, constants, strict=True):
            digit = b.fsub(b.fadd(rest, constant), constant)
            b.store(b.fadd(b.load(total), digit), total)
            rest = b.fsub(rest, digit)
    biggest = _largest_lane(module)
    for k, total in enumerate(sums):
        b.store(_sum_of_lanes(b, b.load(total)), f.at(out, _word(k)))
    modulus = b.bitcast(b.call(biggest, [b.load(largest)]), _DOUBLE)
    b.store(modulus, f.at(out, _word(FOLDS)))
    b.ret_void()
    return f.function


def _every_lane(x: int) -> Any:
    return ir.Constant(_VECTOR_WORD, [x] * LANES)


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
    return b.extract_element(vector, _word(0))


def _largest_lane(module: Any) -> Any:
    kind = ir.FunctionType(_WORD, [_VECTOR_WORD])
    return ir.Function(module, kind, f"llvm.vector.reduce.smax.v{LANES}i64")


def _add_lanes(module: Any, fold: Any) -> Any:
    """``add_lanes(lanes, rows, levels, words, folds)``: false if a sum cannot be accumulated.

    No digit is added before all rows are known to be good, at levels that are high enough.
    """
    f = _Builder(module, "add_lanes", _BIT, [_NUMBERS, _WORD, _WORDS, _WORDS, _NUMBERS])
    f.function.linkage = "internal"
    lanes, rows, levels, words, folds = f.function.args
    b = f.b
    limits = f.table("limits", LEVEL_LIMIT)
    units = f.table("units", INVERSE_UNIT)
    settled = f.variable(ir.Constant(_BIT, 0))
    with f.loop(lambda: b.not_(b.load(settled))):
        b.store(ir.Constant(_BIT, 1), settled)
        with f.count(_word(0), rows) as j:
            compensated = b.icmp_signed("<", j, _word(COMPENSATED))
            count = b.select(compensated, _word(2 * LANES), _word(LANES))
            digits = f.at(folds, b.mul(j, _word(FOLDS + 1)))
            row = f.at(lanes, b.mul(j, _word(2 * LANES)))
            b.call(fold, [row, count, b.load(f.at(levels, j)), digits])
            largest = b.load(f.at(digits, _word(FOLDS)))
            below = b.fcmp_ordered("<", largest, ir.Constant(_DOUBLE, TILE_LIMIT))
            with b.if_then(b.not_(below)):
                b.ret(ir.Constant(_BIT, 0))
        with f.count(_word(0), rows) as j:
            level = f.at(levels, j)
            largest = b.load(f.at(folds, b.mul(j, _word(FOLDS + 1)), _word(FOLDS)))

            def too_low(level: Any = level, largest: Any = largest) -> Any:
                limit = b.load(f.at(limits, b.load(level), _word(-LEVEL_MIN)))
                return b.not_(b.fcmp_ordered("<", largest, limit))

            with f.loop(too_low):
                # A level that is too low invalidates this row's digits: go up and do it again.
                b.store(ir.Constant(_BIT, 0), settled)
                f.add(level, _word(1))
                digits = f.at(words, b.mul(j, _word(2 * FOLDS)))
                for k in reversed(range(2 * FOLDS)):
                    moved = b.load(f.at(digits, _word(k - 2))) if k > 1 else _word(0)
                    b.store(moved, f.at(digits, _word(k)))
    with f.count(_word(0), rows) as j:
        level = b.load(f.at(levels, j))
        for k in range(FOLDS):
            unit = f.at(units, b.shl(level, _word(1)), _word(2 * (_FIRST - k)))
            total = b.load(f.at(folds, b.mul(j, _word(FOLDS + 1)), _word(k)))
            total = b.fmul(total, b.load(unit))
            total = b.fmul(total, b.load(f.at(unit, _word(1))))
            whole = b.fptosi(total, _WORD)
            high = f.at(words, b.mul(j, _word(2 * FOLDS)), _word(2 * k))
            f.add(high, b.ashr(whole, _word(LOW_BITS)))
            f.add(f.at(high, _word(1)), b.and_(whole, _word((1 << LOW_BITS) - 1)))
    b.ret(ir.Constant(_BIT, 1))
    return f.function
