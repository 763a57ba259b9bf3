"""Hessians, Hessian-vector products, modes of differentiation and many points in one pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import permutations
from typing import Any

import models
import numpy as np
import pytest
from counting_source import counting
from distributed import Client
from numpy.typing import NDArray
from two_wave_case import asimov, bits, sample, scaled_model, two_waves

import laddu_dask as ld
from laddu_dask.errors import EvaluationError, ParameterError
from laddu_dask.fit.hessian import hessian as by_differences

Array = NDArray[np.float64]
POINTS = [[0.7, 0.9], [0.5, 0.1], [1.3, -2.0], [0.7, 0.9]]
X = ld.scalar("x")


def likelihood_of(
    intensity: ld.Expr, columns: dict[str, Any], kind: Any = ld.NLL, **options: Any
) -> ld.Likelihood:
    """A few of the events as data, all as accepted Monte Carlo."""
    data = ld.Dataset.from_arrays(scalars={name: np.copy(v[::7]) for name, v in columns.items()})
    mc = ld.Dataset.from_arrays(scalars=columns)
    term = kind(ld.Model(intensity), data=data, accepted_mc=mc)
    return ld.Likelihood([term], ld.Execution(**options))


def differences(likelihood: ld.Likelihood, at: Any, step: float = 2.0**-10) -> Array:
    """Five-point differences of the gradient, extrapolated once more."""
    at = np.asarray(at, dtype=float)

    def column(direction: Array, h: float) -> Array:
        moved = [at + k * h * direction for k in (-2, -1, 1, 2)]
        g = likelihood.value_and_gradient_many(moved)[1]
        return np.asarray((g[0] - 8 * g[1] + 8 * g[2] - g[3]) / (12 * h))

    return np.array([(16 * column(e, step / 2) - column(e, step)) / 15 for e in np.eye(len(at))])


def check_hessian(likelihood: ld.Likelihood, at: Any, tolerance: float = 1e-8) -> Array:
    """Symmetric, equal to differences, and what products are made of."""
    found = likelihood.hessian(at)
    n = len(likelihood.parameter_names)
    assert found.shape == (n, n)
    assert (found == found.T).all()
    size = np.abs(found).max()
    np.testing.assert_allclose(found, differences(likelihood, at), rtol=0, atol=tolerance * size)
    rng = np.random.default_rng(4)
    for direction in (np.eye(n)[0], rng.normal(size=n), np.zeros(n)):
        product = likelihood.hessian_vector_product(at, direction)
        np.testing.assert_allclose(product, found @ direction, rtol=0, atol=1e-13 * n * size)
    return found


# modes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("normalization", ["auto", "general"])
def test_modes_agree(backend: Any, normalization: Any) -> None:
    """AD-03, AD-04: value to the last bit, gradient and Hessian to 1e-12."""
    found = {}
    for mode in ("auto", "forward", "reverse"):
        execution = ld.Execution(backend=backend, autodiff=mode)
        with two_waves(execution, normalization=normalization) as likelihood:
            found[mode] = (*likelihood.value_and_gradient(POINTS[1]), likelihood.hessian(POINTS[1]))
    for mode in ("auto", "forward"):
        assert found[mode][0] == found["reverse"][0]
        np.testing.assert_allclose(found[mode][1], found["reverse"][1], rtol=1e-12)
        np.testing.assert_allclose(found[mode][2], found["reverse"][2], rtol=1e-12)


def test_modes_agree_with_known_numbers() -> None:
    """AX-15, T-33: only the real part of the model enters."""
    s, phi = ld.parameter("s", initial=0.4), ld.parameter("phi", initial=-0.2)
    model = ld.complex(ld.complex((X * s).sin(), (X + phi).cos()).norm_sqr() + 0.5, X * s)
    data = ld.Dataset.from_arrays(
        scalars={"x": np.array([0.25, 0.75, 1.25])}, weights=np.array([0.5, 1.5, 2.0])
    )
    one = ld.Dataset.from_arrays(scalars={"x": np.ones(1)})
    for mode in ("forward", "reverse"):
        term = ld.ExtendedNLL(model, data=data, accepted_mc=one)
        execution = ld.Execution(autodiff=mode)
        with ld.Likelihood([term], execution) as likelihood:
            _, gradient = likelihood.value_and_gradient()
            angle = 0.8  # 1 + phi: the accepted event
            mc = np.array([np.sin(2 * 0.4), -np.sin(2 * angle)])
            log = np.array([2.6521157014105017, -2.8166634486059028])
            np.testing.assert_allclose(gradient, 2 * (mc - log), rtol=1e-12)


# Hessians ----------------------------------------------------------------------------------


@pytest.mark.parametrize("extended", [False, True], ids=["nll", "extended"])
@pytest.mark.parametrize("normalization", ["auto", "general", "verify"])
def test_two_waves(normalization: Any, extended: bool) -> None:
    """All terms count: data, ln of the integral or the integral itself; separated or not."""
    with two_waves(extended=extended, normalization=normalization) as likelihood:
        found = check_hessian(likelihood, POINTS[1])
    with two_waves(extended=extended) as general:
        np.testing.assert_allclose(found, general.hessian(POINTS[1]), rtol=1e-11)


def test_terms_that_share_parameters() -> None:
    """Each term has its own order and choice of parameters; one has none at all."""
    a, b, c = (ld.parameter(name, initial=0.5) for name in "abc")
    columns = {"x": np.linspace(0.1, 1.0, 2000)}
    mc = ld.Dataset.from_arrays(scalars=columns)
    data = ld.Dataset.from_arrays(scalars={"x": np.linspace(0.2, 0.9, 50)})
    terms = [
        ld.NLL((a * X + b).norm_sqr() + 0.1, data=data, accepted_mc=mc, name="first"),
        ld.ExtendedNLL((c * X).exp() + b**2, data=data, accepted_mc=mc, name="second"),
        ld.NLL(X + 1, data=data, accepted_mc=mc, name="third"),
    ]
    with ld.Likelihood(terms) as together:
        at = {"a": 0.3, "b": 0.8, "c": -0.4}
        whole = check_hessian(together, together.vector(at))
        assert together.parameter_names == ("a", "b", "c")
    with ld.Likelihood(terms[:1]) as first, ld.Likelihood(terms[1:2]) as second:
        expected = np.zeros((3, 3))
        expected[:2, :2] += first.hessian([0.3, 0.8])
        assert second.parameter_names == ("c", "b")
        expected[np.ix_([2, 1], [2, 1])] += second.hessian([-0.4, 0.8])
    np.testing.assert_allclose(whole, expected, rtol=1e-13, atol=1e-12)
    with ld.Likelihood(terms[2:]) as third:
        assert third.hessian().shape == (0, 0)
        assert third.hessian_vector_product(None, []).shape == (0,)


@pytest.mark.parametrize("name", models.MODELS)
def test_models_of_the_benchmark(name: str) -> None:
    """K-matrices with free couplings, free masses and widths, many separable waves (AX-17)."""
    intensity = models.MODELS[name](ld)
    columns = models.events(name, 1000, "accepted_mc")
    with likelihood_of(intensity, columns, backend="interpreter", threads=1) as likelihood:
        found = likelihood.hessian()
        n = len(likelihood.parameter_names)
        scale = np.sqrt(np.abs(np.outer(np.diag(found), np.diag(found)))) + np.abs(found).max() / n
        rng = np.random.default_rng(8)
        for _ in range(2):
            direction, h = rng.normal(size=n), 2.0**-17
            at = likelihood.default_parameters
            g = likelihood.value_and_gradient_many(
                [at + k * h * direction for k in (-2, -1, 1, 2)]
            )[1]
            expected = (g[0] - 8 * g[1] + 8 * g[2] - g[3]) / (12 * h)
            error = np.abs(found @ direction - expected)
            assert (error <= 1e-6 * scale.max(axis=1) * np.abs(direction).sum()).all()
            product = likelihood.hessian_vector_product(at, direction)
            np.testing.assert_allclose(product, found @ direction, rtol=0, atol=1e-11 * scale.max())


def test_where_and_thresholds() -> None:
    """Branches by parameters and by events; events at, above and below a threshold."""
    a, b = ld.parameter("a", initial=0.8), ld.parameter("b", initial=0.3)
    root = (X - 0.5).sqrt()
    intensity = (
        ld.where(b + 0.3 > X, (a * X).exp(), 1 + a * X * b)
        + (a * root + b).norm_sqr()
        + ld.maximum(a, b) * X
    )
    columns = {"x": np.linspace(0.0, 1.0, 2001)}  # 0.5 is among them
    for normalization in ("auto", "general"):
        with likelihood_of(intensity, columns, normalization=normalization) as likelihood:
            check_hessian(likelihood, [0.8, 0.30013])


def test_the_written_form_answers_where_the_fast_one_cannot() -> None:
    """Statistics of (m - p)**2 cancel twelve digits: that evaluation goes to the events."""
    p, q = ld.parameter("p", initial=0.3), ld.parameter("q", initial=0.7)
    m = ld.scalar("m")
    columns = {"m": 1e6 + np.sin(np.linspace(0.0, 7.0, 3000))}
    found = []
    for normalization in ("auto", "general"):
        with likelihood_of((m - p) ** 2 + q**2, columns, normalization=normalization) as likelihood:
            found.append(likelihood.hessian([1e6, 0.7]))
            many, gradients = likelihood.value_and_gradient_many([[0.3, 0.7], [1e6, 0.7]])
            for k, point in enumerate([[0.3, 0.7], [1e6, 0.7]]):
                value, gradient = likelihood.value_and_gradient(point)
                assert many[k] == value
                assert (gradients[k] == gradient).all()
    np.testing.assert_allclose(found[0], found[1], rtol=1e-11)
    x, sums = columns["m"] - 1e6, np.float64(len(columns["m"]))
    total = (x**2).sum() + 0.49 * sums
    data = x[::7] ** 2 + 0.49
    expected = 2 * (
        len(data) * (2 * sums / total - (2 * x.sum() / total) ** 2)
        - (2 / data - (2 * x[::7] / data) ** 2).sum()
    )
    assert found[0][0, 0] == pytest.approx(expected, rel=1e-8)


def test_a_second_derivative_that_is_infinite() -> None:
    """Value and gradient are numbers of 1e160 and less; the second derivative would be 1e320."""
    p = ld.parameter("p", initial=0.0)
    columns = {"x": np.linspace(1.0, 2.0, 100)}
    with likelihood_of(1e-160 * X + p, columns) as likelihood:
        value, gradient = likelihood.value_and_gradient([0.0])
        assert np.isfinite([value, *gradient]).all()
        with pytest.raises(EvaluationError, match="event 0 .*a derivative of it"):
            likelihood.hessian([0.0])


def test_a_second_derivative_that_does_not_exist() -> None:
    """|p x|**1.5 has infinite curvature at p = 0; like a missing slope it is taken for zero."""
    columns = {"x": np.linspace(0.0, 1.0, 100)}
    with likelihood_of(abs(ld.parameter("p", initial=0.5) * X) ** 1.5 + 1, columns) as likelihood:
        check_hessian(likelihood, [0.5])
        np.testing.assert_array_equal(likelihood.hessian([0.0]), [[0.0]])


def test_mistakes() -> None:
    with two_waves() as likelihood:
        with pytest.raises(ParameterError, match="NaN: pha"):
            likelihood.hessian([0.7, np.nan])
        with pytest.raises(ParameterError, match="NaN: mag"):
            likelihood.hessian_vector_product(None, [np.nan, 1.0])
        with pytest.raises(ParameterError):
            likelihood.hessian_vector_product(None, [1.0])
        with pytest.raises(ParameterError):
            likelihood.hessian({"nonsense": 1.0})
        with pytest.raises(ParameterError):
            likelihood.value_many([[0.7, 0.9], [0.7]])


# bits --------------------------------------------------------------------------------------


def all_bits(likelihood: ld.Likelihood) -> tuple[str, ...]:
    values, gradients = likelihood.value_and_gradient_many(POINTS)
    numbers = [
        *values,
        *gradients.flat,
        *likelihood.hessian(POINTS[1]).flat,
        *likelihood.hessian_vector_product(POINTS[1], [0.3, -2.0]),
    ]
    return tuple(float(number).hex() for number in numbers)


@cache
def reference(normalization: Any) -> tuple[str, ...]:
    execution = ld.Execution(threads=1, partitions=1, storage="resident")
    with two_waves(execution, normalization=normalization) as likelihood:
        return all_bits(likelihood)


@pytest.mark.parametrize("normalization", ["auto", "general"])
@pytest.mark.parametrize(
    ("storage", "partitions", "chunk"),
    [
        ("resident", 3, None),
        ("resident", 17, 1000),
        ("spilled", 3, 1000),
        ("streaming", 1, 1),
        ("streaming", 3, 5000),
        ("streaming", 17, None),
    ],
)
def test_bits_do_not_depend_on_the_cut(
    storage: Any, partitions: int, chunk: int | None, normalization: Any
) -> None:
    """DK-15: second derivatives and many points too."""
    execution = ld.Execution(storage=storage, partitions=partitions, chunk_events=chunk, threads=2)
    with two_waves(execution, normalization=normalization) as likelihood:
        assert all_bits(likelihood) == reference(normalization)


@pytest.mark.cluster
@pytest.mark.parametrize("storage", ["resident", "streaming"])
def test_bits_on_a_cluster(client: Client, storage: Any) -> None:
    """DK-15: two worker processes."""
    execution = ld.Execution(cluster=client, storage=storage, partitions=5)
    with two_waves(execution) as likelihood:
        assert all_bits(likelihood) == reference("general")


# many points -------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_many_points_have_the_bits_of_each(backend: Any) -> None:
    """EV-02, EV-18, T-37: whatever else is evaluated beside it, and in what order."""
    with two_waves(ld.Execution(backend=backend, partitions=2)) as likelihood:
        single = [bits(likelihood, point) for point in POINTS]
        for order in permutations(range(4)):
            points = np.array(POINTS)[list(order)]
            values, gradients = likelihood.value_and_gradient_many(points)
            for k, value, gradient in zip(order, values, gradients, strict=True):
                assert (value.hex(), *(g.hex() for g in gradient.tolist())) == single[k]
            assert (likelihood.value_many(points) == values).all()


def test_no_points_and_one() -> None:
    """EV-03, T-43."""
    with two_waves() as likelihood:
        assert likelihood.value_many([]).shape == (0,)
        values, gradients = likelihood.value_and_gradient_many([])
        assert values.shape == (0,)
        assert gradients.shape == (0, 2)
        values, gradients = likelihood.value_and_gradient_many([{"mag": 0.6}])
        assert gradients.shape == (1, 2)
        assert values[0] == likelihood.value({"mag": 0.6})


def test_a_point_without_a_value_is_named() -> None:
    """T-36, T-42: the first of them, whichever event or worker tells."""
    columns = {"x": np.linspace(0.1, 1.0, 3000)}
    with likelihood_of(1 + ld.parameter("a", initial=0.5) * X, columns) as likelihood:
        with pytest.raises(
            EvaluationError, match=r"parameter point 1: .*must be positive"
        ) as found:
            likelihood.value_many([[0.5], [-30.0], [-20.0]])
        assert found.value.context["point"] == 1
        assert found.value.term == "nll"
        with pytest.raises(EvaluationError, match=r"^term 'nll'"):
            likelihood.value_many([[-30.0]])


@pytest.mark.parametrize(
    "ask",
    [
        lambda likelihood: likelihood.value_many(np.linspace(0.1, 1.0, 7)[:, None]),
        lambda likelihood: likelihood.value_and_gradient_many(np.linspace(0.1, 1.0, 7)[:, None]),
        lambda likelihood: likelihood.hessian(),
    ],
    ids=["values", "gradients", "hessian"],
)
def test_the_source_is_read_once_for_all(ask: Callable[[ld.Likelihood], Any]) -> None:
    """EV-02, T-37: a streaming pass reads each data set once, however many points it serves."""
    plain = ld.Dataset.from_arrays(scalars={"x": np.linspace(0.1, 1.0, 3000)})
    dataset, reads = counting(plain)
    term = ld.NLL((ld.parameter("a", initial=0.5) * X).exp(), data=dataset, accepted_mc=dataset)
    execution = ld.Execution(storage="streaming", partitions=1, threads=1)
    with ld.Likelihood([term], execution) as likelihood:
        likelihood.value()  # prepares
        before = len(reads)
        ask(likelihood)
        assert len(reads) == before + 2  # as data and as accepted Monte Carlo


# fits --------------------------------------------------------------------------------------


def test_errors_of_a_fit_come_from_the_exact_hessian() -> None:
    """The covariance is 2 H^-1, and the search needs few passes for it."""
    with two_waves(data=asimov(), normalization="auto") as likelihood:
        result = likelihood.fit([0.4, 0.3])
        hessian = likelihood.hessian(result.values)
        rough = by_differences(likelihood, result.values)
    assert result.converged
    np.testing.assert_allclose(result.covariance @ hessian, 2 * np.eye(2), atol=1e-12)
    np.testing.assert_allclose(hessian, rough, rtol=1e-8)


def test_a_parameter_on_its_bound() -> None:
    """The exact Hessian needs no room inside the bounds."""
    with ld.Likelihood(
        [ld.ExtendedNLL(scaled_model(), data=sample("data"), accepted_mc=sample("mc"))]
    ) as likelihood:
        assert "scale" in likelihood.parameter_names
        at = likelihood.vector({"scale": 1e-3})
        found = likelihood.hessian(at)
        place = likelihood.parameter_names.index("scale")
        # -2 sum w ln(scale ...): second derivative 2 N / scale**2
        n = sample("data").weights().sum()
        assert found[place, place] == pytest.approx(2 * n / 1e-6, rel=1e-12)
