"""Roots below threshold on every path: D1, the one value that mathematics gives.

The same quantity of s as an event column, a literal, a free and a fixed parameter and the product
of a column and a parameter, with masses as numbers and as free parameters: by the interpreter, the
compiled kernel and regrouped; values against tables, derivatives against multiprecision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from compiled_runs import value_and_gradient
from mp_oracle import Verdict
from numpy.typing import NDArray
from test_grouping import grouped_rows

import laddu_dask as ld
from laddu_dask.compiler import compile_model

Array = NDArray[Any]
M1, M2 = 0.51, 0.62
S = [1.3, 1.2, 1.0, 0.01, -0.5]
QS = [
    0.07563893228307206, 0.13795342662169216j, 0.2615098038315197j, 0.2578996898020622,
    -0.674518528285176j,
]  # fmt: skip
RHOS = [
    0.13267946426137936, 0.251867345486115j, 0.5230196076630395j, 5.157993796041243,
    -1.9078265015456717,
]  # fmt: skip
CHEW = [
    0.011273077538949561 - 0.13267946426137936j, 0.212306100891826, 0.3625715241876181,
    0.6329411100027084, 0.7068736036618827,
]  # fmt: skip

Quantity = Callable[..., ld.Expr]


def flatte(s: ld.Expr, mass1: Any, mass2: Any) -> ld.Expr:
    """Two channels of equal masses, couplings 0.2 and 0.3."""
    first, second = ((1 - 4 * mass * mass / s).sqrt() for mass in (mass1, mass2))
    return 1 / (0.98**2 - s - 1j * (0.2 * first + 0.3 * second))


def resonance(s: ld.Expr, mass1: Any, mass2: Any) -> ld.Expr:
    return ld.relativistic_breit_wigner(s, mass=1.0, width=0.1, mass1=mass1, mass2=mass2, l=1)


def bare_chew(s: ld.Expr, mass1: Any, mass2: Any) -> ld.Expr:
    """Chew-Mandelstam written by hand, roots and logarithm as they stand in the textbook."""
    total, difference = mass1 + mass2, mass2 - mass1
    phase = 2 * ld.q(s, mass1=mass1, mass2=mass2) / ld.as_expr(s).sqrt()
    chi = 1 - total * total / s
    ratio = ld.as_expr(mass2) / mass1
    return (
        phase * ((chi + phase) / (chi - phase)).log() - chi * difference / total * ratio.log()
    ) / np.pi


CASES: dict[str, tuple[Quantity, tuple[float, float], list[float], list[complex]]] = {
    "q": (lambda s, a, b: ld.q(s, mass1=a, mass2=b), (M1, M2), S, QS),
    "rho": (lambda s, a, b: ld.rho(s, mass1=a, mass2=b), (M1, M2), S, RHOS),
    "chew_mandelstam": (
        lambda s, a, b: ld.chew_mandelstam(s, mass1=a, mass2=b), (M1, M2), S, CHEW,
    ),
    "resonance": (
        resonance, (0.2, 0.3), [1.1, 0.2], [-4.819407418948968 + 4.996737567620446j,
                                            1.2987564310193591],
    ),
    "flatte": (
        flatte, (0.1395, 0.497611), [0.8, 0.95], [2.35581977 + 1.4591987j, 1.72379163 + 4.56784262j]
    ),
}  # fmt: skip


def spellings(f: Quantity, masses: tuple[float, float], s: list[float]) -> Iterator[Any]:
    """Expression, columns and parameters of every way to give s and the masses."""
    column, free = ld.scalar("s"), ld.parameter("s")
    a, b = ld.parameter("a"), ld.parameter("b")
    at = {"a": masses[0], "b": masses[1]}
    events = {"s": np.array(s)}
    yield f(column, *masses), events, {}
    yield f(column, a, b), events, at
    yield f(column * ld.parameter("p"), *masses), events, {"p": 1.0}
    for place, number in enumerate(s):
        one = {"place": np.array([place])}
        yield f(free, *masses), one, {"s": number}
        yield f(free, a, b), one, at | {"s": number}
        yield f(ld.as_expr(number), *masses), one, {}
        yield f(ld.parameter("s", fixed=number), *masses), one, {}
        yield f(ld.as_expr(number), a, b), one, at


def runs(expr: ld.Expr, events: dict[str, Array], at: dict[str, float]) -> Iterator[Any]:
    """Value and gradient in each form."""
    for backend in ("interpreter", "cpu"):
        yield value_and_gradient(expr, events, at, backend)
    n = next(iter(events.values())).size
    parts = [
        grouped_rows(part, "linear", events, at, np.ones(n)) for part in (expr.real(), expr.imag())
    ]
    if parts[0] is not None and parts[1] is not None:
        yield parts[0][0] + 1j * parts[1][0], parts[0][1] + 1j * parts[1][1]


@pytest.mark.parametrize("name", sorted(CASES))
def test_one_value_and_gradient_on_every_path(name: str) -> None:
    """D1, T-20, T-21, EX-06, OP-02, OP-03."""
    f, masses, s, table = CASES[name]
    tolerance = 1e-8 if name == "flatte" else 1e-12  # the digits of the tables
    for expr, events, at in spellings(f, masses, s):
        places = events.get("place", np.arange(len(s)))
        expected = np.array(table)[places]
        names = compile_model(expr, "complex").layout.names
        at = {key: at[key] for key in names}
        slopes = [Verdict(expr, {"s": s[place]}, at, seed=1).gradient for place in places.tolist()]
        for values, gradient in runs(expr, events, at):
            np.testing.assert_allclose(
                np.broadcast_to(values, expected.shape), expected, rtol=tolerance, atol=1e-14
            )
            for row, slope in zip(
                np.broadcast_to(gradient, (len(at), len(places))),
                zip(*slopes, strict=True),
                strict=True,
            ):
                np.testing.assert_allclose(row, slope, rtol=1e-10, atol=1e-13)


def test_chew_mandelstam_by_hand() -> None:
    """The cut of the logarithm is met from one side, whatever is known about the roots in it."""
    for s in S:
        found = []
        for expr, events, at in spellings(bare_chew, (M1, M2), [s]):
            names = compile_model(expr, "complex").layout.names
            for values, _ in runs(expr, events, {key: at[key] for key in names}):
                found.append(complex(np.ravel(values)[0]))
        np.testing.assert_allclose(found, found[0], rtol=1e-12, atol=1e-14)
