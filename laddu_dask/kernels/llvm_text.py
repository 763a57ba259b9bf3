"""Operation lists as LLVM assembly: eight events per instruction, no flag on any operation.

The text is the kernel's source: LLVM makes machine code of it for one processor or another, and
splits vectors that are longer than its registers. No pass may change a rounding, since nothing
here allows one to.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence

from laddu_dask.kernels.accumulator import COMPENSATED, LANES
from laddu_dask.kernels.oplist import Call, Cold, Kind, Op, OpList, Value

DOUBLES = f"<{LANES} x double>"
FLOATS = f"<{LANES} x float>"
WORDS = f"<{LANES} x i64>"
BITS = f"<{LANES} x i1>"
MASK = f"i{LANES}"
_TYPES = {"d": DOUBLES, "f": FLOATS, "i": WORDS, "b": BITS}
_SCALARS = {"d": "double", "f": "float"}

#: Operations of a block. The time that LLVM takes for one grows faster than its length; in short
#: ones it cannot bring operations together that read the same.
_BLOCK = 4000

_LEAVES = frozenset({"input", "parameter", "weight", "argument"})
_BINARY = {
    "add": "fadd",
    "sub": "fsub",
    "mul": "fmul",
    "div": "fdiv",
    "iadd": "add",
    "isub": "sub",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "band": "and",
    "bor": "or",
    "bxor": "xor",
    "shl": "shl",
    "ashr": "ashr",
}
_COMPARE = {
    "lt": "fcmp olt",
    "le": "fcmp ole",
    "eq": "fcmp oeq",
    "unordered": "fcmp uno",
    "ilt": "icmp slt",
    "ile": "icmp sle",
    "ieq": "icmp eq",
}
_INTRINSIC = {"fma": "fma", "sqrt": "sqrt", "rint": "roundeven"}


def double(x: float) -> str:
    """A double literal by its bits."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"


class ModuleText:
    """Functions, tables and declarations of one module.

    Parameters
    ----------
    tuning
        Processor whose scheduling model is used, whatever the code is made for; see `Target`.

    Attributes
    ----------
    globals_, declarations
        Lines by name.
    functions
        Texts of whole functions by name, in order of definition.
    """

    def __init__(self, tuning: str = "") -> None:
        # LLVM does not align the stack for vectors that it puts there for want of registers unless
        # told to; each of them would lie in two cache lines.
        self._attributes = (
            'nounwind noinline alignstack=64 "prefer-vector-width"="512" '
            '"min-legal-vector-width"="512"' + (f' "tune-cpu"="{tuning}"' if tuning else "")
        )
        self.globals_: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self.functions: dict[str, str] = {}

    def __str__(self) -> str:
        parts = (self.globals_, self.declarations, self.functions)
        lines = [text for part in parts for text in part.values()]
        return "\n".join([*lines, f"attributes #0 = {{ {self._attributes} }}", ""])

    def intrinsic(self, name: str, kind: Kind, operands: int) -> str:
        """Name of a vector intrinsic, declared on first use."""
        full = f"@llvm.{name}.v{LANES}f{64 if kind == 'd' else 32}"
        if full in self.declarations:
            return full
        type_ = _TYPES[kind]
        self.declarations[full] = f"declare {type_} {full}({', '.join([type_] * operands)})"
        return full

    def table(self, name: str, entries: Sequence[float]) -> str:
        """Name of a constant table and its type, defined on first use."""
        kind = f"[{len(entries)} x double]"
        if name in self.globals_:
            return kind
        numbers = ", ".join(f"double {double(x)}" for x in entries)
        self.globals_[name] = f"@{name} = internal constant {kind} [{numbers}]"
        return kind


