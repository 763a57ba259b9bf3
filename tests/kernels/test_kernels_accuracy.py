"""Accuracy of every vector function over ten million points, and independence of the position.

The reference is the long double of the platform with its 64-bit significand. The worst points it
finds, and special ones, are judged again in multiprecision, so that no verdict rests on it alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf
from numpy.typing import NDArray
from test_kernels_elementary import SPECIAL, reference, run

import laddu_dask as ld
from laddu_dask.compiler import compile_model
from laddu_dask.kernels import get_backend, padded
from laddu_dask.kernels.accumulator import TILE

Array = NDArray[Any]

POINTS = 10_000_000
CHUNK = 1 << 18
#: Worst points of each function that multiprecision judges.
JUDGED = 40
#: Bounds in units in the last place. Those of asin, acos and atan, which are compositions of atan2,
#: a square root and a product, add up one rounding each.
BOUNDS = dict.fromkeys(
    ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt", "hypot", "pow"), 1.0
) | {"atan2": 2.0, "atan": 2.0, "asin": 3.0, "acos": 3.0}
TWO = frozenset({"atan2", "hypot", "pow"})
COMPOSED = frozenset({"asin", "acos", "atan"})
EXTENDED = np.finfo(np.longdouble).nmant >= 63

Sampler = Callable[[np.random.Generator, int], tuple[Array, ...]]


def any_bits(rng: np.random.Generator, n: int) -> Array:
    return rng.integers(0, 2**64, size=n, dtype=np.uint64).view(np.float64)


def uniform(limit: float) -> Sampler:
    return lambda rng, n: (rng.uniform(-limit, limit, n),)


def everywhere(rng: np.random.Generator, n: int) -> tuple[Array]:
    return (any_bits(rng, n),)


def all_sizes(low: int, high: int) -> Sampler:
    """Binary exponents from `low` to `high`, evenly, with both signs."""
    return lambda rng, n: (
        np.ldexp(rng.uniform(1, 2, n), rng.integers(low, high + 1, n)) * rng.choice([-1, 1], n),
    )


def close_to(*centres: float) -> Sampler:
    """Around points, at distances of all sizes down to a last bit."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Array]:
        return (
            rng.choice(centres, n) * (1 + rng.choice([-1, 1], n) * 2.0 ** rng.uniform(-53, -1, n)),
        )

    return draw


def positive(sampler: Sampler) -> Sampler:
    return lambda rng, n: tuple(np.abs(part) for part in sampler(rng, n))


def pairs(*samplers: Sampler) -> Sampler:
    return lambda rng, n: tuple(part for sampler in samplers for part in sampler(rng, n))


