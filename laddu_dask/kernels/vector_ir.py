"""Operation lists as vector LLVM IR: eight events per instruction, no flag on any operation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ir

from laddu_dask.kernels.accumulator import COMPENSATED, LANES
from laddu_dask.kernels.oplist import Cold, Op, OpList, Value

DOUBLE, WORD, INDEX = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(DOUBLE, LANES)
VECTOR_WORD = ir.VectorType(WORD, LANES)
_MASK = ir.IntType(LANES)

_BINARY = {
    "add": "fadd",
    "sub": "fsub",
    "mul": "fmul",
    "div": "fdiv",
    "iadd": "add",
    "isub": "sub",
    "and": "and_",
    "or": "or_",
    "xor": "xor",
    "band": "and_",
    "bor": "or_",
    "bxor": "xor",
    "shl": "shl",
    "ashr": "ashr",
}
_COMPARE = {"lt": "<", "le": "<=", "eq": "=="}


def splat(builder: Any, scalar: Any, kind: Any) -> Any:
    """A vector with the scalar in every lane."""
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(INDEX, 0))
    zeros = ir.Constant(ir.VectorType(INDEX, LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, zeros)


def load(builder: Any, pointer: Any, offset: Any) -> Any:
    """Vector at an element offset; only element alignment is assumed."""
    place = builder.bitcast(builder.gep(pointer, [offset]), VECTOR.as_pointer())
    value = builder.load(place)
    value.align = 8
    return value


def store(builder: Any, value: Any, pointer: Any, offset: Any) -> None:
    """Store a vector at an element offset."""
    place = builder.bitcast(builder.gep(pointer, [offset]), VECTOR.as_pointer())
    builder.store(value, place).align = 8


def intrinsic(module: Any, name: str, result: Any, args: Sequence[Any]) -> Any:
    """An LLVM intrinsic, declared by its mangled name."""
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, args), name)


class Printer:
    """Appends operations to an LLVM builder."""

    def __init__(self, builder: Any, ops: OpList, leaf: Callable[[Op], Any]) -> None:
        self.builder, self.ops, self.leaf = builder, ops, leaf
        self.values: dict[int, Any] = {}

    def run(self, body: Sequence[Op]) -> None:
        """Print operations in order."""
        for op in body:
            if isinstance(op.data, Cold):
                self._cold(op.data)
            else:
                self.values[op.index] = self._print(op)

    def __getitem__(self, value: Value) -> Any:
        return self.values[value.index]

    def _print(self, op: Op) -> Any:
        b, name = self.builder, op.name
        args = [self.values[arg] for arg in op.args]
        if name in {"input", "parameter"}:
            return self.leaf(op)
        if name == "const":
            return b.bitcast(ir.Constant(VECTOR_WORD, [op.data] * LANES), VECTOR)
        if name == "iconst":
            return ir.Constant(VECTOR_WORD, [op.data] * LANES)
        if name in _BINARY:
            return getattr(b, _BINARY[name])(*args)
        if name in _COMPARE:
            return b.fcmp_ordered(_COMPARE[name], *args)
        if name.startswith("i") and name[1:] in _COMPARE:
            return b.icmp_signed(_COMPARE[name[1:]], *args)
        return getattr(self, f"_{name}")(op, *args)

    def _call(self, name: str, args: Sequence[Any]) -> Any:
        full = f"llvm.{name}.v{LANES}f64"
        function = intrinsic(self.builder.module, full, VECTOR, [VECTOR] * len(args))
        return self.builder.call(function, args)

    def _fma(self, _: Op, *args: Any) -> Any:
        return self._call("fma", args)

    def _sqrt(self, _: Op, x: Any) -> Any:
        return self._call("sqrt", [x])

    def _rint(self, _: Op, x: Any) -> Any:
        return self._call("roundeven", [x])

    def _neg(self, _: Op, x: Any) -> Any:
        return self.builder.fneg(x)

    def _bnot(self, _: Op, x: Any) -> Any:
        return self.builder.not_(x)

    def _unordered(self, _: Op, x: Any, y: Any) -> Any:
        return self.builder.fcmp_unordered("uno", x, y)

    def _d2i(self, _: Op, x: Any) -> Any:
        return self.builder.bitcast(x, VECTOR_WORD)

    def _i2d(self, _: Op, x: Any) -> Any:
        return self.builder.bitcast(x, VECTOR)

    def _select(self, _: Op, condition: Any, x: Any, y: Any) -> Any:
        return self.builder.select(condition, x, y)

    def _gather(self, op: Op, index: Any) -> Any:
        b, name = self.builder, f"laddu_dask_{op.data}"
        entries = self.ops.tables[str(op.data)]
        kind = ir.ArrayType(DOUBLE, len(entries))
        table = b.module.globals.get(name)
        if table is None:
            table = ir.GlobalVariable(b.module, kind, name)
            table.global_constant = True
            table.linkage = "internal"
            table.initializer = ir.Constant(kind, list(entries))
        result = ir.Constant(VECTOR, ir.Undefined)
        for lane in range(LANES):
            position = ir.Constant(INDEX, lane)
            place = b.gep(table, [ir.Constant(WORD, 0), b.extract_element(index, position)])
            result = b.insert_element(result, b.load(place), position)
        return result

    def _cold(self, region: Cold) -> None:
        """Branch to a call: the region is long, rarely needed, and often repeated."""
        b = self.builder
        mask = b.bitcast(self.values[region.condition], _MASK)
        wanted = b.icmp_unsigned("!=", mask, ir.Constant(_MASK, 0))
        before = b.block
        body, after = b.append_basic_block("cold"), b.append_basic_block("join")
        b.cbranch(wanted, body, after)
        b.position_at_end(body)
        outside = _read_from_outside(region)
        function = self._region_function(region, outside)
        packed = b.call(function, [self.values[index] for index in outside])
        condition = self.values[region.condition]
        merged = [
            b.select(condition, b.extract_value(packed, k), self.values[fast])
            for k, fast in enumerate(region.fast)
        ]
        b.branch(after)
        b.position_at_end(after)
        for result, fast, value in zip(region.results, region.fast, merged, strict=True):
            phi = b.phi(VECTOR)
            phi.add_incoming(self.values[fast], before)
            phi.add_incoming(value, body)
            self.values[result] = phi

    def _region_function(self, region: Cold, outside: Sequence[int]) -> Any:
        """A function of the region's own, shared by regions that are equal but for numbering."""
        number = {index: k for k, index in enumerate(outside)}
        for op in region.body:
            number[op.index] = len(number)
        text = repr(
            (
                [(op.name, [number[arg] for arg in op.args], op.data) for op in region.body],
                [number[index] for index in region.slow],
                [str(self.values[index].type) for index in outside],
            )
        )
        name = "laddu_dask_cold_" + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        module = self.builder.module
        known = module.globals.get(name)
        if known is not None:
            return known
        result = ir.LiteralStructType([VECTOR] * len(region.slow))
        kinds = [self.values[index].type for index in outside]
        function = _new_function(module, name, kinds, result)
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        printer = Printer(builder, self.ops, self.leaf)
        printer.values.update(zip(outside, function.args, strict=True))
        printer.run(region.body)
        packed = ir.Constant(result, ir.Undefined)
        for k, index in enumerate(region.slow):
            packed = builder.insert_value(packed, printer.values[index], k)
        builder.ret(packed)
        return function


