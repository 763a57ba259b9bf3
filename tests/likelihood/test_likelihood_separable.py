"""Integrals that are summed once: the same objective, and no event read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from numpy.typing import NDArray
from two_wave_case import bits, expected, intensity, sample, two_waves

import laddu_dask as ld
from laddu_dask.compiler import IntegratedSum
from laddu_dask.errors import EvaluationError


@pytest.fixture(
    params=[
        pytest.param("here", id="here"),
        pytest.param("cluster", id="cluster", marks=pytest.mark.cluster),
    ]
)
def where(request: pytest.FixtureRequest) -> Client | None:
    """None for this process, else a client of the cluster."""
    return None if request.param == "here" else request.getfixturevalue("client")


@pytest.mark.parametrize("extended", [False, True], ids=["nll", "extended"])
def test_two_waves(extended: bool) -> None:
    """The recorded numbers hold, and differ from the general form by rounding only."""
    case = expected()["two_waves"]
    name = "extended_nll" if extended else "nll"
    gradient_name = "extended_gradient" if extended else "nll_gradient"
    with (
        two_waves(extended=extended, normalization="auto") as separated,
        two_waves(extended=extended, normalization="verify") as verified,
        two_waves(extended=extended) as general,
    ):
        value, gradient = separated.value_and_gradient()
        assert value == pytest.approx(case[name], rel=1e-13)
        np.testing.assert_allclose(gradient, case[gradient_name], rtol=1e-11)
        other, slopes = general.value_and_gradient()
        assert value == pytest.approx(other, rel=1e-14)
        np.testing.assert_allclose(gradient, slopes, rtol=1e-12)
        assert bits(verified) == bits(separated)
        assert "separable" in str(separated.plan())


@pytest.mark.parametrize("partitions", [1, 3, 17])
def test_bits_do_not_depend_on_the_cut(where: Client | None, partitions: int) -> None:
    """DK-15: statistics are sums like all others."""
    with two_waves(ld.Execution(), normalization="auto") as reference:
        wanted = bits(reference)
    execution = ld.Execution(cluster=where, partitions=partitions, chunk_events=1500)
    with two_waves(execution, normalization="auto") as cut:
        assert bits(cut) == wanted


def test_the_events_are_not_needed_any_more(tmp_path: Path) -> None:
    """After the first evaluation the accepted Monte Carlo may go."""
    path = tmp_path / "mc.parquet"
    path.write_bytes((Path(sample("mc").files[0])).read_bytes())
    mc = ld.read_parquet(path)
    with two_waves(accepted_mc=mc, normalization="auto") as likelihood:
        before = bits(likelihood)
        path.unlink()
        assert bits(likelihood) == before
        assert likelihood.value([0.5, 0.1]) == pytest.approx(
            expected()["two_waves"]["nll_at_0.5_0.1"], rel=1e-13
        )


def test_a_sum_of_both_kinds() -> None:
    """One wave of free mass beside a separable part: only the former runs over events."""
    x = np.linspace(0.5, 2.0, 3000)
    free = (1 / (ld.parameter("m", initial=1.1) ** 2 - ld.scalar("x") - 0.1j)).norm_sqr()
    model = ld.Model(free + ld.parameter("b", initial=0.7) * ld.scalar("x") + 0.1)
    data = ld.Dataset.from_arrays(scalars={"x": x[::7]})
    mc = ld.Dataset.from_arrays(scalars={"x": x}, weights=np.cos(x))
    found = []
    for normalization in ("auto", "general", "verify"):
        execution = ld.Execution(normalization=normalization)  # type: ignore[arg-type]
        with ld.Likelihood([ld.NLL(model, data=data, accepted_mc=mc)], execution) as likelihood:
            value, gradient = likelihood.value_and_gradient([1.2, 0.3])
            found.append((value, *gradient.tolist()))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    assert found[2] == found[0]


def test_an_event_that_is_not_finite_is_found(tmp_path: Path) -> None:
    """Statistics cannot say which event was bad; the general form can."""
    x = np.linspace(0.0, 1.0, 2000)
    x[1234] = np.nan
    path = tmp_path / "mc.parquet"
    pq.write_table(pa.table({"x": x}), path)
    model = 1 + ld.parameter("a", initial=0.5) * ld.scalar("x")
    data = ld.Dataset.from_arrays(scalars={"x": np.linspace(0, 1, 10)})
    term = ld.NLL(model, data=data, accepted_mc=ld.read_parquet(path), name="signal")
    with (
        ld.Likelihood([term]) as likelihood,
        pytest.raises(EvaluationError, match=r"signal.*accepted_mc.*event 1234") as caught,
    ):
        likelihood.value()
    assert caught.value.event == 1234


def test_a_budget_for_events_but_not_for_statistics() -> None:
    """With little memory a long list of statistics is given up, not the fit."""
    waves: Any = sum(
        (
            ld.complex(ld.parameter(f"r{k}", initial=1.0), ld.parameter(f"i{k}", initial=0.1))
            * ld.complex(ld.scalar("x") ** (k % 3), ld.scalar("y") ** (k % 5 + 1) + k)
            for k in range(20)
        ),
        ld.Expr(0.0),
    )
    rng = np.random.default_rng(2)
    columns = {name: rng.uniform(-1, 1, 5000) for name in "xy"}
    mc = ld.Dataset.from_arrays(scalars=columns)
    term = ld.NLL(waves.norm_sqr(), data=mc, accepted_mc=mc, name="signal")
    with ld.Likelihood([term], ld.Execution(threads=1)) as roomy:
        assert "separable" in str(roomy.plan())
        value = roomy.value()
    with ld.Likelihood([term], ld.Execution(threads=1, memory="1 MiB")) as tight:
        assert "separable" not in str(tight.plan())
        assert tight.value() == pytest.approx(value, rel=1e-13)


def test_fit(where: Client | None) -> None:
    """The fit of Asimov data ends where it must."""
    case = expected()["asimov_fit"]
    mc = sample("mc")
    rate = mc.weights() * ld.Model(intensity()).evaluate(mc, [0.7, 0.9], real=True)
    asimov = mc.with_weights(1000 * rate / rate.sum())
    execution = ld.Execution(cluster=where)
    with two_waves(execution, data=asimov, normalization="auto") as likelihood:
        result = likelihood.fit([0.4, 0.3])
    assert result.converged
    np.testing.assert_allclose(result.values, case["minimum"], atol=1e-8)
    assert result.objective == pytest.approx(case["objective"], rel=1e-13)


P, Q = ld.parameter("p", initial=0.3), ld.parameter("q", initial=0.7)
MASS, OTHER = ld.scalar("m"), ld.scalar("y")
BREAKUP = (1 - 1 / MASS**2).sqrt()
PHASES = np.linspace(0.0, 1.0, 3000)
ROOTS = {"m": np.linspace(0.8, 2.0, 3000)}


@pytest.mark.parametrize(
    ("intensity", "columns", "point"),
    [
        # A root that is imaginary below threshold, and its square, which is real everywhere.
        ((ld.complex(P, Q) * BREAKUP).real() ** 2 + 0.1, ROOTS, [0.3, 0.7]),
        (((P + Q * BREAKUP) * BREAKUP).norm_sqr() + 0.1, ROOTS, [0.3, 0.7]),
        ((ld.complex(P, Q) * BREAKUP).imag() ** 2 + 0.1, ROOTS, [0.3, 0.7]),
        # Multiplied out, twelve digits cancel.
        ((MASS - P) ** 2 + Q**2, {"m": 1e6 + np.sin(7 * PHASES)}, [1e6, 0.7]),
        # Multiplied out, the square of m overflows though no written value does.
        (
            (P * MASS * OTHER + Q * OTHER * 1e8).norm_sqr(),
            {"m": np.full(3000, 1e160), "y": 1e-161 * (1 + PHASES)},
            [0.3, 0.7],
        ),
    ],
    ids=["real part of a root", "root times root", "imaginary part", "cancellation", "range"],
)
def test_multiplied_out_equals_the_sum_over_events(
    intensity: ld.Expr, columns: dict[str, NDArray[Any]], point: list[float]
) -> None:
    """Where the statistics cannot hold twelve digits, the events are summed instead."""
    data = ld.Dataset.from_arrays(scalars={name: v[::7] for name, v in columns.items()})
    mc = ld.Dataset.from_arrays(scalars=columns)
    found = []
    for normalization in ("auto", "general"):
        execution = ld.Execution(normalization=normalization)  # type: ignore[arg-type]
        term = ld.NLL(ld.Model(intensity), data=data, accepted_mc=mc)
        with ld.Likelihood([term], execution) as likelihood:
            value, gradient = likelihood.value_and_gradient(point)
            found.append((value, *gradient.tolist()))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-11)


def test_a_derivative_beyond_the_largest_number_is_refused() -> None:
    """Every event is finite; the quotient of the sums is not."""
    x = np.linspace(1.0, 2.0, 100)
    data = ld.Dataset.from_arrays(scalars={"m": x}, weights=np.full(100, 1e60))
    mc = ld.Dataset.from_arrays(scalars={"m": x}, weights=np.full(100, 1e-100))
    model = ld.Model(1e-200 * MASS + 1e-203 * P)
    with (
        ld.Likelihood([ld.NLL(model, data=data, accepted_mc=mc)]) as likelihood,
        pytest.raises(EvaluationError, match="derivative.*p") as caught,
    ):
        likelihood.value_and_gradient([0.5])
    assert caught.value.names == ["p"]


def test_derivatives_beyond_the_separated_form_are_those_of_the_written_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The value keeps its bits, at that point and at those that share a pass with it."""
    with two_waves(normalization="auto") as likelihood:
        usual = [likelihood.default_parameters, likelihood.default_parameters * 1.1]
        values, gradients = likelihood.value_and_gradient_many(usual)
        gradient = IntegratedSum.gradient

        def spoiled(self: IntegratedSum, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
            found = gradient(self, parameters)
            return found if (parameters == usual[0]).all() else found * np.inf

        monkeypatch.setattr(IntegratedSum, "gradient", spoiled)
        found, slopes = likelihood.value_and_gradient_many(usual)
        assert found.tolist() == values.tolist() == likelihood.value_many(usual).tolist()
        assert slopes[0].tolist() == gradients[0].tolist()
        np.testing.assert_allclose(slopes[1], gradients[1], rtol=1e-11)
