"""What a form of a model costs per event, to rank forms; not a prediction of time."""

from __future__ import annotations

from laddu_dask.compiler.event_programs import EventPrograms
from laddu_dask.compiler.ir import CONDITIONS
from laddu_dask.compiler.precision import BYTES

#: Nanoseconds per load of a cached column in a kernel; see `laddu_dask.compiler.columns`.
LOAD = 0.6
#: Nanoseconds per byte of cached columns, streamed from memory.
_BYTE = 0.055
#: Nanoseconds per operation in eight-lane code; elementary functions by their own measurements.
OPERATION = {
    "add": 0.06,
    "sub": 0.06,
    "mul": 0.06,
    "select": 0.06,
    "neg": 0.03,
    "abs": 0.03,
    "copysign": 0.06,
    **dict.fromkeys(CONDITIONS, 0.06),
    "div": 0.5,
    "sqrt": 0.5,
    "exp": 0.8,
    "log": 1.1,
    "sin": 1.3,
    "cos": 1.3,
    "tan": 1.8,
    "sinh": 1.8,
    "cosh": 1.8,
    "tanh": 2.5,
    "atan2": 2.3,
    "hypot": 1.0,
    "pow": 3.0,
}


def cost(programs: EventPrograms) -> float:
    """Estimated nanoseconds per event of value and gradient."""
    operations = sum(OPERATION.get(op, 0.0) for op, _, _ in programs.gradient.instructions)
    read = BYTES[programs.precision] * programs.n_cached + BYTES["f64"]  # the weight is a double
    return _BYTE * read + operations