def powers(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Bases of all sizes, exponents for which the result spreads over all exponents."""
    x = np.ldexp(rng.uniform(1, 2, n), rng.integers(-1074, 1024, n))
    return x * rng.choice([-1, 1], n), rng.uniform(-745, 745, n) / np.log(x)


def near_one(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Bases next to one, whose logarithm must have more digits than a double."""
    x = 1 + rng.choice([-1, 1], n) * 2.0 ** rng.uniform(-52, -2, n)
    return x, rng.uniform(-700, 700, n) / np.log(x)


_SIZES = all_sizes(-1074, 1023)
_ANGLES = [uniform(4.0), uniform(1e5), uniform(2e5), uniform(1e15), _SIZES, everywhere]
_HYPERBOLIC = [uniform(0.6), uniform(5.0), uniform(712.0), all_sizes(-60, 9), _SIZES, everywhere]
_UNIT = [uniform(1.0), close_to(1.0, -1.0), close_to(0.5, -0.5), all_sizes(-1074, -1), everywhere]
SAMPLES: dict[str, list[Sampler]] = {
    "exp": [uniform(1.0), uniform(30.0), uniform(746.0), all_sizes(-60, 9), _SIZES, everywhere],
    "log": [positive(uniform(2.0)), close_to(1.0), positive(_SIZES), close_to(2**0.5, 0.5**0.5),
            everywhere],
    "sin": _ANGLES,
    "cos": _ANGLES,
    "tan": _ANGLES,
    "sinh": _HYPERBOLIC,
    "cosh": _HYPERBOLIC,
    "tanh": _HYPERBOLIC,
    "sqrt": [positive(uniform(2.0)), positive(_SIZES), everywhere],
    "atan": [uniform(1.0), uniform(10.0), close_to(1.0, -1.0, 2**0.5 - 1), _SIZES, everywhere],
    "asin": _UNIT,
    "acos": _UNIT,
    "atan2": [
        pairs(uniform(1.0), uniform(1.0)),
        pairs(all_sizes(-60, 60), all_sizes(-60, 60)),
        pairs(_SIZES, _SIZES),
        pairs(everywhere, everywhere),
        pairs(close_to(1.0, -1.0), close_to(1.0, -1.0)),
    ],
    "hypot": [
        pairs(uniform(1.0), uniform(1.0)),
        pairs(all_sizes(-520, -480), all_sizes(-520, -480)),
        pairs(all_sizes(480, 520), all_sizes(480, 520)),
        pairs(_SIZES, _SIZES),
        pairs(everywhere, everywhere),
    ],
    "pow": [
        pairs(positive(uniform(4.0)), uniform(3.0)),
        pairs(positive(uniform(2.0)), uniform(100.0)),
        powers,
        near_one,
        pairs(everywhere, everywhere),
    ],
}  # fmt: skip


def compute(function: str, *arguments: Array) -> Array:
    """The compiled function; those that the language composes go through the language."""
    if function not in COMPOSED:
        return run(function, *arguments)
    program = compile_model(getattr(ld.scalar("x"), function)(), "complex").programs.prepare
    rows = np.zeros((1, padded(arguments[0].size)))
    rows[0, : arguments[0].size] = arguments[0]
    out = np.empty((program.n_outputs, rows.shape[1]))
    get_backend("cpu").compile(program).map(rows, np.empty(0), out)
    return out[0, : arguments[0].size]


def truth(function: str, *arguments: Array) -> Array:
    """In extended precision. asin and acos clamp beyond one."""
    if function in {"asin", "acos"}:
        arguments = (np.clip(arguments[0], -1, 1),)
    name = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}.get(function, function)
    return reference(name, *arguments)


