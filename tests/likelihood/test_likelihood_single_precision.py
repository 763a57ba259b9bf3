"""`Execution(precision="f32")` in likelihoods: bits, accuracy, memory, and the exponent range."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import models as benchmark_models
import numpy as np
import pytest
from distributed import Client
from numpy.typing import NDArray
from two_wave_case import asimov, bits, scaled_model, two_waves

import laddu_dask as ld
from laddu_dask.compiler import CompiledModel
from laddu_dask.runtime import forms

Array = NDArray[Any]
BACKENDS = pytest.mark.parametrize("backend", ["cpu", "interpreter"])
P, Q = ld.parameter("p", initial=0.5), ld.parameter("q", initial=0.3)
X, Y = ld.scalar("x"), ld.scalar("y")


def single(**options: Any) -> ld.Execution:
    return ld.Execution(precision="f32", **options)


@cache
def reference(backend: Any) -> tuple[str, ...]:
    """One partition, one thread, in memory."""
    with two_waves(single(backend=backend, threads=1, partitions=1, storage="resident")) as found:
        return bits(found)


CUTS = list(product(["resident", "spilled", "streaming"], [1, 3, 17], [None, 7, 1000, 5000]))


@pytest.mark.parametrize(("storage", "partitions", "chunk"), CUTS)
def test_partitions_storage_and_chunks(storage: Any, partitions: int, chunk: Any) -> None:
    """DK-15, FP-03: sums of floats have the same bits however they are cut."""
    execution = single(
        backend="cpu", storage=storage, partitions=partitions, chunk_events=chunk, threads=2
    )
    with two_waves(execution) as likelihood:
        assert bits(likelihood) == reference("cpu")


@pytest.mark.parametrize("storage", ["resident", "streaming"])
def test_partitions_and_storage_interpreted(storage: Any) -> None:
    """DK-15 with the interpreter."""
    execution = single(backend="interpreter", storage=storage, partitions=3, chunk_events=1500)
    with two_waves(execution) as likelihood:
        assert bits(likelihood) == reference("interpreter")


@pytest.mark.cluster
@pytest.mark.parametrize("storage", ["resident", "streaming"])
@BACKENDS
def test_on_a_cluster(client: Client, backend: Any, storage: Any) -> None:
    """DK-15: the bits of two worker processes are those of this process."""
    execution = single(backend=backend, storage=storage, partitions=5, cluster=client)
    with two_waves(execution) as likelihood:
        assert bits(likelihood) == reference(backend)


def test_backends_and_precisions_agree() -> None:
    """XE-04, FP-07: 1e-6 between backends, and between single and double precision."""
    with two_waves() as likelihood:
        exact = numbers(bits(likelihood))
    compiled, interpreted = numbers(reference("cpu")), numbers(reference("interpreter"))
    size = np.abs(exact[1:]).max()
    for found in (compiled, interpreted):
        assert found[0] == pytest.approx(exact[0], rel=1e-6)
        assert found[0] != pytest.approx(exact[0], rel=1e-13)
        np.testing.assert_allclose(found[1:], exact[1:], rtol=0, atol=1e-6 * size)
    np.testing.assert_allclose(compiled, interpreted, rtol=1e-6)


def numbers(found: tuple[str, ...]) -> Array:
    return np.array([float.fromhex(number) for number in found])


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_modes_of_differentiation(mode: Any) -> None:
    """FP-07: forward and reverse mode round in other places, by no more than floats do."""
    with two_waves(single(autodiff=mode)) as likelihood:
        found = numbers(bits(likelihood))
    np.testing.assert_allclose(found, numbers(reference("cpu")), rtol=2e-6)


def sample(name: str, events: int, seed: int = 3) -> ld.Dataset:
    """Columns of a benchmark model."""
    rng = np.random.default_rng(seed)
    columns = ld.Model(benchmark_models.MODELS[name](ld)).columns
    values = {
        column: rng.uniform(1.25, 6.0, events) if column == "s" else rng.uniform(-1, 1, events)
        for column in columns
    }
    return ld.Dataset.from_arrays(scalars=values, weights=rng.uniform(0.5, 2.0, events))


def pair(name: str, execution: ld.Execution, events: int = 3000) -> ld.Likelihood:
    term = ld.ExtendedNLL(
        ld.Model(benchmark_models.MODELS[name](ld)),
        data=sample(name, events, 5),
        accepted_mc=sample(name, events),
    )
    return ld.Likelihood([term], execution)


@pytest.mark.parametrize("normalization", ["auto", "general"])
@pytest.mark.parametrize(
    ("name", "tolerance"), [("A", 1e-6), ("B", 1e-6), ("C-fixed", 3e-5), ("C-free", 3e-5)]
)
def test_published_models(name: str, tolerance: float, normalization: Any) -> None:
    """FP-08, AX-18: as close as the conditioning of the K-matrices lets them be."""
    found = {}
    for precision in ("f64", "f32"):
        execution = ld.Execution(precision=precision, normalization=normalization)
        with pair(name, execution) as likelihood:
            found[precision] = likelihood.value_and_gradient()
    value, gradient = found["f64"]
    assert found["f32"][0] == pytest.approx(value, rel=tolerance)
    size = np.abs(gradient).max()
    np.testing.assert_allclose(found["f32"][1], gradient, rtol=0, atol=tolerance * size)


def test_resident_columns_take_half_of_the_memory() -> None:
    """By the plan's own numbers: 40 columns of 4 bytes and a weight of 8, per event."""
    events, kept = 100_000, {}
    for precision in ("f64", "f32"):
        execution = ld.Execution(
            precision=precision,
            storage="resident",
            normalization="general",
            threads=1,
            partitions=1,
        )
        with pair("A", execution, events) as likelihood:
            (data, mc) = likelihood.plan().decisions
            kept[precision] = data.resident_bytes
            assert mc.resident_bytes == data.resident_bytes
    assert kept["f64"] - kept["f32"] == pytest.approx(events * 40 * 4, rel=0.01)
    assert kept["f32"] < 0.52 * kept["f64"]


