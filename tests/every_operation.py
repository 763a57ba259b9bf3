"""A program with every function, and inputs that reach every region of them."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.compiler import KernelOptions, Precision, Program, compile_model


@functools.cache
def program(precision: Precision = "f64") -> Program:
    """Value and gradient; all functions, roots, divisions and branches."""
    x, y = ld.scalar("x"), ld.scalar("y")
    a, b = ld.parameter("a", initial=0.7), ld.parameter("b", initial=0.6)
    amplitude = ld.polar_complex(a, x * b) / (ld.complex(x - a, b * y).sqrt() + (y * a).exp() * b)
    angle = ld.atan2(a * y.sin(), (x * b).cos()) + (a * x).tan()
    growth = (a * x).tanh() + (b * y).sinh() / (1 + (b * y).cosh()) + abs(x - a) ** b
    model = ld.where(y < a, amplitude.norm_sqr() + growth, angle + 2 + (x**2 + b**2).log())
    options = KernelOptions(precision=precision)
    return compile_model(model, "linear", options=options).programs.gradient


def rows(which: Program, events: int = 2048) -> NDArray[np.float64]:
    """Inputs of which some are huge, tiny, infinite or not numbers."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(which.n_inputs, events)) * 3
    values[:, ::97] *= 1e7
    values[:, 5::101] *= 1e-310
    for place, special in enumerate((np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300)):
        values[:-1, 7 + 100 * place] = special
    return values