class Printer:
    """Appends operations to the lines of a function.

    Parameters
    ----------
    module
        Receives what the operations need outside the function.
    ops
        Owner of the operations.
    leaf
        Prints an input, weight or parameter: receives the printer and the operation, gives the
        operand.
    """

    def __init__(self, module: ModuleText, ops: OpList, leaf: Leaf) -> None:
        self.module, self.ops, self.leaf = module, ops, leaf
        self.lines: list[str] = []
        self.block = "entry"
        self.operands: dict[int, str] = {}
        self.types: dict[int, str] = {}
        self._leaves: dict[int, Op] = {}
        self._names = 0

    def operand(self, index: int) -> str:
        """A value; one that lies in memory is fetched once in each block that needs it."""
        found = self.operands.get(index)
        if found is None:
            found = self.operands[index] = self.leaf(self, self._leaves[index])
        return found

    def name(self) -> str:
        """A new local name."""
        self._names += 1
        return f"%t{self._names}"

    def line(self, text: str) -> str:
        """Append an instruction whose result gets a new name."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")
        self.block = name

    def new_block(self) -> None:
        """End a block where it is long enough; LLVM would join them again without a condition."""
        name = "next" + self.name().removeprefix("%t")
        self.lines.append(f"  br i1 %never, label %nothing, label %{name}")
        self.label(name)
        for index in self._leaves:
            self.operands.pop(index, None)

    def load(self, pointer: str, offset: str, kind: Kind = "d") -> str:
        """Vector at an element offset; only element alignment is assumed."""
        place = self.line(f"getelementptr {_SCALARS[kind]}, ptr {pointer}, i64 {offset}")
        return self.line(f"load {_TYPES[kind]}, ptr {place}, align {8 if kind == 'd' else 4}")

    def store(self, value: str, pointer: str, offset: str) -> None:
        """Store a vector at an element offset."""
        place = self.line(f"getelementptr double, ptr {pointer}, i64 {offset}")
        self.lines.append(f"  store {DOUBLES} {value}, ptr {place}, align 8")

    def splat(self, scalar: str, kind: Kind) -> str:
        """A vector with the scalar in every lane."""
        vector = _TYPES[kind]
        first = self.line(f"insertelement {vector} poison, {_SCALARS[kind]} {scalar}, i64 0")
        return self.line(
            f"shufflevector {vector} {first}, {vector} poison, <{LANES} x i32> zeroinitializer"
        )

    def run(self, body: Sequence[Op]) -> None:
        """Print operations in order."""
        for op in body:
            if isinstance(op.data, Cold):
                self._cold(op.data)
            elif isinstance(op.data, Call):
                self._call(op.data, [self.operand(arg) for arg in op.args])
            else:
                self.types[op.index] = _TYPES[op.kind]
                if op.name in _LEAVES:
                    self._leaves[op.index] = op
                else:
                    self.operands[op.index] = self._print(op)

    def _print(self, op: Op) -> str:
        name = op.name
        if name == "const":
            assert isinstance(op.data, int)
            return f"splat ({_SCALARS[op.kind]} 0x{op.data & (1 << 64) - 1:016X})"
        if name == "iconst":
            return f"splat (i64 {op.data})"
        args = [self.operand(arg) for arg in op.args]
        if name in _BINARY:
            return self.line(f"{_BINARY[name]} {_TYPES[op.kind]} {args[0]}, {args[1]}")
        if name in _COMPARE:
            return self.line(f"{_COMPARE[name]} {self.types[op.args[0]]} {args[0]}, {args[1]}")
        if name in _INTRINSIC:
            function = self.module.intrinsic(_INTRINSIC[name], op.kind, len(args))
            kind = _TYPES[op.kind]
            listed = ", ".join(f"{kind} {arg}" for arg in args)
            return self.line(f"call {kind} {function}({listed})")
        if name == "neg":
            return self.line(f"fneg {_TYPES[op.kind]} {args[0]}")
        if name == "widen":
            return self.line(f"fpext {FLOATS} {args[0]} to {DOUBLES}")
        if name == "narrow":
            return self.line(f"fptrunc {DOUBLES} {args[0]} to {FLOATS}")
        if name == "bnot":
            return self.line(f"xor {BITS} {args[0]}, splat (i1 true)")
        if name == "d2i":
            return self.line(f"bitcast {DOUBLES} {args[0]} to {WORDS}")
        if name == "i2d":
            return self.line(f"bitcast {WORDS} {args[0]} to {DOUBLES}")
        if name == "select":
            kind = _TYPES[op.kind]
            return self.line(f"select {BITS} {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
        assert name == "gather"
        return self._gather(str(op.data), args[0])

    def _gather(self, name: str, index: str) -> str:
        kind = self.module.table(name, self.ops.tables[name])
        result = "poison"
        for lane in range(LANES):
            position = self.line(f"extractelement {WORDS} {index}, i64 {lane}")
            place = self.line(f"getelementptr {kind}, ptr @{name}, i64 0, i64 {position}")
            entry = self.line(f"load double, ptr {place}, align 8")
            result = self.line(f"insertelement {DOUBLES} {result}, double {entry}, i64 {lane}")
        return result

    def _cold(self, region: Cold) -> None:
        """Branch to a call: the region is long, rarely needed, and often repeated."""
        condition = self.operand(region.condition)
        outside = _read_from_outside(region)
        args = ", ".join(f"{self.types[index]} {self.operand(index)}" for index in outside)
        fast = [f"{self.types[index]} {self.operand(index)}" for index in region.fast]
        mask = self.line(f"bitcast {BITS} {condition} to {MASK}")
        wanted = self.line(f"icmp ne {MASK} {mask}, 0")
        before, number = self.block, self.name().removeprefix("%t")
        self.lines.append(f"  br i1 {wanted}, label %cold{number}, label %join{number}")
        self.label(f"cold{number}")
        function, result = self._region_function(region, outside)
        packed = self.line(f"call {result} @{function}({args})")
        merged = []
        for k, value in enumerate(fast):
            kind = self.types[region.fast[k]]
            slow = self.line(f"extractvalue {result} {packed}, {k}")
            merged.append(self.line(f"select {BITS} {condition}, {kind} {slow}, {value}"))
        self.lines.append(f"  br label %join{number}")
        self.label(f"join{number}")
        for index, of, value in zip(region.results, region.fast, merged, strict=True):
            kind = self.types[index] = self.types[of]
            known = self.operand(of)
            self.operands[index] = self.line(
                f"phi {kind} [ {known}, %{before} ], [ {value}, %cold{number} ]"
            )

    def _call(self, call: Call, operands: Sequence[str]) -> None:
        function = self.ops.functions[call.function]
        result = "{ " + ", ".join([DOUBLES] * len(function.results)) + " }"
        name = f"function_{call.function}"
        if name not in self.module.functions:
            inner = Printer(self.module, self.ops, lambda _, op: f"%a{op.data}")
            inner.run(function.body)
            inner.give(result, function.results)
            args, body = (
                ", ".join(f"{DOUBLES} %a{k}" for k in range(function.arguments)),
                "\n".join(inner.lines),
            )
            self.module.functions[name] = (
                f"define internal {result} @{name}({args}) #0 {{\nentry:\n{body}\n}}\n"
            )
        args = ", ".join(f"{DOUBLES} {operand}" for operand in operands)
        packed = self.line(f"call {result} @{name}({args})")
        for k, index in enumerate(call.results):
            self.operands[index] = self.line(f"extractvalue {result} {packed}, {k}")
            self.types[index] = DOUBLES

    def give(self, result: str, values: Sequence[int]) -> None:
        """Return from a function with several values."""
        packed = "poison"
        for k, index in enumerate(values):
            value = f"{self.types[index]} {self.operand(index)}"
            packed = self.line(f"insertvalue {result} {packed}, {value}, {k}")
        self.lines.append(f"  ret {result} {packed}")

    def _region_function(self, region: Cold, outside: Sequence[int]) -> tuple[str, str]:
        """A function of the region's own, shared by regions that are equal but for numbering."""
        number = {index: k for k, index in enumerate(outside)}
        for op in region.body:
            for index in op.defined:
                number[index] = len(number)
        result = "{ " + ", ".join(self.types[fast] for fast in region.fast) + " }"
        printer = Printer(self.module, self.ops, self.leaf)
        for k, index in enumerate(outside):
            printer.operands[index], printer.types[index] = f"%a{k}", self.types[index]
        printer.run(region.body)
        printer.give(result, region.slow)
        args = ", ".join(f"{self.types[index]} %a{k}" for k, index in enumerate(outside))
        body = "\n".join(printer.lines)
        name = "cold_" + hashlib.blake2b((args + body).encode(), digest_size=16).hexdigest()
        self.module.functions.setdefault(
            name, f"define internal {result} @{name}({args}) #0 {{\nentry:\n{body}\n}}\n"
        )
        return name, result