def test_memory_does_not_change_bits() -> None:
    """Where memory is short no other columns are kept, since each of them is rounded."""

    def found(**options: Any) -> tuple[tuple[str, ...], int]:
        with pair("C-free", single(threads=1, **options), 20_000) as likelihood:
            kept = [decision.strategy == "resident" for decision in likelihood.plan().decisions]
            return bits(likelihood), kept.count(False)

    ample, short = found(), found(memory="2 MiB")
    assert (ample[1], short[1]) == (0, 2)
    assert short[0] == ample[0]


def test_second_derivatives() -> None:
    """Rows of curvature are floats too, and weighted in double precision."""
    hessians = []
    for execution in (ld.Execution(), single()):
        with two_waves(execution) as likelihood:
            hessians.append(likelihood.hessian([0.6, 0.8]))
    exact, found = hessians
    assert (found == found.T).all()
    np.testing.assert_allclose(found, exact, rtol=0, atol=2e-6 * np.abs(exact).max())
    assert (found != exact).any()


def test_a_fit_converges() -> None:
    """To the minimum of double precision, within its own rounding."""
    term = ld.ExtendedNLL(scaled_model(), data=asimov(), accepted_mc=asimov())
    with ld.Likelihood([term], single()) as likelihood:
        start = likelihood.parameter_names
        assert len(start) == 3
        value, gradient = likelihood.value_and_gradient()
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()
    with two_waves(single(), data=asimov()) as likelihood:
        result = likelihood.fit([0.4, 0.3])
    with two_waves(data=asimov()) as likelihood:
        exact = likelihood.fit([0.4, 0.3])
    assert (np.abs(result.values - exact.values) < 0.01 * exact.errors).all()


@BACKENDS
@pytest.mark.parametrize("normalization", ["auto", "general", "verify"])
def test_verify_knows_the_precision(backend: Any, normalization: Any) -> None:
    """NQ-02: statistics are doubles, the sum that they are compared with is not."""
    with two_waves(single(backend=backend, normalization=normalization)) as likelihood:
        value, _ = likelihood.value_and_gradient()
    assert value == pytest.approx(numbers(reference("cpu"))[0], rel=1e-6)


