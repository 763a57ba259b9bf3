"""Checks of what a formula is built from: angular-momentum labels and literal numbers."""

from __future__ import annotations

import numbers
from typing import Any

from laddu_dask.errors import ExpressionError


def twice(value: Any, name: str, operation: str) -> int:
    """Twice an angular momentum or projection, as an exact integer.

    Parameters
    ----------
    value
        Integer or half-integer: an int, a float, a `fractions.Fraction` or a NumPy number.
    name, operation
        For the error text: the argument and the function that takes it.

    Raises
    ------
    ExpressionError
        A real number that is neither an integer nor a half-integer.
    TypeError
        Not a real number (an `Expr` included: quantum numbers are fixed when a model is built).
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(
            f"{operation}: {name} must be a fixed integer or half-integer, "
            f"got {type(value).__name__} {value!r}"
        )
    doubled = 2 * float(value)
    if not doubled.is_integer():
        raise invalid(operation, f"{name} must be an integer or half-integer, got {value!r}")
    return int(doubled)


def integer(value: Any, name: str, operation: str) -> int:
    """An angular momentum or projection that must be a whole number."""
    doubled = twice(value, name, operation)
    if doubled % 2:
        raise invalid(operation, f"{name} must be a whole number, got {value!r}")
    return doubled // 2


def orbital(value: Any, operation: str, highest: int | None = None) -> int:
    """An orbital angular momentum ``l >= 0``, at most `highest` where a formula has an end."""
    l = integer(value, "l", operation)
    if l < 0 or (highest is not None and l > highest):
        limit = "l >= 0" if highest is None else f"0 <= l <= {highest}"
        raise invalid(operation, f"needs {limit}, got l = {l}")
    return l


def literal(value: Any) -> float | None:
    """The value of a real number, None for an expression, whose value is not known yet."""
    return float(value) if isinstance(value, numbers.Real) else None


def invalid(operation: str, problem: str) -> ExpressionError:
    """The error of a formula asked for outside its range."""
    return ExpressionError(f"{operation}: {problem}", operation=operation, shapes=[])
