"""A long model has one program for the logarithm of its data and the sum over its Monte Carlo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import laddu_dask as ld
from laddu_dask.compiler import Assumptions, CompiledModel, KernelOptions, Transform, compile_model

EVENTS = 40


def intensity(terms: int) -> Any:
    """Positive for most events: a sum of resonances with free positions, and a background."""
    x, total = ld.scalar("x"), ld.parameter("background", initial=0.1) * ld.scalar("y")
    for k in range(terms):
        pole = ld.parameter(f"m{k}", initial=1.0 + k / terms)
        total = total + (1.0 / ld.complex(x * x - pole * pole, 0.1 * x)).norm_sqr()
    return total


def compiled(terms: int, transform: Transform, precision: Any = "f64") -> CompiledModel:
    options = KernelOptions(precision=precision)
    return compile_model(intensity(terms), transform, Assumptions(), options)


@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_long_models_share_their_programs(precision: Any) -> None:
    linear, log = (compiled(200, transform, precision) for transform in ("linear", "log"))
    for name in ("prepare", "value", "gradient"):
        one, two = (getattr(model.programs, name).digest for model in (linear, log))
        assert one == two, name
    parameters = linear.layout.defaults
    told = [model.invariants.frontier(parameters) for model in (linear, log)]
    (place,) = np.flatnonzero(told[0] != told[1])
    assert (told[0][place], told[1][place]) == (0.0, 1.0)


def test_short_models_compute_no_logarithm_in_vain() -> None:
    linear, log = compiled(3, "linear"), compiled(3, "log")
    assert linear.programs.value.digest != log.programs.value.digest
    assert "log" not in {op for op, _, _ in linear.programs.gradient.instructions}


def sample(seed: int, low: float) -> ld.Dataset:
    rng = np.random.default_rng(seed)
    scalars = {"x": rng.uniform(0.9, 2.1, EVENTS), "y": rng.uniform(low, 1.0, EVENTS)}
    return ld.Dataset.from_arrays(p4s={}, scalars=scalars, weights=rng.uniform(0.5, 1.0, EVENTS))


def likelihood(execution: ld.Execution) -> ld.Likelihood:
    # Monte Carlo events of negative intensity count; only logarithms refuse them.
    return ld.Likelihood(
        [ld.NLL(intensity(200), data=sample(1, 0.0), accepted_mc=sample(2, -6e3))], execution
    )


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_value_and_derivatives(backend: str) -> None:
    """The value by NumPy, first and second derivatives by differences."""
    with likelihood(ld.Execution(backend, threads=1)) as found:
        point = np.array(found.default_parameters)
        value, gradient = found.value_and_gradient(point)
        assert found.value(point) == value

        def numpy_intensity(data: ld.Dataset) -> Any:
            x, y = data.column("x"), data.column("y")
            total = point[0] * y
            for pole in point[1:]:
                total = total + 1 / ((x * x - pole * pole) ** 2 + (0.1 * x) ** 2)
            return total, data.weights()

        (data, w), (mc, v) = numpy_intensity(sample(1, 0.0)), numpy_intensity(sample(2, -6e3))
        assert (mc < 0).any()
        n = w.sum()
        expected = 2 * (n * np.log(np.sum(v * mc)) - np.sum(w * np.log(data)))
        assert value == pytest.approx(expected, rel=1e-12)
        direction = np.linspace(-1, 1, len(point))
        h = 1e-6
        up, down = (found.value_and_gradient(point + s * h * direction) for s in (1, -1))
        slope = (up[0] - down[0]) / (2 * h)
        assert gradient @ direction == pytest.approx(slope, rel=1e-6)
        curved = found.hessian_vector_product(point, direction)
        np.testing.assert_allclose(
            curved, (up[1] - down[1]) / (2 * h), rtol=1e-5, atol=1e-6 * np.abs(curved).max()
        )


@pytest.mark.parametrize("flag", [0.0, 1.0])
def test_long_functions_of_parameters_count_once(flag: float) -> None:
    """Nothing of what is computed once per evaluation counts, also where events drop out."""
    growth = ld.parameter("a", initial=0.3)
    for _ in range(600):
        growth = (growth * growth + 1.0).sqrt()
    model = growth * (1.0 + ld.scalar("flag") * ld.scalar("x"))
    programs = compile_model(model, "linear", Assumptions()).programs
    assert "log" not in {op for op, _, _ in programs.gradient.instructions}
    data, mc = (
        ld.Dataset.from_arrays(
            p4s={}, scalars={"x": np.linspace(0.1, 1.0, 9), "flag": np.full(9, flag)}
        )
        for _ in range(2)
    )
    term = ld.NLL(model, data=data, accepted_mc=mc)
    with ld.Likelihood([term], ld.Execution(threads=1)) as found:
        x = 1.0 + flag * np.linspace(0.1, 1.0, 9)
        expected = 2 * (9 * np.log(x.sum()) - np.log(x).sum())
        assert found.value() == pytest.approx(expected, rel=1e-12)
