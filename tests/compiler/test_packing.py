"""Incoherent sums of shared amplitudes as a quadratic form: the same value, fewer operations."""

from __future__ import annotations

import numpy as np
import pytest
from compiled_runs import run_program
from grouped_runs import grouped_rows, written_rows
from lowering_table import counts, incoherent

import laddu_dask as ld
from laddu_dask.compiler import (
    Assumptions,
    NormalForm,
    Transform,
    compile_candidates,
    compile_model,
)
from laddu_dask.compiler.normalize import normalize
from laddu_dask.compiler.packing import pack
from laddu_dask.expr import Expr

PACKED = "incoherent sums packed"
X, Y = ld.scalar("x"), ld.scalar("y")
EVENTS = {
    "s": np.linspace(1.0, 1.5, 40),
    "ct": np.linspace(-0.9, 0.95, 40),
    "phi": np.linspace(-3.0, 3.0, 40) ** 3 / 9,
    "x": np.linspace(0.5, 2.0, 40),
    "y": np.cos(np.arange(40.0)),
}


def sums(count: int, amplitudes: list[Expr], scale: Expr | float = 1.0) -> Expr:
    """Incoherent sums with complex coefficients of their own."""
    total = ld.Expr(0.0)
    for h in range(count):
        amplitude = ld.Expr(0.0)
        for k, wave in enumerate(amplitudes):
            name = f"c{h}{k}"
            coefficient = ld.complex(
                ld.parameter(f"{name}_re", initial=0.3 + 0.2 * h - 0.1 * k),
                ld.parameter(f"{name}_im", initial=0.1 * h + 0.25 * k - 0.3),
            )
            amplitude = amplitude + coefficient * wave
        total = total + scale * amplitude.norm_sqr()
    return total


def names(expr: Expr) -> list[str]:
    """Forms that were considered."""
    return [
        candidate.name
        for candidate in compile_candidates(NormalForm(expr, Assumptions()), "linear")
    ]


PHASE = ld.complex(X, Y)
POLE = 1.0 / (X - ld.parameter("mass", initial=1.1) - 0.2j)
SCALE = ld.parameter("scale", initial=1.3)


@pytest.mark.parametrize("transform", ["linear", "log"])
@pytest.mark.parametrize(
    "expr",
    [
        incoherent(),
        sums(4, [PHASE, ld.Expr(1.0), PHASE.conj() * POLE]),
        sums(3, [X, Y], SCALE) + SCALE * X**2 + 0.5,
        SCALE * (sums(3, [POLE, POLE * PHASE]) + 2.0),
        sums(2, [X + 0.0, Y * POLE]) + (POLE + PHASE).norm_sqr(),
    ],
    ids=["E", "constant amplitude", "real amplitudes and a rest", "scale outside", "another sum"],
)
def test_packed_and_written_form_agree(expr: Expr, transform: Transform) -> None:
    """DC-12: value and gradient of every event, to rounding."""
    assert PACKED in names(expr)
    at = dict(zip(ld.Model(expr).parameter_names, ld.Model(expr).default_parameters, strict=True))
    weights = np.linspace(0.5, 1.5, 40)
    grouped = grouped_rows(expr, transform, EVENTS, at, weights)
    value, slope = written_rows(expr, transform, EVENTS, at, weights)
    assert grouped is not None
    np.testing.assert_allclose(grouped[0], value, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(grouped[1], slope, rtol=1e-9, atol=1e-11 * np.abs(slope).max())


@pytest.mark.parametrize(("count", "packs"), [(1, False), (2, False), (4, True), (8, True)])
def test_packing_pays_for_many_sums_of_few_amplitudes(count: int, packs: bool) -> None:
    """The number of sums does not show in the packed form."""
    expr = incoherent(count)
    assert (PACKED in names(expr)) == (count > 1)
    found = counts(compile_model(expr, "linear", Assumptions()))
    assert (found.frontier == 22) == packs


def test_sums_that_share_nothing_stay() -> None:
    """A: two sums of waves of their own are no quadratic form."""
    expr = (X * SCALE + Y).norm_sqr() + (X**2 * SCALE + Y**2).norm_sqr()
    assert PACKED not in names(expr)
    assert PACKED not in names(sums(2, [X, Y], -1.0))


def test_sums_of_their_own_beside_sums_that_share() -> None:
    """Hundreds of sums that share nothing stay as they are, three that do are packed."""
    own = [
        (ld.scalar(f"x{i}") * ld.parameter(f"p{i}", initial=0.5) + ld.scalar(f"y{i}")).norm_sqr()
        for i in range(300)
    ]
    expr = sums(3, [PHASE * POLE, POLE])
    for term in own:
        expr = expr + term
    algebra, term = normalize(expr.node, Assumptions())
    packed = pack(algebra, term)
    assert packed is not None
    assert len(packed.parts) == 3
    assert len(packed.scales) == 3


def test_a_negative_scale_is_guarded() -> None:
    """Products of a form that is not positive may cancel anywhere: written form."""
    model = compile_model(sums(8, [PHASE, PHASE * POLE], SCALE), "linear", Assumptions())
    assert "nonnegative" in model.invariants.guards
    at = model.layout.defaults
    assert model.invariants.valid_frontier(at) is not None
    at[model.layout.names.index("scale")] = -1.0
    assert model.invariants.valid_frontier(at) is None


def test_events_whose_products_cancel_have_no_value() -> None:
    """All sums vanish at x = y but for rounding: such an event asks for the written form."""
    difference = [ld.parameter(f"a{h}", initial=0.7 + 0.1 * h) * (X * POLE) for h in range(8)]
    other = [ld.parameter(f"b{h}", initial=0.7 + 0.1 * h) * (Y * POLE) for h in range(8)]
    total = ld.Expr(0.0)
    for one, two in zip(difference, other, strict=True):
        total = total + (one - two).norm_sqr()
    model = compile_model(total, "log", Assumptions())
    assert len(model.programs.gradient.outputs) < 10, "the packed form is chosen"
    x = np.array([1.0, 1.0, 1.0, 1.0])
    y = np.array([1.5, 1.0 + 1e-4, 1.0 + 1e-2, -1.0])
    source = np.array([{"x": x, "y": y}[name] for name in model.programs.columns])
    rows = run_program(model.programs.prepare, source, np.zeros(0), "interpreter")
    inputs = np.concatenate([rows[: model.programs.n_cached], np.ones((1, 4))])
    frontier = model.invariants.valid_frontier(model.layout.defaults)
    assert frontier is not None
    result = run_program(model.programs.gradient, inputs, frontier, "interpreter")
    assert np.isnan(result[0]).tolist() == [False, True, False, False]
    pole = 1 / np.abs(x - 1.1 - 0.2j) ** 2
    expected = np.log(sum((0.7 + 0.1 * h) ** 2 for h in range(8)) * (x - y) ** 2 * pole)
    np.testing.assert_allclose(result[0][[0, 2, 3]], expected[[0, 2, 3]], rtol=1e-10)
