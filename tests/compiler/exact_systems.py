"""Exact solutions of small systems of equations, in rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Number = tuple[Fraction, Fraction]


def exact_inverse(matrix: Array) -> Array:
    """Inverse of a complex matrix, each element rounded once."""
    n = len(matrix)
    rows = [
        [_number(x) for x in row] + [_number(float(i == k)) for k in range(n)]
        for i, row in enumerate(matrix)
    ]
    for k in range(n):
        pivot = next(i for i in range(k, n) if any(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        scale = _reciprocal(rows[k][k])
        rows[k] = [_times(scale, x) for x in rows[k]]
        for i in range(n):
            if i != k:
                factor = rows[i][k]
                rows[i] = [
                    _minus(x, _times(factor, y)) for x, y in zip(rows[i], rows[k], strict=True)
                ]
    return np.array([[complex(float(x), float(y)) for x, y in row[n:]] for row in rows])


def _number(x: complex) -> Number:
    x = complex(x)
    return Fraction(x.real), Fraction(x.imag)


def _minus(a: Number, b: Number) -> Number:
    return a[0] - b[0], a[1] - b[1]


def _times(a: Number, b: Number) -> Number:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _reciprocal(a: Number) -> Number:
    square = a[0] * a[0] + a[1] * a[1]
    return a[0] / square, -a[1] / square