def _read_from_outside(region: Cold) -> list[int]:
    """Values that a region reads and does not define, in order of first use."""
    inside = {op.index for op in region.body}
    read = [arg for op in region.body for arg in op.args]
    return list(dict.fromkeys(arg for arg in (*read, *region.slow) if arg not in inside))


def _new_function(module: Any, name: str, args: Sequence[Any], result: Any | None = None) -> Any:
    kind = ir.FunctionType(ir.VoidType() if result is None else result, args)
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("nounwind")
    function.attributes.add("noinline")
    for text in ('"prefer-vector-width"="512"', '"min-legal-vector-width"="512"'):
        # llvmlite knows no string attributes; without these LLVM halves the vectors
        function.attributes._known = function.attributes._known | {text}
        function.attributes.add(text)
    return function


def event_function(
    module: Any, name: str, ops: OpList, outputs: Sequence[Value], *, reduce: bool
) -> Any:
    """``f(inputs, input_stride, parameters, start, stop, out, out_stride)``.

    Row j, event i of the inputs is at ``inputs[j * input_stride + i]``; ``stop - start`` is a
    multiple of `LANES`. Output row j of event i goes to ``out[j * out_stride + i - start]``. With
    `reduce` its sum over the events of lane k goes to ``out[j * out_stride + k]``, and the rounding
    errors of the sums of the first `COMPENSATED` rows follow at ``LANES + k``; there must be events
    then.
    """
    pointer = DOUBLE.as_pointer()
    function = _new_function(module, name, [pointer, WORD, pointer, WORD, WORD, pointer, WORD])
    source, stride, parameters, start, stop, out, out_stride = function.args
    for argument in (source, parameters, out):
        argument.add_attribute("noalias")
    entry, loop, done = (function.append_basic_block(x) for x in ("entry", "loop", "done"))
    b = ir.IRBuilder(entry)
    scalars = {
        op.index: splat(b, b.load(b.gep(parameters, [ir.Constant(WORD, op.data)])), VECTOR)
        for op in ops.body
        if op.name == "parameter"
    }
    if reduce:
        b.branch(loop)
    else:
        b.cbranch(b.icmp_signed("<", start, stop), loop, done)
    b.position_at_end(loop)
    event = b.phi(WORD)
    event.add_incoming(start, entry)
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    sums = [b.phi(VECTOR) for _ in outputs] if reduce else []
    errors = [b.phi(VECTOR) for _ in sums[:COMPENSATED]]
    for phi in (*sums, *errors):
        phi.add_incoming(zero, entry)

    def leaf(op: Op) -> Any:
        if op.name == "parameter":
            return scalars[op.index]
        return load(b, source, b.add(b.mul(stride, ir.Constant(WORD, op.data)), event))

    printer = Printer(b, ops, leaf)
    printer.run(ops.body)
    results = [printer[value] for value in outputs]
    lost = [
        b.fadd(error, _rounding_error(b, total, x))
        for total, error, x in zip(sums, errors, results, strict=False)
    ]
    if reduce:
        results = [b.fadd(total, x) for total, x in zip(sums, results, strict=True)]
        for phi, new in zip((*sums, *errors), (*results, *lost), strict=True):
            phi.add_incoming(new, b.block)
    else:
        _store_rows(b, results, out, out_stride, b.sub(event, start))
    following = b.add(event, ir.Constant(WORD, LANES))
    event.add_incoming(following, b.block)
    b.cbranch(b.icmp_signed("<", following, stop), loop, done)
    b.position_at_end(done)
    if reduce:
        _store_rows(b, results, out, out_stride, ir.Constant(WORD, 0))
        _store_rows(b, lost, out, out_stride, ir.Constant(WORD, LANES))
    b.ret_void()
    return function