Leaf = Callable[[Printer, Op], str]


def _read_from_outside(region: Cold) -> list[int]:
    """Values that a region reads and does not define, in order of first use."""
    inside: set[int] = set()
    read: dict[int, None] = {}
    for op in region.body:
        if isinstance(op.data, Cold):
            read |= dict.fromkeys((op.data.condition, *_read_from_outside(op.data), *op.data.fast))
        else:
            read |= dict.fromkeys(op.args)
        inside.update(op.defined)
    read |= dict.fromkeys(region.slow)
    return [index for index in read if index not in inside]


def event_function(
    module: ModuleText, name: str, ops: OpList, outputs: Sequence[Value], *, reduce: bool
) -> None:
    """Define ``f(inputs, stride, step, weights, mask, parameters, start, stop, out, out_stride)``.

    Row j of the vector that begins with event i is at ``inputs[j * stride + i / LANES * step]``, of
    floats or doubles as the program reads them; its weights are at ``weights[i & mask]``. ``start``
    and ``stop - start`` are multiples of `LANES`, the latter positive. Output row j of event i goes
    to ``out[j * out_stride + i - start]``. With `reduce` its sum over the events of lane k goes to
    ``out[j * out_stride + k]``, and the rounding errors of the sums of the first `COMPENSATED` rows
    follow at ``LANES + k``.
    """

    def leaf(printer: Printer, op: Op) -> str:
        if op.name == "weight":
            return printer.load("%weights", printer.line("and i64 %event, %mask"))
        if op.name == "parameter":
            place = printer.line(f"getelementptr double, ptr %parameters, i64 {op.data}")
            scalar = printer.line(f"load double, ptr {place}, align 8")
            if op.kind == "f":
                scalar = printer.line(f"fptrunc double {scalar} to float")
            return printer.splat(scalar, op.kind)
        row = printer.line(f"mul i64 %stride, {op.data}")
        return printer.load("%in", printer.line(f"add i64 {row}, %vector"), op.kind)

    long = len(ops.body) >= _BLOCK
    p = Printer(module, ops, leaf)
    rows: dict[int, list[int]] = {}
    for row, value in enumerate(outputs):
        rows.setdefault(value.index, []).append(row)
    sums = _Sums(p) if reduce else None
    p.lines.append("  br label %loop")
    p.label("loop")
    head = len(p.lines)
    p.lines.append(f"  %number = sdiv exact i64 %event, {LANES}")
    p.lines.append("  %vector = mul i64 %number, %step")
    p.lines.append("  %first = sub i64 %event, %start")
    for count, op in enumerate(ops.body):
        if count % _BLOCK == _BLOCK - 1:
            p.new_block()
        p.run([op])
        for index in op.defined:
            for row in rows.get(index, ()):
                if sums is None:
                    p.store(p.operand(index), "%out", p.line(f"add i64 {_row(p, row)}, %first"))
                else:
                    sums.add(row, p.operand(index))
    following = p.line(f"add i64 %event, {LANES}")
    p.lines[head:head] = [
        f"  %event = phi i64 [ %start, %entry ], [ {following}, %{p.block} ]",
        *(sums.phis() if sums else ()),
    ]
    more = p.line(f"icmp slt i64 {following}, %stop")
    p.lines.append(f"  br i1 {more}, label %loop, label %done")
    p.label("done")
    if sums is not None:
        sums.store()
    p.lines.append("  ret void")
    if long:
        p.lines.append("nothing:\n  ret void")
        p.lines.insert(0, "  %never = icmp slt i64 %stop, 0")
    body = "\n".join(p.lines)
    module.functions[name] = (
        f"define void @{name}(ptr %in, i64 %stride, i64 %step, ptr %weights, i64 %mask, "
        f"ptr %parameters, i64 %start, i64 %stop, ptr noalias %out, i64 %out_stride) #0 "
        f"{{\nentry:\n{body}\n}}\n"
    )


