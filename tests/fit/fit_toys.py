"""Objectives in closed form whose minimum and errors are known, for the tests of the fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laddu_dask.errors import EvaluationError

F64 = NDArray[np.float64]
Bounds = tuple[float | None, float | None] | None
Function = Callable[[F64], tuple[float, F64]]


@dataclass(frozen=True)
class Spec:
    name: str
    initial: float = 0.0
    bounds: Bounds = None
    scale: float | None = None
    periodic: bool = False
    unit: str | None = None
    latex: str | None = None


class Toy:
    """An objective made of a function, counting its passes."""

    def __init__(
        self, function: Function, specs: Sequence[Spec], fixed: Sequence[Spec] = ()
    ) -> None:
        self.function = function
        self.parameters = (*fixed, *specs)
        self.parameter_names = tuple(spec.name for spec in specs)
        self.default_parameters = np.array([spec.initial for spec in specs])
        self.value_passes = 0
        self.gradient_passes = 0
        self.points: list[tuple[float, ...]] = []

    def value(self, p: F64) -> float:
        self.value_passes += 1
        self.points.append(tuple(p))
        return self.function(p)[0]

    def value_and_gradient(self, p: F64) -> tuple[float, F64]:
        self.gradient_passes += 1
        self.points.append(tuple(p))
        return self.function(p)


def quadratic(minimum: Sequence[float], hessian: F64, floor: float = 0.0) -> Function:
    """A parabola of known minimum and Hessian."""
    centre = np.array(minimum)

    def function(p: F64) -> tuple[float, F64]:
        d = p - centre
        return floor + float(d @ hessian @ d) / 2, hessian @ d

    return function


def rosenbrock(p: F64) -> tuple[float, F64]:
    """The curved valley, minimum 0 at (1, 1) with Hessian [[802, -400], [-400, 200]]."""
    x, y = p
    value = 100 * (y - x * x) ** 2 + (1 - x) ** 2
    return value, np.array([-400 * x * (y - x * x) - 2 * (1 - x), 200 * (y - x * x)])


def lattice(n: int, prime: float = 2.0) -> F64:
    """Points that fill [0, 1) evenly, shape (n,)."""
    return np.asarray(np.modf((1.0 + np.arange(n)) * np.sqrt(prime))[0])


@dataclass(frozen=True)
class Line:
    """The likelihood of I = 1 + s x, data x with weights w, accepted MC y with weights v."""

    x: F64
    w: F64
    y: F64
    v: F64

    def nll(self, p: F64) -> tuple[float, F64]:
        """-2 ln L normalised by the Monte Carlo sum."""
        s = p[0]
        intensity = _positive(1 + s * self.x)
        total, slope = self.v @ (1 + s * self.y), self.v @ self.y
        n = self.w.sum()
        value = 2 * (n * np.log(total) - self.w @ np.log(intensity))
        return float(value), np.array([2 * (n * slope / total - self.w @ (self.x / intensity))])

    def extended(self, p: F64) -> tuple[float, F64]:
        """Extended -2 ln L."""
        s = p[0]
        intensity = _positive(1 + s * self.x)
        value = 2 * (self.v @ (1 + s * self.y) - self.w @ np.log(intensity))
        return float(value), np.array([2 * (self.v @ self.y - self.w @ (self.x / intensity))])

    def nll_hessian(self, s: float) -> float:
        """Second derivative of `nll`."""
        total, slope = self.v @ (1 + s * self.y), self.v @ self.y
        ratio = self.x / (1 + s * self.x)
        return float(2 * (self.w @ ratio**2 - self.w.sum() * (slope / total) ** 2))


def line_sample(slope: float, n: int) -> Line:
    """Data drawn from 1 + slope x on [0, 1] by inverting the distribution function, even MC."""
    u = lattice(n)
    x = (np.sqrt(1 + u * slope * (2 + slope)) - 1) / slope
    y = lattice(4 * n, 3.0)
    return Line(x, np.ones_like(x), y, np.ones_like(y))


_X = lattice(1000)
_RATE = 500.0


def scale_only(p: F64) -> tuple[float, F64]:
    """Extended -2 ln L of I = a (1 + x): no value for a <= 0, minimum a = 2, sigma a/sqrt(1000)."""
    a = p[0]
    intensity = _positive(a * (1 + _X))
    value = 2 * (_RATE * a - np.log(intensity).sum())
    return float(value), np.array([2 * (_RATE - len(_X) / a)])


def sum_only(p: F64) -> tuple[float, F64]:
    """Extended -2 ln L of I = (a + b) x, flat along a - b; a + b = 2 at the minimum."""
    s = p[0] + p[1]
    intensity = _positive(s * _X)
    slope = 2 * (_RATE - len(_X) / s)
    return float(2 * (_RATE * s - np.log(intensity).sum())), np.array([slope, slope])


def sum_normalised(p: F64) -> tuple[float, F64]:
    """Normalised -2 ln L of I = (a + b) x, which depends on neither."""
    s = p[0] + p[1]
    intensity = _positive(s * _X)
    n, total = len(_X), s * _RATE
    slope = 2 * (n * _RATE / total - (_X / intensity).sum())
    value = 2 * (n * np.log(total) - np.log(intensity).sum())
    return float(value), np.array([slope, slope])


def _positive(intensity: F64) -> F64:
    bad = np.flatnonzero(~(intensity > 0))
    if len(bad):
        event = int(bad[0])
        raise EvaluationError(
            f"term nll: data intensity of event {event} is {intensity[event]:g}, not positive",
            event=event,
            value=float(intensity[event]),
        )
    return intensity