def _rounding_error(builder: Any, total: Any, x: Any) -> Any:
    """What is lost in ``total + x`` (Knuth); nothing here may be reassociated or contracted."""
    new = builder.fadd(total, x)
    part = builder.fsub(new, total)
    return builder.fadd(builder.fsub(total, builder.fsub(new, part)), builder.fsub(x, part))


def _store_rows(builder: Any, values: Sequence[Any], out: Any, stride: Any, column: Any) -> None:
    for row, value in enumerate(values):
        place = builder.add(builder.mul(stride, ir.Constant(WORD, row)), column)
        store(builder, value, out, place)


def fold_function(module: Any, name: str, folds: int) -> Any:
    """``f(values, count, magic, out)``: digit sums and the largest modulus of a row.

    ``out`` receives `folds` sums, each an exact multiple of its unit, then the largest ``|v|`` by
    its bits, so that infinities and NaN show as the largest. `count` is a multiple of `LANES` and
    at most 1024, which keeps every lane sum exact.
    """
    pointer = DOUBLE.as_pointer()
    function = _new_function(module, name, [pointer, WORD, pointer, pointer])
    values, count, magic, out = function.args
    entry, loop, done = (function.append_basic_block(x) for x in ("entry", "loop", "done"))
    b = ir.IRBuilder(entry)
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    constants = [
        splat(b, b.load(b.gep(magic, [ir.Constant(WORD, k)])), VECTOR) for k in range(folds)
    ]
    b.branch(loop)
    b.position_at_end(loop)
    position = b.phi(WORD)
    position.add_incoming(ir.Constant(WORD, 0), entry)
    sums = [b.phi(VECTOR) for _ in range(folds)]
    largest = b.phi(VECTOR_WORD)
    for phi in sums:
        phi.add_incoming(zero, entry)
    largest.add_incoming(ir.Constant(VECTOR_WORD, [0] * LANES), entry)
    rest = load(b, values, position)
    magnitude = b.and_(
        b.bitcast(rest, VECTOR_WORD), ir.Constant(VECTOR_WORD, [0x7FFFFFFFFFFFFFFF] * LANES)
    )
    top = b.select(b.icmp_signed(">", magnitude, largest), magnitude, largest)
    totals = []
    for k in range(folds):
        digit = b.fsub(b.fadd(rest, constants[k]), constants[k])
        totals.append(b.fadd(sums[k], digit))
        rest = b.fsub(rest, digit)
    following = b.add(position, ir.Constant(WORD, LANES))
    position.add_incoming(following, loop)
    for phi, total in zip(sums, totals, strict=True):
        phi.add_incoming(total, loop)
    largest.add_incoming(top, loop)
    b.cbranch(b.icmp_signed("<", following, count), loop, done)
    b.position_at_end(done)
    add = intrinsic(b.module, f"llvm.vector.reduce.fadd.v{LANES}f64", DOUBLE, [DOUBLE, VECTOR])
    biggest = intrinsic(b.module, f"llvm.vector.reduce.smax.v{LANES}i64", WORD, [VECTOR_WORD])
    for k, total in enumerate(totals):
        sum_ = b.call(add, [ir.Constant(DOUBLE, 0.0), total])
        b.store(sum_, b.gep(out, [ir.Constant(WORD, k)]))
    modulus = b.bitcast(b.call(biggest, [top]), DOUBLE)
    b.store(modulus, b.gep(out, [ir.Constant(WORD, folds)]))
    b.ret_void()
    return function