def errors(found: Array, exact: Array) -> Array:
    """In units in the last place of the rounded result; infinite where a special value differs."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float64)
        unit = np.spacing(np.minimum(np.abs(rounded), np.finfo(float).max))
        error = np.abs(found - exact).astype(np.float64) / unit
        same = (found == rounded) & (np.signbit(found) == np.signbit(rounded))
        special = ~np.isfinite(rounded) | ~np.isfinite(found) | (rounded == 0)
        # One step beyond the largest double is infinity: either may be within the bound.
        edge = np.isinf(found) != np.isinf(rounded)
        edge &= np.minimum(np.abs(found), np.abs(rounded)) == np.finfo(float).max
        # Nor is one step from the smallest to zero a special value.
        edge |= (rounded == 0) & (exact != 0) & (np.abs(found) <= 5e-324)
        error[special] = np.inf
        error[special & (same | (np.isnan(found) & np.isnan(rounded)))] = 0.0
        error[special & edge & ~same] = 1.0
    return error


def judged(function: str, *arguments: float) -> mpf:
    """The value in multiprecision."""
    x = [mpf(a) for a in arguments]
    if function == "pow":
        return mp.power(abs(x[0]), x[1])
    return getattr(mp, {"exp": "exp", "log": "log"}.get(function, function))(*x)


def parts(function: str) -> Iterator[tuple[Array, ...]]:
    """Arguments in chunks, ten million in all."""
    rng = np.random.default_rng(sum(map(ord, function)))
    samplers = SAMPLES[function]
    for sampler in samplers:
        left = -(-POINTS // len(samplers))
        while left:
            size = min(left, CHUNK)
            yield sampler(rng, size)
            left -= size


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not EXTENDED, reason="the platform's long double is no wider than a double")
@pytest.mark.parametrize("function", sorted(SAMPLES))
def test_ten_million_points(function: str) -> None:
    """OP-04: one unit in the last place, two for angles, over the whole range of doubles."""
    worst: list[tuple[float, tuple[float, ...]]] = []
    checked = 0
    for arguments in parts(function):
        error = errors(compute(function, *arguments), truth(function, *arguments))
        places = np.argpartition(error, -8)[-8:]
        worst += [(float(error[i]), tuple(float(a[i]) for a in arguments)) for i in places]
        worst = sorted(worst, reverse=True)[:JUDGED]
        checked += error.size
    assert checked >= POINTS
    assert worst[0][0] <= BOUNDS[function], [
        (error, [a.hex() for a in arguments]) for error, arguments in worst[:5]
    ]
    with mp.workprec(2200):
        for error, arguments in worst:
            if not np.isfinite(arguments).all() or error in {0.0, 1.0}:
                continue
            value = float(compute(function, *(np.array([a]) for a in arguments))[0])
            if function in {"asin", "acos"} and abs(arguments[0]) > 1:
                continue
            exact = judged(function, *arguments)
            unit = mpf(math.ulp(float(exact)))
            assert abs(mpf(value) - exact) / unit <= BOUNDS[function], arguments


@pytest.mark.parametrize("function", sorted(SAMPLES))
def test_special_points_in_multiprecision(function: str) -> None:
    """Numbers at both ends of the range, next to them, and next to where reductions switch."""
    ends = SPECIAL[np.isfinite(SPECIAL)]
    turns = [1e5, 745.2, 709.79, 0.5, 22.0, 2**0.5, 2**0.5 - 1, np.pi / 2, np.pi, 355.0, 2.0**53]
    x = np.concatenate([ends, turns, np.negative(turns)])
    with np.errstate(over="ignore"):
        x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf)])
    x = x[np.isfinite(x)]
    if function in TWO:
        y = [grid.ravel() for grid in np.meshgrid(x, x[::3])]
        arguments: tuple[Array, ...] = (y[0], y[1])
    else:
        arguments = (x,)
    found = compute(function, *arguments)
    compared = 0
    with mp.workprec(400):
        for value, *at in zip(found.tolist(), *(a.tolist() for a in arguments), strict=True):
            if function in {"log", "sqrt"} and at[0] <= 0:
                continue
            if function in {"asin", "acos"} and abs(at[0]) > 1:
                continue
            if function == "pow" and (at[0] == 0 or abs(at[1] * math.log(abs(at[0]))) > 1e4):
                continue
            if function in {"exp", "sinh", "cosh"} and abs(at[0]) > 1e4:
                continue
            if function == "atan2" and at[0] == 0:
                continue  # the sign of zero decides; see the tests of special values
            exact = judged(function, *at)
            if abs(exact) > mpf(np.finfo(float).max):
                assert np.isinf(value) or abs(value) == np.finfo(float).max, at
                continue
            unit = mpf(math.ulp(float(exact)))
            assert abs(mpf(value) - exact) / unit <= BOUNDS[function], (at, value)
            compared += 1
    assert compared > 30


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("function", sorted(SAMPLES))
def test_same_bits_at_every_position_and_length(function: str, backend: str) -> None:
    """The value of an event depends on nothing but the event: DK-15."""
    x = ld.scalar("x")
    y = ld.scalar("y")
    if function in {"hypot", "pow", "atan2"}:
        expr = {
            "hypot": abs(ld.complex(x, y)), "pow": abs(x) ** y, "atan2": ld.atan2(x, y)
        }[function]  # fmt: skip
    else:
        expr = getattr(x, function)()
    program = compile_model(expr, "complex").programs.prepare
    kernel = get_backend(backend).compile(program)
    rng = np.random.default_rng(3)
    events = np.empty((program.n_inputs, TILE))
    events[:] = rng.normal(size=events.shape) * 3
    # Lanes that take slow roads, and values that are special.
    events[:, 5::29] *= 1e6
    events[:, 7::31] = rng.choice(SPECIAL, size=events[:, 7::31].shape)

    def rows(inputs: Array) -> Array:
        filled = np.full((inputs.shape[0], padded(inputs.shape[1])), 0.5)
        filled[:, : inputs.shape[1]] = inputs
        out = np.empty((program.n_outputs, filled.shape[1]))
        kernel.map(np.ascontiguousarray(filled), np.empty(0), out)
        return out[:, : inputs.shape[1]].view(np.uint64)

    expected = rows(events)
    for shift in (*range(1, 40), 511, 512, 1000, TILE - 1):
        np.testing.assert_array_equal(
            rows(np.roll(events, shift, axis=1)), np.roll(expected, shift, 1)
        )
    for length in (*range(1, 40), 63, 64, 65, 127, 1000, TILE - 1):
        np.testing.assert_array_equal(rows(events[:, :length]), expected[:, :length])
    long = rows(np.tile(events, (1, 3))[:, : 2 * TILE + 17])
    np.testing.assert_array_equal(long, np.tile(expected, (1, 3))[:, : 2 * TILE + 17])
