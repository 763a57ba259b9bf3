"""Preparing events block by block, as LLVM IR that is written once for all programs.

A block of events is gathered, goes through the kernel, is asked about and put where it stays. It
never leaves the cache of a core in between: reading the events and writing what becomes of them is
all that memory sees. In Python terms::

    while True:
        step = min(block - filled, count)
        for k in range(inputs):
            room[k, filled : filled + step] = sources[k][offset : offset + step]
        filled, offset, count = filled + step, offset + step, count - step
        if filled == block or (last and filled):
            room[:, filled:whole] = room[:, filled - 1]
            kernel(room, ..., rows)
            for question in questions:
                answers[question] |= question.answer(rows)
            target[:, position : position + whole] = rows[:kept]
            position, filled = position + filled, 0
        if not count:
            break

where `whole` is `filled`, rounded up to whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import llvmlite.ir as ir

from laddu_dask.compiler.questions import KINDS, Kind
from laddu_dask.kernels.accumulator import LANES
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

#: Bits of a double without its sign, and of infinity.
_MODULUS, _INFINITY = 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000
#: Fields of a frame, all integers of 64 bits, and what they are: addresses; numbers of elements
#: from one row (column) to the next, or from one vector of events to the next; and numbers of
#: things. `single`: the target has floats. `filled` and `position` change.
FRAME = (
    "kernel",
    "parameters",
    "weights",
    "mask",
    "inputs",
    "room",
    "room_stride",
    "rows",
    "rows_stride",
    "kept",
    "target",
    "target_stride",
    "target_step",
    "single",
    "block",
    "questions",
    "question_count",
    "answers",
    "filled",
    "position",
)
#: Words of a question: kind, row, other row, and two doubles by their bits. Of an extreme number
#: the first of these is less by one, but not negative.
QUESTION_WORDS = 5

_BITS = ir.VectorType(BIT, LANES)
_FLOATS = ir.VectorType(ir.FloatType(), LANES)


def preparer_text() -> str:
    """LLVM assembly of the function ``prepare``.

    ``void prepare(frame, sources, offset, count, last)`` takes `count` events from `offset` on from
    the columns that begin at `sources`; `last` says whether a block that is not full is prepared
    too, after no events in the end.
    """
    module = ir.Module()
    gather, pad, ask, put = _gather(module), _pad(module), _ask(module), _put(module)
    f = Function(module, "prepare", VOID, [WORDS, WORDS, WORD, WORD, WORD])
    frame, sources, first, total, last = f.function.args
    b = f.b

    def place(name: str) -> Any:
        return f.at(frame, word(FRAME.index(name)))

    def get(name: str, kind: Any = WORD) -> Any:
        found = b.load(place(name))
        return found if kind is WORD else b.inttoptr(found, kind)

    inputs, block, rows_stride = get("inputs"), get("block"), get("rows_stride")
    room, room_stride, rows = get("room", NUMBERS), get("room_stride"), get("rows", NUMBERS)
    offset, count, begun = f.variable(first), f.variable(total), f.variable(ir.Constant(BIT, 1))
    with f.loop(lambda: b.load(begun)):
        filled, left = get("filled"), b.load(count)
        space = b.sub(block, filled)
        step = b.select(b.icmp_signed("<", space, left), space, left)
        with b.if_then(b.icmp_signed(">", step, word(0))):  # else there may be no sources
            b.call(gather, [sources, inputs, b.load(offset), step, room, room_stride, filled])
        filled, left = b.add(filled, step), b.sub(left, step)
        f.add(offset, step)
        b.store(left, count)
        b.store(filled, place("filled"))
        is_last = b.and_(b.icmp_signed("!=", last, word(0)), b.icmp_signed("==", left, word(0)))
        is_last = b.and_(is_last, b.icmp_signed(">", filled, word(0)))
        with b.if_then(b.or_(b.icmp_signed("==", filled, block), is_last)):
            whole = b.and_(b.add(filled, word(LANES - 1)), word(-LANES))
            b.call(pad, [room, room_stride, inputs, filled, whole])
            b.call(
                get("kernel", KERNEL.as_pointer()),
                [
                    *(room, room_stride, word(LANES), get("weights", NUMBERS), get("mask")),
                    *(get("parameters", NUMBERS), word(0), whole, rows, rows_stride),
                ],
            )
            asked = get("questions", WORDS), get("question_count"), get("answers", WORDS)
            b.call(ask, [rows, rows_stride, whole, *asked])
            where = [get("target"), get("target_stride"), get("target_step"), get("position")]
            b.call(put, [rows, rows_stride, get("kept"), whole, get("single"), *where])
            f.add(place("position"), filled)
            b.store(word(0), place("filled"))
        b.store(b.icmp_signed(">", left, word(0)), begun)
    b.ret_void()
    return str(module)


def _vector(f: Function, place: Any, *terms: Any) -> Any:
    """The vector of doubles at a place, wherever it begins."""
    found = f.b.load(f.b.bitcast(f.at(place, *terms), VECTOR.as_pointer()))
    found.align = 8
    return found


def _store(f: Function, vector: Any, place: Any) -> None:
    stored = f.b.store(vector, f.b.bitcast(place, vector.type.as_pointer()))
    stored.align = 8 if vector.type == VECTOR else 4


def _gather(module: Any) -> Any:
    """``room[k, filled : filled + step] = sources[k][offset : offset + step]`` for all columns."""
    arguments = [WORDS, WORD, WORD, WORD, NUMBERS, WORD, WORD]
    f = Function(module, "gather", VOID, arguments)
    f.function.linkage = "internal"
    sources, inputs, offset, step, room, stride, filled = f.function.args
    b = f.b
    vectors = b.and_(step, word(-LANES))
    with f.count(word(0), inputs) as k:
        source = f.at(b.inttoptr(b.load(f.at(sources, k)), NUMBERS), offset)
        target = f.at(room, b.mul(k, stride), filled)
        with f.count(word(0), vectors, LANES) as event:
            _store(f, _vector(f, source, event), f.at(target, event))
        with f.count(vectors, step) as event:
            b.store(b.load(f.at(source, event)), f.at(target, event))
    b.ret_void()
    return f.function


def _pad(module: Any) -> Any:
    """Fill the last vector up with the last event."""
    f = Function(module, "pad", VOID, [NUMBERS, WORD, WORD, WORD, WORD])
    f.function.linkage = "internal"
    room, stride, inputs, filled, whole = f.function.args
    b = f.b
    with f.count(word(0), inputs) as k:
        row = f.at(room, b.mul(k, stride))
        number = b.load(f.at(row, b.sub(filled, word(1))))
        with f.count(filled, whole) as event:
            b.store(number, f.at(row, event))
    b.ret_void()
    return f.function


def _ask(module: Any) -> Any:
    """``answers[q] |= answer`` for all questions; padding repeats an event and changes nothing."""
    f = Function(module, "ask", VOID, [NUMBERS, WORD, WORD, WORDS, WORD, WORDS])
    f.function.linkage = "internal"
    rows, stride, events, questions, count, answers = f.function.args
    b = f.b
    any_lane = ir.Function(
        module, ir.FunctionType(BIT, [_BITS]), f"llvm.vector.reduce.or.v{LANES}i1"
    )
    modulus = ir.Function(module, ir.FunctionType(VECTOR, [VECTOR]), f"llvm.fabs.v{LANES}f64")
    nothing = ir.Constant(_BITS, [0] * LANES)
    zero = ir.Constant(VECTOR, [0.0] * LANES)

    def differs(x: Any, y: Any) -> Any:
        both = b.and_(b.fcmp_unordered("uno", x, x), b.fcmp_unordered("uno", y, y))
        return b.and_(b.fcmp_unordered("!=", x, y), b.not_(both))

    def is_extreme(x: Any, low: Any, high: Any) -> Any:
        # As integers moduli have the order of the numbers. Less one, that of zero is the largest,
        # so both kinds of extreme numbers are a range each: two comparisons instead of four.
        low, high = (b.bitcast(limit, VECTOR_WORD) for limit in (low, high))
        less = b.sub(b.and_(b.bitcast(x, VECTOR_WORD), lanes_of(_MODULUS)), lanes_of(1))
        small = b.icmp_unsigned("<", less, low)
        width = b.sub(lanes_of(_INFINITY - 1), high)
        return b.or_(small, b.icmp_unsigned("<", b.sub(less, high), width))

    #: Values, those of the other row, and both limits -> answers by lane, the first bit first.
    found: dict[Kind, Callable[[Any, Any, Any, Any], tuple[Any, ...]]] = {
        "large": lambda x, y, low, high: (b.fcmp_unordered(">", b.call(modulus, [x]), high),),
        "sign": lambda x, y, low, high: (
            b.fcmp_ordered(">=", x, zero),
            b.fcmp_ordered("<", x, zero),
        ),
        "differs": lambda x, y, low, high: (b.fcmp_unordered("!=", x, low),),
        "unequal": lambda x, y, low, high: (differs(x, y),),
        "unopposite": lambda x, y, low, high: (differs(x, b.fneg(y)),),
        "extreme": lambda x, y, low, high: (is_extreme(x, low, high),),
    }
    with f.count(word(0), count) as number:
        words = f.at(questions, b.mul(number, word(QUESTION_WORDS)))
        kind, row, other, *limits = (b.load(f.at(words, word(n))) for n in range(QUESTION_WORDS))
        low, high = (every_lane(b, b.bitcast(limit, DOUBLE)) for limit in limits)
        values, others = (f.at(rows, b.mul(n, stride)) for n in (row, other))
        answer = f.at(answers, number)
        for code, name in enumerate(KINDS):
            with b.if_then(b.icmp_signed("==", kind, word(code))):
                bits = [f.variable(nothing) for _ in range(2)]
                with f.count(word(0), events, LANES) as event:
                    pair = _vector(f, values, event), _vector(f, others, event)
                    for bit, lanes in zip(bits, found[name](*pair, low, high), strict=False):
                        b.store(b.or_(b.load(bit), lanes), bit)
                for n, bit in enumerate(bits):
                    lane = b.zext(b.call(any_lane, [b.load(bit)]), WORD)
                    b.store(b.or_(b.load(answer), b.shl(lane, word(n))), answer)
    b.ret_void()
    return f.function


def _put(module: Any) -> Any:
    """Copy rows to columns by rows or by vectors, of doubles or of floats."""
    f = Function(module, "put", VOID, [NUMBERS, WORD, WORD, WORD, WORD, WORD, WORD, WORD, WORD])
    f.function.linkage = "internal"
    rows, stride, kept, events, single, target, column_stride, step, position = f.function.args
    b = f.b
    first = b.mul(b.sdiv(position, word(LANES)), step)

    def copy(number: Any, numbers: Any) -> None:
        base = f.at(b.inttoptr(target, number.as_pointer()), first)

        def one(k: Any, event: Any) -> None:
            vector = _vector(f, rows, b.mul(k, stride), event)
            if numbers != VECTOR:
                vector = b.fptrunc(vector, numbers)
            vectors = b.mul(b.sdiv(event, word(LANES)), step)
            _store(f, vector, f.at(base, vectors, b.mul(k, column_stride)))

        by_vectors = b.icmp_signed("==", column_stride, word(LANES))
        with b.if_else(by_vectors) as (vectors_of_columns, columns_of_vectors):
            vectors = partial(f.count, word(0), events, LANES)
            columns = partial(f.count, word(0), kept)
            with vectors_of_columns, vectors() as event, columns() as k:
                one(k, event)
            with columns_of_vectors, columns() as k, vectors() as event:
                one(k, event)

    with b.if_else(b.icmp_signed("!=", single, word(0))) as (floats, doubles):
        with floats:
            copy(ir.FloatType(), _FLOATS)
        with doubles:
            copy(DOUBLE, VECTOR)
    b.ret_void()
    return f.function