def pass_forms(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each form that is asked for a frontier is regrouped, from now on."""
    asked: list[bool] = []
    original = forms.frontier_of

    def spy(model: CompiledModel, parameters: Array) -> Array | None:
        asked.append(model.programs.regrouped)
        return original(model, parameters)

    monkeypatch.setattr("laddu_dask.runtime.adaptive.frontier_of", spy)
    return asked


def likelihood_of(expr: ld.Expr, columns: dict[str, Any], execution: ld.Execution) -> ld.Likelihood:
    events = ld.Dataset.from_arrays(scalars=columns)
    term = ld.ExtendedNLL(ld.Model(expr), data=events, accepted_mc=events)
    return ld.Likelihood([term], execution)


@BACKENDS
def test_the_written_form_answers_outside_the_range(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of 2**100 show while preparing, although the written form never squares them."""
    asked = pass_forms(monkeypatch)
    columns = {"x": np.array([1.0, 2.0, 3.0]) * 2.0**50}
    expr = (P * X) ** 2 * Q + 1
    execution = single(backend=backend, normalization="general")
    with likelihood_of(expr, columns, execution) as likelihood:
        value, gradient = likelihood.value_and_gradient([0.5, 2.0**-100])
    assert asked[-2:] == [False, False]
    with likelihood_of(expr, columns, ld.Execution(normalization="general")) as likelihood:
        exact, slopes = likelihood.value_and_gradient([0.5, 2.0**-100])
    assert value == pytest.approx(exact, rel=1e-6)
    assert gradient == pytest.approx(slopes, rel=1e-6)


@BACKENDS
def test_parameters_outside_the_range_leave_the_regrouped_form(backend: Any) -> None:
    """|p|**2 is too large for products, |p x| is not; the same bits whatever came before."""
    columns = {"x": np.array([1.0, 2.0, 3.0]) * 1e-15, "y": np.array([1.0, 3.0, 2.0])}
    expr = (P * X * Y + Q).norm_sqr() + 1
    execution = single(backend=backend, normalization="general")
    with likelihood_of(expr, columns, execution) as likelihood:
        large = likelihood.value_and_gradient([3e14, 0.2])
        likelihood.value([0.1, 0.2])
        again = likelihood.value_and_gradient([3e14, 0.2])
        many, _ = likelihood.value_and_gradient_many([[0.1, 0.2], [3e14, 0.2]])
    assert large[0] == again[0] == many[1]
    assert (large[1] == again[1]).all()
    with likelihood_of(expr, columns, ld.Execution()) as likelihood:
        exact, slopes = likelihood.value_and_gradient([3e14, 0.2])
    assert large[0] == pytest.approx(exact, rel=1e-6)
    np.testing.assert_allclose(large[1], slopes, rtol=1e-5)


def test_small_columns_are_ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cosine near zero to the eighth power does not send a data set to the written form."""
    columns = {"x": np.linspace(-1, 1, 4001), "y": np.linspace(0.3, 3, 4001)}
    assert 0 < np.sort(np.abs(columns["x"]))[1] ** 8 < 2.0**-80
    expr = (P * X**4 + Q * Y).norm_sqr() + (Q * X).norm_sqr()
    asked = pass_forms(monkeypatch)
    execution = single(normalization="general")
    with likelihood_of(expr, columns, execution) as likelihood:
        value = likelihood.value([0.5, 0.3])
    assert asked == [True, True]
    with likelihood_of(expr, columns, ld.Execution()) as likelihood:
        assert value == pytest.approx(likelihood.value([0.5, 0.3]), rel=1e-6)


@BACKENDS
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_what_no_float_can_hold_is_an_error_that_says_so(backend: Any, scale: float) -> None:
    """FP-05: the test of the intensity is that of the float."""
    columns = {"x": np.array([1.0, scale, 2.0])}
    execution = single(backend=backend, normalization="general")
    with (
        likelihood_of((P * X) ** 2, columns, execution) as likelihood,
        pytest.raises(ld.EvaluationError, match="in single precision it is not positive") as caught,
    ):
        likelihood.value([0.5])
    assert caught.value.event == 1
    assert "use precision='f64'" in str(caught.value)
    with likelihood_of((P * X) ** 2, columns, ld.Execution()) as likelihood:
        assert np.isfinite(likelihood.value([0.5]))


@BACKENDS
def test_branches_not_taken_stay_silent(backend: Any) -> None:
    """T-09: an infinite slope in a branch that no event takes makes no NaN of the gradient."""
    columns = {"x": np.array([1.0, 2.0, 3.0]), "y": np.array([1.0, 3.0, 2.0])}
    expr = ld.where(X > 5, (P - 0.5).sqrt().real() * Y, Q * X) + 1
    with likelihood_of(expr, columns, single(backend=backend)) as likelihood:
        value, gradient = likelihood.value_and_gradient([0.5, 0.3])
    assert np.isfinite(value)
    assert gradient[0] == 0
    assert np.isfinite(gradient[1])
