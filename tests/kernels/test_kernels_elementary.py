"""Elementary functions of the compiled kernels against extended precision.

Errors are in units in the last place of the double result. The reference is the long double of the
platform; where that is no better than a double, its own last bit is granted. Arguments near
multiples of pi/2 are checked in exact integer arithmetic instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from laddu_dask.compiler import Program
from laddu_dask.kernels import get_backend, padded

Array = NDArray[Any]

FUNCTIONS = ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "atan2")
#: Bounds in units in the last place. atan2 has the larger one near the ends of the exponent range.
ORDINARY = dict.fromkeys(FUNCTIONS, 0.8) | {"tan": 1.0, "atan2": 0.71, "hypot": 1.0, "pow": 0.8}
EVERYWHERE = ORDINARY | {"atan2": 1.5}
REFERENCE_ERROR = float(np.finfo(np.longdouble).eps / np.finfo(np.float64).eps)
N = 1 << 16


def program(function: str) -> Program:
    arity = 2 if function in {"atan2", "hypot", "pow"} else 1
    inputs = tuple(("input", (), str(i)) for i in range(arity))
    instructions = (*inputs, (function, tuple(range(arity)), None))
    return Program(instructions, arity, 0, (arity,))  # type: ignore[arg-type]


def run(function: str, *arguments: Array, backend: str = "cpu") -> Array:
    size = arguments[0].size
    rows = np.zeros((len(arguments), padded(size)))
    rows[:, :size] = arguments
    out = np.empty((1, rows.shape[1]))
    get_backend(backend).compile(program(function)).map(rows, np.empty(0), out)
    return out[0, :size]


def reference(function: str, *arguments: Array) -> Array:
    name = {"atan2": "arctan2", "pow": "power"}.get(function, function)
    with np.errstate(all="ignore"):
        if function == "pow":  # of the modulus
            arguments = np.abs(arguments[0]), arguments[1]
        return np.asarray(getattr(np, name)(*(a.astype(np.longdouble) for a in arguments)))


def check(function: str, bound: float, *arguments: Array) -> None:
    found, exact = run(function, *arguments), reference(function, *arguments)
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float64)
        special = ~np.isfinite(rounded) | ~np.isfinite(found) | (rounded == 0)
        unit = np.spacing(np.abs(rounded)).astype(np.longdouble)
        error = np.abs(found.astype(np.longdouble) - exact) / unit
    error[special] = 0
    worst = int(np.argmax(error))
    assert error[worst] <= bound + REFERENCE_ERROR, [a[worst].hex() for a in arguments]
    # Overflow may fall to either side by the error of the function; zeros and NaN may not.
    edge = special & (np.abs(exact) < 1.7976931348623155e308)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    same = special & ~edge
    np.testing.assert_array_equal(found[same], rounded[same])
    np.testing.assert_array_equal(
        np.signbit(found[rounded == 0]), np.signbit(rounded[rounded == 0])
    )
    tiny = special & edge & (np.abs(found) > 5e-324)
    assert not tiny.any()


def generator() -> np.random.Generator:
    return np.random.default_rng(20240607)


def raw_bits(n: int) -> Array:
    """Any 64-bit pattern: all exponents, infinities, NaN of both signs with any payload."""
    return generator().integers(0, 2**64, size=n, dtype=np.uint64).view(np.float64)


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [
        ("exp", -1, 1),
        ("exp", -30, 30),
        ("exp", -708, 709),
        ("exp", -745, -708),
        ("log", 0, 2),
        ("log", 0.9, 1.1),
        ("log", 0, 1e6),
        ("sin", -4, 4),
        ("cos", -4, 4),
        ("sin", -1e5, 1e5),
        ("cos", -1e5, 1e5),
        ("sin", 9e4, 1.2e5),
        ("cos", 9e4, 1.2e5),
        ("sin", -1e12, 1e12),
        ("cos", -1e12, 1e12),
        *(("tan", -limit, limit) for limit in (1, 4, 1e5, 1.2e5, 1e12)),
        *((name, -limit, limit) for name in ("sinh", "cosh", "tanh") for limit in (0.5, 3, 711)),
    ],
)
def test_ordinary_domain(function: str, low: float, high: float) -> None:
    check(function, ORDINARY[function], generator().uniform(low, high, N))


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_ordinary_angles(scale: float) -> None:
    y, x = generator().normal(size=(2, N))
    check("atan2", ORDINARY["atan2"], y * scale, x)


@pytest.mark.parametrize("function", FUNCTIONS[:-1])
def test_any_bits(function: str) -> None:
    check(function, EVERYWHERE[function], raw_bits(N))


@pytest.mark.parametrize("function", FUNCTIONS[:-1])
def test_all_exponents(function: str) -> None:
    rng = generator()
    x = np.ldexp(rng.uniform(1, 2, N), rng.integers(-1074, 1024, N))
    check(function, EVERYWHERE[function], x if function == "log" else x * rng.choice([-1, 1], N))


def test_any_bits_of_angles() -> None:
    bits = raw_bits(2 * N)
    check("atan2", EVERYWHERE["atan2"], bits[:N], bits[N:])
    # Random exponents are far apart; here the quotient is of order one.
    with np.errstate(all="ignore"):
        near = bits[:N] * generator().uniform(0.1, 10, N)
    check("atan2", EVERYWHERE["atan2"], bits[:N], near)


@pytest.mark.parametrize("scale", [1.0, 1e-160, 1e160, 1e-300, 1e300, 1e-310])
def test_modulus_of_a_pair(scale: float) -> None:
    """No square leaves the range."""
    x, y = generator().normal(size=(2, N)) * scale
    check("hypot", ORDINARY["hypot"], x, y)


def test_any_bits_of_a_modulus() -> None:
    bits = raw_bits(2 * N)
    check("hypot", ORDINARY["hypot"], bits[:N], bits[N:])


@pytest.mark.parametrize(
    ("low", "high", "exponent"),
    [(0, 4, 3), (0.5, 2, 100), (0, 1e6, 20), (0.99, 1.01, 1e4), (1 - 1e-9, 1 + 1e-9, 1e11)],
)
def test_powers(low: float, high: float, exponent: float) -> None:
    """Large exponents of bases near one: the logarithm must have more digits than a double."""
    rng = generator()
    check("pow", ORDINARY["pow"], rng.uniform(low, high, N), rng.uniform(-exponent, exponent, N))


def test_powers_with_any_base() -> None:
    """Results over the whole range, bases with any exponent of either sign, any bits."""
    rng = generator()
    x = np.ldexp(rng.uniform(1, 2, N), rng.integers(-1074, 1024, N))
    y = rng.uniform(-745, 745, N) / np.log(x)
    check("pow", ORDINARY["pow"], x * rng.choice([-1, 1], N), y)
    bits = raw_bits(2 * N)
    check("pow", ORDINARY["pow"], bits[:N], bits[N:])


HARD = {
    "exp": [(n + 0.5) * math.log(2) for n in range(-1075, 1024)],
    "log": [1 + s * 2.0**-k for k in range(1, 53) for s in (1, -1)]
    + [math.sqrt(2) * 2.0**k for k in range(-1000, 1000, 7)]
    + [2.0**k for k in range(-1074, 1024)],
}


HARD |= dict.fromkeys(
    ("sinh", "cosh", "tanh"),
    [0.5, 710.4758600739439, 720.0, 400 * math.log(2)]
    + [(n + 0.5) * math.log(2) for n in range(1024)],
)


@pytest.mark.parametrize("function", sorted(HARD))
def test_edges_of_the_reduction(function: str) -> None:
    """Where the argument reduction switches, and the doubles on both sides."""
    x = np.array(HARD[function])
    with np.errstate(all="ignore"):
        x = np.concatenate([x, np.nextafter(x, -np.inf), np.nextafter(x, np.inf)])
    check(function, ORDINARY[function], x[x > 0] if function == "log" else x)


def test_edges_of_the_octants() -> None:
    rng = generator()
    x = rng.uniform(1, 2, N) * 2.0 ** rng.integers(-60, 60, N)
    for ratio in (math.tan(math.pi / 8), 1.0, math.tan(3 * math.pi / 8), 0.0625, 2.0**-50):
        y = x * ratio * (1 + rng.integers(-4, 5, N) * 2.0**-52)
        check("atan2", ORDINARY["atan2"], y * rng.choice([-1, 1], N), x * rng.choice([-1, 1], N))


# Exact reference of sine and cosine ---------------------------------------------------------

PRECISION = 1400


def fixed_pi() -> int:
    """pi 2**PRECISION by Gauss's formula, not the one that the kernels use."""
    guard = PRECISION + 32

    def arccot(n: int) -> int:
        term = total = (1 << guard) // n
        k = 1
        while term:
            term //= -n * n
            k += 2
            total += term // k
        return total

    return (48 * arccot(18) + 32 * arccot(57) - 20 * arccot(239)) >> 32


