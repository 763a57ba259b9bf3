"""Random expressions: kernels, interpreter and derivatives against independent truths.

Every comparison is tight. An event is left out only when the oracle itself shows that no evaluation
in double precision can be as good there: because a last-bit error of some intermediate result moves
its value, or because its own differences do not settle. How many are left out is bounded too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled_runs import (
    ELEMENTARY,
    event_inputs,
    run_program,
    value_and_gradient,
    with_noisy_functions,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_expressions import EVENTS, PARAMETERS, Truth, columns, point, scalars

from laddu_dask.compiler import Transform, compile_model
from laddu_dask.expr import Expr

SEEDS = st.integers(0, 2**32 - 1)


def checked(examples: int, at_least: float) -> Callable[[Any], Callable[[], None]]:
    """Run a property and require that it looked at a share of all events."""

    def decorate(body: Callable[[Expr, int], tuple[int, int]]) -> Callable[[], None]:
        def test() -> None:
            seen = np.zeros(2, dtype=int)

            @settings(
                max_examples=examples,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(scalars(), SEEDS)
            def run(expr: Expr, seed: int) -> None:
                seen[:] += body(expr, seed)

            run()
            assert seen[0] >= at_least * seen[1], f"only {seen[0]} of {seen[1]} were compared"

        test.__doc__ = body.__doc__
        test.__name__ = body.__name__
        return test

    return decorate


@checked(examples=300, at_least=0.5)
def test_values_and_gradients_of_the_interpreter(expr: Expr, seed: int) -> tuple[int, int]:
    """AD-03: values to 1e-12 of the oracle, gradients to 1e-7 of central differences."""
    return compare_with_oracle(expr, seed, "interpreter")


@checked(examples=80, at_least=0.5)
def test_values_and_gradients_of_the_compiled_kernel(expr: Expr, seed: int) -> tuple[int, int]:
    """XE-04, AD-03: values to 1e-12 of the oracle, gradients to 1e-7 of central differences."""
    return compare_with_oracle(expr, seed, "cpu")


def compare_with_oracle(expr: Expr, seed: int, backend: str) -> tuple[int, int]:
    truth = Truth(expr, seed)
    events, at = columns(seed), point(seed)
    names = compile_model(expr, "complex").layout.names
    with np.errstate(all="ignore"):
        values, found = value_and_gradient(
            expr, events, {name: at[name] for name in names}, backend
        )
        size = np.abs(truth.values)
        sound = truth.regular & np.isfinite(truth.values) & (truth.spread <= 1e-13 * size)
        wrong = sound & ~(np.abs(values - truth.values) <= 1e-12 * size)
    assert not wrong.any(), (expr, values[wrong], truth.values[wrong])

    gradient = np.zeros((len(PARAMETERS), EVENTS), dtype=complex)
    for name, row in zip(names, found, strict=True):
        gradient[PARAMETERS.index(name)] = row
    with np.errstate(all="ignore"):
        size = np.abs(truth.gradient).max(axis=0)
        unsure = truth.gradient_error.max(axis=0)
        trusted = sound & (unsure <= 1e-8 * np.maximum(size, np.abs(truth.values)))
        error = np.abs(gradient - truth.gradient).max(axis=0)
        wrong = trusted & ~(error <= 1e-7 * size + 2 * unsure)
    assert not wrong.any(), (expr, gradient[:, wrong], truth.gradient[:, wrong])
    return int(trusted.sum()), EVENTS


@checked(examples=80, at_least=0.8)
def test_compiled_kernel_equals_the_interpreter(expr: Expr, seed: int) -> tuple[int, int]:
    """XE-04: every row, adjoints included, to 1e-12; without elementary functions bit for bit."""
    model = compile_model(expr, "complex")
    inputs = event_inputs(model, columns(seed), "interpreter")
    at = point(seed)
    frontier = model.invariants.frontier(
        model.layout.vector({name: at[name] for name in model.layout.names})
    )
    program = model.programs.gradient
    compiled = run_program(program, inputs, frontier, "cpu")
    reference = run_program(program, inputs, frontier, "interpreter")
    functions = sum(op in ELEMENTARY for op, _, _ in program.instructions)
    if not functions:
        np.testing.assert_array_equal(compiled, reference)
        return compiled.size, compiled.size
    rng = np.random.default_rng([seed, 3])
    noisy = with_noisy_functions(program)
    with np.errstate(all="ignore"):
        size, spread = np.abs(reference), np.zeros(reference.shape)
        for _ in range(8):
            noise = 1 + rng.choice([-1.0, 1.0], size=(functions, EVENTS)) * 2.0**-52
            rows = run_program(noisy, np.concatenate([inputs, noise]), frontier, "interpreter")
            spread = np.maximum(spread, np.where(rows == reference, 0, np.abs(rows - reference)))
        sound = np.isfinite(reference) & (spread <= 1e-13 * size)
        wrong = sound & ~(np.abs(compiled - reference) <= 1e-12 * size)
    assert not wrong.any(), (expr, compiled[wrong], reference[wrong])
    return int(sound.sum()), sound.size


@pytest.mark.parametrize("transform", ["linear", "log"])
def test_reductions_differentiate_what_the_events_do(transform: Transform) -> None:
    """The rows of a reduction are the weighted value and its derivative, event by event."""

    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(scalars(3), SEEDS)
    def run(expr: Expr, seed: int) -> None:
        model = compile_model(expr, transform)
        at = point(seed)
        vector = model.layout.vector({name: at[name] for name in model.layout.names})
        weights = np.random.default_rng(seed).normal(size=EVENTS)
        inputs = event_inputs(model, columns(seed), "interpreter")
        inputs[-1] = weights
        frontier = model.invariants.frontier(vector)
        rows = run_program(model.programs.gradient, inputs, frontier, "interpreter")
        value_rows = run_program(model.programs.value, inputs, frontier, "interpreter")
        np.testing.assert_array_equal(value_rows, rows[:1])
        with np.errstate(all="ignore"):
            values, gradient = value_and_gradient(expr, columns(seed), at_only(model, at), "cpu")
            gradient = gradient.real
            found = model.invariants.jacobian(vector).T @ rows[1:]
            if transform == "linear":
                expected, slope = weights * values.real, weights * gradient
            else:
                expected = weights * np.log(values.real)
                slope = weights * gradient / values.real
            good = np.isfinite(expected) & np.isfinite(slope).all(axis=0)
            # Conditioning as the other properties measure it.
            truth = Truth(expr, seed)
            good &= truth.regular & (truth.spread <= 1e-13 * np.abs(values.real))
            good &= np.abs(values.real - 1) > 1e-2
            size = np.abs(slope).max(axis=0, initial=0.0)
        np.testing.assert_allclose(rows[0][good], expected[good], rtol=1e-10)
        error = np.abs(found[:, good] - slope[:, good])
        assert (error <= 1e-9 * size[good]).all(), expr

    def at_only(model: Any, at: dict[str, float]) -> dict[str, float]:
        return {name: at[name] for name in model.layout.names}

    run()


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(scalars())
def test_any_expression_comes_back_from_json(expr: Expr) -> None:
    """EX-13: the very node, and equal text for equal graphs."""
    text = expr.to_json()
    again = Expr.from_json(text)
    assert again.node is expr.node
    assert again.to_json() == text
