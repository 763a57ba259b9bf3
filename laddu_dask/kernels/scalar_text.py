"""Parameter programs as LLVM assembly: scalar doubles, and no operation may be changed.

Sums, products, quotients, roots, comparisons and choices round alike in Python and in machine code.
Other functions come from the C library in Python, so programs with them stay there, and so do
branches, which are rare. `copysign` looks at the sign of a NaN, which no operation promises.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from laddu_dask.compiler.evaluator import Demands
from laddu_dask.compiler.ir import Instruction
from laddu_dask.compiler.precision import RANGES

_OPERATIONS = {
    "add": "fadd double {}, {}",
    "sub": "fsub double {}, {}",
    "mul": "fmul double {}, {}",
    "div": "fdiv double {}, {}",
    "neg": "fneg double {}",
    "sqrt": "call double @llvm.sqrt.f64(double {})",
    "abs": "call double @llvm.fabs.f64(double {})",
    "select": "select i1 {}, double {}, double {}",
    "lt": "fcmp olt double {}, {}",
    "le": "fcmp ole double {}, {}",
    "eq": "fcmp oeq double {}, {}",
    "and": "and i1 {}, {}",
    "or": "or i1 {}, {}",
    "not": "xor i1 {}, true",
}
#: Instructions of the largest program that becomes machine code; LLVM takes longer and longer.
_MOST = 10_000


def is_printable(instructions: Sequence[Instruction]) -> bool:
    """Whether a program has nothing but operations that are exactly those of Python."""
    known = _OPERATIONS.keys() | {"const", "parameter"}
    return len(instructions) <= _MOST and all(op in known for op, _, _ in instructions)


def scalar_text(
    instructions: Sequence[Instruction], outputs: Sequence[int], demands: Demands
) -> str:
    """Three functions of parameters, which write the values of the outputs behind ``values``.

    ``program(parameters, values)``; ``valid(parameters, values)``, which gives 1 if the demands are
    met, else 0; ``weighted(parameters, values, weights)``, which adds the two weighted sums to the
    values if they are, in the order of the outputs. See `laddu_dask.compiler.evaluator.Evaluator`.
    """
    count = len(outputs)
    smallest, largest = RANGES[demands.precision]
    nonnegative = [k for k, guard in enumerate(demands.guards) if guard == "nonnegative"]
    first_guard = count - len(demands.guards)
    flags = ", ".join(f"i1 {k - first_guard in nonnegative}".lower() for k in range(count))
    return "\n".join(
        [
            "declare double @llvm.sqrt.f64(double)",
            "declare double @llvm.fabs.f64(double)",
            f"@nonnegative = private constant [{count} x i1] [{flags}]",
            "define void @program(ptr %parameters, ptr %values) {",
            *_body(instructions, outputs),
            "  ret void",
            "}",
            _VALID.format(count=count, smallest=_number(smallest), largest=_number(largest)),
            _WEIGHTED.format(count=count, factors=first_guard),
        ]
    )


def _body(instructions: Sequence[Instruction], outputs: Sequence[int]) -> list[str]:
    lines = []
    names: list[str] = []
    for index, (op, args, payload) in enumerate(instructions):
        name = f"%x{index}"
        if op == "const":
            assert isinstance(payload, float)
            name = _number(payload)
        elif op == "parameter":
            lines.append(f"  %p{index} = getelementptr double, ptr %parameters, i64 {payload}")
            lines.append(f"  {name} = load double, ptr %p{index}")
        else:
            lines.append(f"  {name} = {_OPERATIONS[op].format(*(names[arg] for arg in args))}")
        names.append(name)
    for k, output in enumerate(outputs):
        lines.append(f"  %o{k} = getelementptr double, ptr %values, i64 {k}")
        lines.append(f"  store double {names[output]}, ptr %o{k}")
    return lines


def _number(value: float) -> str:
    """A literal by its bits."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return f"0x{bits:016X}"


_VALID = """
define i64 @valid(ptr %parameters, ptr %values) {{
entry:
  call void @program(ptr %parameters, ptr %values)
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %done = icmp eq i64 %k, {count}
  br i1 %done, label %yes, label %body
body:
  %place = getelementptr double, ptr %values, i64 %k
  %value = load double, ptr %place
  %modulus = call double @llvm.fabs.f64(double %value)
  %above = fcmp oge double %modulus, {smallest}
  %below = fcmp ole double %modulus, {largest}
  %between = and i1 %above, %below
  %zero = fcmp oeq double %value, 0.0
  %moderate = or i1 %between, %zero
  %positive = fcmp oge double %value, 0.0
  %flag = getelementptr [{count} x i1], ptr @nonnegative, i64 0, i64 %k
  %sign = load i1, ptr %flag
  %good = select i1 %sign, i1 %positive, i1 %moderate
  %next = add i64 %k, 1
  br i1 %good, label %head, label %no
yes:
  ret i64 1
no:
  ret i64 0
}}"""

_WEIGHTED = """
define i64 @weighted(ptr %parameters, ptr %values, ptr %weights) {{
entry:
  %good = call i64 @valid(ptr %parameters, ptr %values)
  %wanted = icmp eq i64 %good, 1
  br i1 %wanted, label %head, label %no
head:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %total = phi double [ 0.0, %entry ], [ %more, %body ]
  %size = phi double [ 0.0, %entry ], [ %larger, %body ]
  %done = icmp eq i64 %k, {factors}
  br i1 %done, label %yes, label %body
body:
  %place = getelementptr double, ptr %values, i64 %k
  %value = load double, ptr %place
  %slope_at = getelementptr double, ptr %weights, i64 %k
  %slope = load double, ptr %slope_at
  %modulus_at = getelementptr double, ptr %slope_at, i64 {factors}
  %modulus = load double, ptr %modulus_at
  %term = fmul double %value, %slope
  %more = fadd double %total, %term
  %absolute = call double @llvm.fabs.f64(double %value)
  %part = fmul double %absolute, %modulus
  %larger = fadd double %size, %part
  %next = add i64 %k, 1
  br label %head
yes:
  %total_at = getelementptr double, ptr %values, i64 {count}
  store double %total, ptr %total_at
  %size_at = getelementptr double, ptr %total_at, i64 1
  store double %size, ptr %size_at
  ret i64 1
no:
  ret i64 0
}}
"""