def _row(p: Printer, row: int) -> str:
    return p.line(f"mul i64 %out_stride, {row}")


class _Sums:
    """Lane sums of the output rows over the steps of a loop, and what is lost in the first ones."""

    def __init__(self, printer: Printer) -> None:
        self._p = printer
        self._new: dict[str, str] = {}

    def add(self, row: int, x: str) -> None:
        """A value of this step."""
        old = f"%sum{row}"
        new = self._new[old] = self._p.line(f"fadd {DOUBLES} {old}, {x}")
        if row < COMPENSATED:
            self._new[f"%lost{row}"] = self._add_error(f"%lost{row}", old, x, new)

    def _add_error(self, lost: str, old: str, x: str, new: str) -> str:
        """TwoSum (Knuth)."""
        p = self._p
        part = p.line(f"fsub {DOUBLES} {new}, {old}")
        rest = p.line(f"fsub {DOUBLES} {new}, {part}")
        first = p.line(f"fsub {DOUBLES} {old}, {rest}")
        second = p.line(f"fsub {DOUBLES} {x}, {part}")
        error = p.line(f"fadd {DOUBLES} {first}, {second}")
        return p.line(f"fadd {DOUBLES} {lost}, {error}")

    def phis(self) -> list[str]:
        """Instructions for the head of the loop."""
        return [
            f"  {old} = phi {DOUBLES} [ zeroinitializer, %entry ], [ {new}, %{self._p.block} ]"
            for old, new in self._new.items()
        ]

    def store(self) -> None:
        """Behind the loop."""
        for old, new in self._new.items():
            kind, row = old[1:4], int(old.lstrip("%sumlot"))
            place = _row(self._p, row)
            if kind == "los":
                place = self._p.line(f"add i64 {place}, {LANES}")
            self._p.store(new, "%out", place)
