"""The recorded cases: two waves, an Asimov fit, an extended fit, a scalar expression.

They hold for any number of partitions, resident and streaming, here and on a cluster
(AX rows of the acceptance table; DK-15).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed import Client
from two_wave_case import asimov, expected, sample, scaled_model, two_waves

import laddu_dask as ld

HERE = pytest.param("here", id="here")
CLUSTER = pytest.param("cluster", id="cluster", marks=pytest.mark.cluster)
PARTITIONS = pytest.mark.parametrize("partitions", [1, 3, 17])
STORAGES = pytest.mark.parametrize("storage", ["resident", "streaming"])
BACKENDS = pytest.mark.parametrize("backend", ["cpu", "interpreter"])


@pytest.fixture(params=[HERE, CLUSTER])
def where(request: pytest.FixtureRequest) -> Client | None:
    """None for this process, else a client of the cluster, started when first asked for."""
    return None if request.param == "here" else request.getfixturevalue("client")


@PARTITIONS
@STORAGES
@BACKENDS
def test_two_waves(where: Client | None, backend: Any, storage: Any, partitions: int) -> None:
    """NLL and ExtendedNLL with gradients at one point, and the NLL at another."""
    case = expected()["two_waves"]
    execution = ld.Execution(backend=backend, storage=storage, partitions=partitions, cluster=where)
    with two_waves(execution) as likelihood:
        assert likelihood.parameter_names == ("mag", "pha")
        value, gradient = likelihood.value_and_gradient(case["at"])
        assert value == pytest.approx(case["nll"], rel=1e-12)
        assert gradient == pytest.approx(case["nll_gradient"], rel=1e-10)
        assert likelihood.value([0.5, 0.1]) == pytest.approx(case["nll_at_0.5_0.1"], rel=1e-12)
    with two_waves(execution, extended=True) as likelihood:
        value, gradient = likelihood.value_and_gradient(case["at"])
        assert value == pytest.approx(case["extended_nll"], rel=1e-12)
        assert gradient == pytest.approx(case["extended_gradient"], rel=1e-10)


@PARTITIONS
@pytest.mark.parametrize(
    ("backend", "storage"),
    [("cpu", "resident"), ("cpu", "spilled"), ("cpu", "streaming"), ("interpreter", "resident")],
)
def test_asimov_fit(where: Client | None, backend: Any, storage: Any, partitions: int) -> None:
    """The minimum is where the weights were made, with the covariance of the exact Hessian."""
    case = expected()["asimov_fit"]
    execution = ld.Execution(backend=backend, storage=storage, partitions=partitions, cluster=where)
    with two_waves(execution, data=asimov()) as likelihood:
        result = likelihood.fit(case["start"])
    assert result.converged, result.message
    assert result.values == pytest.approx(case["minimum"], abs=case["minimum_tolerance"])
    assert result.objective == pytest.approx(case["objective"], rel=1e-12)
    covariance = np.array(case["covariance"])
    assert np.abs(result.covariance - covariance).max() < 1e-8 * np.abs(covariance).max()


@pytest.mark.parametrize("start", [0, 1], ids=["badly-scaled-start", "near-start"])
@pytest.mark.parametrize(
    ("storage", "partitions"), [("resident", 1), ("resident", 17), ("streaming", 3)]
)
def test_extended_fit(where: Client | None, storage: Any, partitions: int, start: int) -> None:
    """Both starts reach the minimum, the one with a scale a hundred times too large as well."""
    case = expected()["extended_fit"]
    execution = ld.Execution(storage=storage, partitions=partitions, cluster=where)
    term = ld.ExtendedNLL(scaled_model(), data=asimov(), accepted_mc=sample("mc"))
    with ld.Likelihood([term], execution) as likelihood:
        assert likelihood.parameter_names == ("scale", "mag", "pha")
        result = likelihood.fit(case["starts"][start])
    assert result.converged, result.message
    assert result.values == pytest.approx(case["minimum"], rel=1e-7)
    assert result.objective == pytest.approx(case["objective"], rel=1e-12)
    assert result.errors == pytest.approx(case["standard_errors"], abs=1e-8)


@BACKENDS
@PARTITIONS
@STORAGES
def test_a_scalar_expression_as_intensity(
    where: Client | None, storage: Any, partitions: int, backend: Any
) -> None:
    """Every event has the recorded a and b, scaled by the parameters p = q = 1.

    With n data and m accepted events the objective is 2 n log m, whatever the value, and its
    gradient is zero; the extended one tells the value and its derivatives: with I the value,
    2 (m I - n log I) and 2 (m - n / I) a dI/da.
    """
    case = expected()["scalar_expression"]
    at = case["parameters"]
    a = ld.parameter("p", initial=1) * ld.scalar("a")
    b = ld.parameter("q", initial=1) * ld.scalar("b")
    z = ld.complex(a, b)
    expression = (
        ((a * b).exp() + 1j * a.sin() * b.cos()).norm_sqr() / (a**2 + 2)
        + ld.atan2(a, b)
        + z.sqrt().real()
        + z.log().imag()
    )
    n, m = 40, 100

    def events(count: int) -> ld.Dataset:
        return ld.Dataset.from_arrays(scalars={k: np.full(count, at[k]) for k in ("a", "b")})

    execution = ld.Execution(backend=backend, storage=storage, partitions=partitions, cluster=where)
    value = case["value"]
    shape = ld.NLL(expression, data=events(n), accepted_mc=events(m))
    with ld.Likelihood([shape], execution) as likelihood:
        assert likelihood.parameter_names == ("p", "q")
        objective, gradient = likelihood.value_and_gradient()
        assert objective == pytest.approx(2 * n * np.log(m), rel=1e-12)
        assert gradient == pytest.approx([0, 0], abs=1e-10)
    rate = ld.ExtendedNLL(expression, data=events(n), accepted_mc=events(m))
    with ld.Likelihood([rate], execution) as likelihood:
        objective, gradient = likelihood.value_and_gradient()
    assert objective == pytest.approx(2 * (m * value - n * np.log(value)), rel=1e-12)
    slopes = np.array(case["gradient"]) * [at["a"], at["b"]]
    assert gradient == pytest.approx(2 * (m - n / value) * slopes, rel=1e-7)
