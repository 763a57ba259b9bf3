"""LLVM functions with loops, written in Python: for the code that surrounds kernels.

Such code is made with LLVM's passes on (see `laddu_dask.kernels.native.assemble`), which turn
variables in memory into registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import llvmlite.ir as ir
import numpy as np

from laddu_dask.kernels.accumulator import LANES

VOID, BIT, WORD, DOUBLE = ir.VoidType(), ir.IntType(1), ir.IntType(64), ir.DoubleType()
NUMBERS, WORDS = DOUBLE.as_pointer(), WORD.as_pointer()
VECTOR, VECTOR_WORD = ir.VectorType(DOUBLE, LANES), ir.VectorType(WORD, LANES)

#: Kernels: inputs, stride, step, weights, mask, parameters, start, stop, outputs, stride of these.
KERNEL = ir.FunctionType(
    VOID, [NUMBERS, WORD, WORD, NUMBERS, WORD, NUMBERS, WORD, WORD, NUMBERS, WORD]
)
#: Of every function: wide registers are used, and no loop becomes a call of a library.
_ATTRIBUTES = ('"prefer-vector-width"="512"', '"min-legal-vector-width"="512"', '"no-builtins"')


def word(x: int) -> Any:
    """A constant integer."""
    return ir.Constant(WORD, x)


def lanes_of(x: int) -> Any:
    """A constant vector of one integer."""
    return ir.Constant(VECTOR_WORD, [x] * LANES)


def every_lane(b: Any, scalar: Any) -> Any:
    """A vector of one number."""
    first = b.insert_element(ir.Constant(VECTOR, ir.Undefined), scalar, word(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return b.shuffle_vector(first, first, lanes)


class Function:
    """LLVM's builder `b` of a function, with variables, counted loops and constant tables."""

    def __init__(self, module: Any, name: str, result: Any, arguments: Sequence[Any]) -> None:
        self.function = ir.Function(module, ir.FunctionType(result, arguments), name)
        for text in _ATTRIBUTES:
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
            self.add(place, word(step))

    def table(self, name: str, numbers: Any) -> Any:
        """Pointer to a constant table of doubles."""
        flat = [float(x) for x in np.ravel(numbers)]
        kind = ir.ArrayType(DOUBLE, len(flat))
        table = ir.GlobalVariable(self.b.module, kind, name)
        table.global_constant, table.linkage = True, "internal"
        table.initializer = ir.Constant(kind, flat)
        return self.b.gep(table, [word(0), word(0)])
