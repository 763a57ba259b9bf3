"""Byte counts: the 64-bit ceiling they saturate at and the text people read."""

from __future__ import annotations

import operator
from typing import Final

from laddu_dask.errors import MemoryBudgetError

MAX_BYTES: Final = 2**64 - 1
"""Largest byte or event count; arithmetic beyond it stays here and also stands for "unknown"."""

_BINARY_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def saturate(value: int) -> int:
    """Return `value`, or 2**64 - 1 if it is larger (Python integers do not overflow)."""
    return min(value, MAX_BYTES)


def whole_number(value: int, what: str, *, least: int = 0) -> int:
    """Return `value` as an int of at least `least`.

    Raises
    ------
    MemoryBudgetError
        If it is a bool, not an integer, or too small; the text calls it `what`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise MemoryBudgetError(
            f"{what} is {value!r}; give a whole number of at least {least}",
            resource=what,
            requested=value,
            remaining=None,
        )
    return number


def format_bytes(count: int) -> str:
    """Return a byte count for reading: `format_bytes(1536) == "1.5 KiB"`."""
    if count >= MAX_BYTES:
        return "more than 16 EiB"
    exponent = min((max(count, 1).bit_length() - 1) // 10, len(_BINARY_UNITS) - 1)
    if exponent == 0:
        return f"{count} B"
    size = f"{count / 1024**exponent:.1f}"
    if size == "1024.0" and exponent + 1 < len(_BINARY_UNITS):  # rounded up into the next unit
        size, exponent = "1.0", exponent + 1
    return f"{size} {_BINARY_UNITS[exponent]}"


def bytes_of(resource: str) -> str:
    """What bytes of a resource are called after their number: ``of host memory``, ``on disk``."""
    return "on disk" if resource == "disk" else f"of {resource} memory"


def exact_bytes(count: int) -> str:
    """Return a byte count for an error message: readable size and the exact number."""
    return f"{count} bytes" if count < 1024 else f"{count} bytes ({format_bytes(count)})"