PI = fixed_pi()


def exact_sincos(x: float) -> tuple[Fraction, Fraction]:
    """Sine and cosine with 250 correct bits."""
    numerator, denominator = x.as_integer_ratio()
    fixed = (numerator << PRECISION) // denominator
    turns, rest = divmod(fixed + PI // 4, PI // 2)
    bits = 300
    r = (rest - PI // 4) >> (PRECISION - bits)
    square, one = (r * r) >> bits, 1 << bits
    sine, cosine, s, c, k = 0, 0, r, one, 0
    while s or c:
        sine, cosine = sine + s, cosine + c
        k += 2
        s = -((s * square) >> bits) // (k * (k + 1))
        c = -((c * square) >> bits) // (k * (k - 1))
        if abs(s) <= 1 and abs(c) <= 1:
            break
    s_, c_ = Fraction(sine, one), Fraction(cosine, one)
    return [(s_, c_), (c_, -s_), (-s_, -c_), (-c_, s_)][turns % 4]


def near_multiples() -> list[float]:
    """Doubles that come closest to multiples of pi/2, at every other power of two."""
    found: list[float] = []
    half_pi = Fraction(PI, 1 << (PRECISION + 1))
    for exponent in range(-52, 971, 5):
        ratio = Fraction(2) ** exponent / half_pi  # m 2**e = k pi/2 where m ratio is an integer
        previous, denominator = 0, 1
        while ratio.denominator > 1:
            whole = ratio.numerator // ratio.denominator
            ratio = 1 / (ratio - whole)
            previous, denominator = (
                denominator,
                (ratio.numerator // ratio.denominator) * (denominator) + previous,
            )
            if denominator >= 2**53:
                break
            best = denominator
            if best >= 2**45:
                found.append(math.ldexp(best, exponent))
    return found


def test_reference_itself() -> None:
    """The exact reference agrees with the C library where that is good."""
    assert Fraction(PI, 1 << PRECISION) - Fraction(math.pi) == pytest.approx(
        1.2246467991473532e-16, rel=1e-15
    )
    for x in (0.5, -2.0, 3.0, 100.0, 1e22, -1e300):
        sine, cosine = exact_sincos(x)
        assert float(sine) == pytest.approx(math.sin(x), rel=1e-15)
        assert float(cosine) == pytest.approx(math.cos(x), rel=1e-15)
    assert len(near_multiples()) > 200


def test_sincos_near_multiples_of_half_pi() -> None:
    """Where nearly all leading digits cancel in the reduction, up to the largest doubles."""
    multiples = [float(Fraction(k * PI, 1 << (PRECISION + 1))) for k in range(1, 200)]
    multiples += [float(Fraction(k * PI, 1 << (PRECISION + 1))) for k in range(63_000, 64_200, 12)]
    points = near_multiples() + multiples + [1e5, math.nextafter(1e5, 2e5), 1e22, 1.7e308]
    x = np.array(points + [-p for p in points[::7]])
    sine, cosine = run("sin", x), run("cos", x)
    for value, s, c in zip(x.tolist(), sine.tolist(), cosine.tolist(), strict=True):
        for found, exact in zip((s, c), exact_sincos(value), strict=True):
            error = abs(Fraction(found) - exact) / Fraction(math.ulp(float(exact)))
            assert error <= 0.8, (value.hex(), float(error))


# Special values -----------------------------------------------------------------------------

SPECIAL = np.array(
    [0.0, 1.0, 0.5, 2.0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, np.inf, np.nan]
)
SPECIAL = np.concatenate([SPECIAL, -SPECIAL])


def same_numbers(found: Array, expected: Array) -> None:
    """Equal infinities, NaN and zeros with their signs; one last bit elsewhere."""
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    good = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[good]), np.signbit(expected[good]))
    np.testing.assert_allclose(found[good], expected[good], rtol=3e-16, atol=0)


@pytest.mark.parametrize("function", FUNCTIONS[:-1])
def test_special_values(function: str) -> None:
    """As in C, annex F."""
    with np.errstate(all="ignore"):
        same_numbers(run(function, SPECIAL), reference(function, SPECIAL).astype(float))


def test_special_values_of_angles() -> None:
    """All pairs; the signs of both zeros count."""
    y, x = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    found = run("atan2", y, x)
    same_numbers(found, np.array([math.atan2(a, b) for a, b in zip(y, x, strict=True)]))
    assert run("atan2", np.array([0.0]), np.array([-1.0]))[0] == math.pi
    assert run("atan2", np.array([-0.0]), np.array([-1.0]))[0] == -math.pi


@pytest.mark.parametrize("function", ["hypot", "pow"])
def test_special_values_of_two_arguments(function: str) -> None:
    """As in C, annex F; the power is that of the modulus of the base."""
    x, y = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        expected = reference(function, x, y).astype(float)
    same_numbers(run(function, x, y), expected)


@pytest.mark.parametrize("function", sorted(ORDINARY))
def test_bits_do_not_depend_on_the_neighbours(function: str) -> None:
    """One lane that needs the slow reduction of large angles leaves the others alone."""
    x, y = generator().normal(size=(2, 64)) * 3
    x[5::7] *= 1e6
    arguments = (x, y) if function in {"atan2", "hypot", "pow"} else (x,)
    together = run(function, *arguments)
    for start in range(64):
        shifted = run(function, *(a[start : start + 3] for a in arguments))
        np.testing.assert_array_equal(
            shifted.view(np.uint64), together[start : start + 3].view(np.uint64)
        )


def test_limits_of_exp() -> None:
    """Overflow to infinity and gradual underflow to zero, at the same doubles as exactly."""
    x = np.array([709.782712893384, 709.7827128933841, -745.1332191019411, -745.1332191019412])
    expected = [float(np.exp(np.longdouble(x[0]))), math.inf, 5e-324, 0.0]
    np.testing.assert_allclose(run("exp", x), expected, rtol=2e-16, atol=0)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_nan_for_all(function: str) -> None:
    """Processors propagate payloads differently, so that every NaN result has the same bits."""
    payloads = [0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0DEADBEEF0001, 2**64 - 1]
    x = np.array(payloads, dtype=np.uint64).view(np.float64)
    arguments = (x, np.ones(4)) if function == "atan2" else (x,)
    bits = run(function, *arguments).view(np.uint64)
    np.testing.assert_array_equal(bits, 0x7FF8000000000000)
    if function == "atan2":
        np.testing.assert_array_equal(run(function, np.ones(4), x).view(np.uint64), bits)
    if function in {"sin", "cos", "tan"}:
        infinite = run(function, np.array([math.inf, -math.inf])).view(np.uint64)
        np.testing.assert_array_equal(infinite, 0x7FF8000000000000)
    if function == "log":
        assert run(function, np.array([-1.0])).view(np.uint64)[0] == 0x7FF8000000000000


@pytest.mark.parametrize("function", FUNCTIONS)
def test_small_arguments_keep_their_value(function: str) -> None:
    x = np.array([1e-300, -1e-300, 5e-324, 1e-17, -1e-17])
    one, zero = np.ones(5), np.zeros(5)
    expected: dict[str, Callable[[], Array]] = {
        "exp": lambda: one,
        "cos": lambda: one,
        "cosh": lambda: one,
        "sin": lambda: x,
        "tan": lambda: x,
        "sinh": lambda: x,
        "tanh": lambda: x,
        "log": lambda: zero,
        "atan2": lambda: x,
    }
    arguments = {"log": (one,), "atan2": (x, one)}.get(function, (x,))
    np.testing.assert_array_equal(run(function, *arguments), expected[function]())
