"""SymPy's functions by name, each as a function of our expressions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from laddu_dask.expr import Expr, atan2, maximum, minimum
from laddu_dask.physics import WignerD, spherical_harmonic


def arc_cosine(x: Expr) -> Expr:
    """Of a real expression an angle, clamped beyond +-1; of a complex one the principal value."""
    return x.acos() if x.is_real else math.pi / 2 - x.asin()


def _logarithm(x: Expr, base: Expr | None = None) -> Expr:
    return x.log() if base is None else x.log() / base.log()


#: Functions whose arguments are all expressions.
FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "exp": Expr.exp,
    "log": _logarithm,
    "sin": Expr.sin,
    "cos": Expr.cos,
    "tan": Expr.tan,
    "cot": lambda x: x.cos() / x.sin(),
    "sec": lambda x: 1 / x.cos(),
    "csc": lambda x: 1 / x.sin(),
    "sinh": Expr.sinh,
    "cosh": Expr.cosh,
    "tanh": Expr.tanh,
    "asin": Expr.asin,
    "acos": arc_cosine,
    "atan": Expr.atan,
    "atan2": atan2,
    "Abs": abs,
    "re": Expr.real,
    "im": Expr.imag,
    "conjugate": Expr.conj,
    "arg": lambda z: atan2(z.imag(), z.real()),
    "Max": lambda *args: functools.reduce(maximum, args),
    "Min": lambda *args: functools.reduce(minimum, args),
}


def _wigner(labels: list[Any], alpha: Expr, beta: Expr, gamma: Expr) -> Expr:
    return WignerD(*labels).D(alpha=alpha, beta=beta, gamma=gamma)


def _harmonic(labels: list[Any], theta: Expr, phi: Expr) -> Expr:
    return spherical_harmonic(*labels, costheta=theta.cos(), phi=phi)


#: Functions whose first arguments are labels: how many, and what is made of them and of the angles.
LABELLED: dict[str, tuple[int, Callable[..., Expr]]] = {
    "WignerD": (3, _wigner),
    "Ynm": (2, _harmonic),
}
