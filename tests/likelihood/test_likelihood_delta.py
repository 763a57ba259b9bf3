"""Differences of the objective between two points, without cancellation."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

import mpmath
import numpy as np
import pytest
from counting_source import counting
from distributed import Client
from two_wave_case import two_waves

import laddu_dask as ld
from laddu_dask.errors import EvaluationError, ParameterError

P = np.array([0.7, 0.9])
Q = P * (1 + 1e-9)
R = np.array([0.8, 0.7])

X = ld.scalar("x")
A = ld.parameter("a", initial=1.0)
NONE = ld.Dataset.from_arrays(scalars={"x": np.zeros(0)})


def test_only_the_last_rounding_of_a_rate() -> None:
    """AC-03: without data the objective is twice a sum of products that are all exact.

    Weights have either sign, and parts of the sum reach over seventy bits.
    """
    rng = np.random.default_rng(1)
    x = rng.integers(1, 1000, 5000).astype(float)
    weights = rng.integers(-(2**10), 2**10, 5000) * 2.0**-22
    weights[0] = 2.0**13
    mc = ld.Dataset.from_arrays(scalars={"x": x}, weights=weights)
    term = ld.ExtendedNLL(A * X + ld.parameter("b") * X**2, data=NONE, accepted_mc=mc)
    likelihood = ld.Likelihood([term], ld.Execution(normalization="general"))

    def total(a: float, b: float) -> Fraction:
        values = [Fraction(a) * int(v) + Fraction(b) * int(v) ** 2 for v in x]
        return sum(v * Fraction(w) for v, w in zip(values, weights.tolist(), strict=True))

    p, q, r = (1024.0, 3.0), (1024.0 + 2.0**-15, 3.0), (1.0, 0.25)
    assert likelihood.delta(q, p) == float(2 * (total(*q) - total(*p)))
    assert likelihood.delta(r, p) == float(2 * (total(*r) - total(*p)))
    found = likelihood.delta_many([p, q, r], p)
    assert found.tolist() == [0.0, likelihood.delta(q, p), likelihood.delta(r, p)]


@pytest.mark.parametrize("kind", [ld.NLL, ld.ExtendedNLL])
@pytest.mark.parametrize("normalization", ["general", "auto"])
@pytest.mark.parametrize("step", [0.5, 1e-6, 1e-10, 2.0**-45])
def test_against_many_digits(
    kind: type[ld.NLL], normalization: Literal["general", "auto"], step: float
) -> None:
    """Within what the values of events are off by: 1e-16 of each, not of the objective."""
    rng = np.random.default_rng(2)
    x, y = rng.uniform(0.5, 1.5, 400), rng.uniform(0.5, 1.5, 700)
    v, w = rng.uniform(0.1, 2.0, 400), rng.uniform(0.1, 2.0, 700)
    term = kind(
        A * X + 3.5,
        data=ld.Dataset.from_arrays(scalars={"x": x}, weights=v),
        accepted_mc=ld.Dataset.from_arrays(scalars={"x": y}, weights=w),
    )
    likelihood = ld.Likelihood([term], ld.Execution(normalization=normalization))

    def objective(a: float) -> Any:
        mp = mpmath.mpf
        logs = mpmath.fsum(
            mp(c) * mpmath.log(mp(a) * mp(b) + 3.5) for b, c in zip(x, v, strict=True)
        )
        rate = mpmath.fsum(mp(c) * (mp(a) * mp(b) + 3.5) for b, c in zip(y, w, strict=True))
        if kind is ld.ExtendedNLL:
            return 2 * (rate - logs)
        return 2 * (mp(math.fsum(v)) * mpmath.log(rate) - logs)

    with mpmath.workdps(50):
        truth = objective(1 + step) - objective(1.0)
        found = likelihood.delta([1 + step], [1.0])
        roundings = 2 * (math.fsum(v) + math.fsum(5 * w)) * 2.0**-53
        assert abs(found - truth) <= roundings


@pytest.mark.parametrize("normalization", ["general", "auto"])
@pytest.mark.parametrize("extended", [False, True])
def test_rules_of_a_difference(normalization: Any, extended: bool) -> None:
    with two_waves(normalization=normalization, extended=extended) as likelihood:
        delta = likelihood.delta
        for p, q in ((P, Q), (P, R), (R, Q)):
            assert delta(p, p) == 0.0
            assert delta(q, p) == -delta(p, q)
            assert delta(p, q) == pytest.approx(
                likelihood.value(p) - likelihood.value(q), abs=1e-10
            )
        parts = delta(P, Q), delta(Q, R), delta(P, R)
        # One rounding each, and of NLL two units of the logarithms.
        shapes = [abs(part) + (0.0 if extended else 1e4) for part in parts]
        assert abs(parts[0] + parts[1] - parts[2]) <= 8 * sum(map(math.ulp, shapes))
        # A slope of the objective where two values differ by less than their roundings.
        _, slope = likelihood.value_and_gradient((P + Q) / 2)
        assert delta(Q, P) == pytest.approx(slope @ (Q - P), rel=1e-5)


def several(partitions: int, **options: Any) -> tuple[str, ...]:
    with two_waves(ld.Execution(partitions=partitions, **options)) as likelihood:
        found = likelihood.delta_many([P, Q, R], R)
        return tuple(difference.hex() for difference in found.tolist())


def test_the_same_bits_however_events_are_cut() -> None:
    expected = several(1, threads=1)
    assert expected[2] == (0.0).hex()
    assert several(3, threads=2) == expected
    assert several(2, storage="streaming", chunk_events=1024) == expected


@pytest.mark.cluster
def test_the_same_bits_on_a_cluster(client: Client) -> None:
    assert several(3, cluster=client) == several(1)


def test_one_reading_or_none() -> None:
    """Both points share a pass, and points just evaluated need none."""
    rng = np.random.default_rng(3)
    data, reads = counting(ld.Dataset.from_arrays(scalars={"x": rng.uniform(1, 2, 300)}))
    mc = ld.Dataset.from_arrays(scalars={"x": rng.uniform(1, 2, 400)})
    term = ld.NLL(A * X + 1.0, data=data, accepted_mc=mc)
    streamed = ld.Execution(storage="streaming", partitions=1, normalization="general")
    likelihood = ld.Likelihood([term], streamed)
    likelihood.value([1.0])
    reads.clear()
    assert likelihood.delta([2.0], [3.0]) != 0.0
    assert len(reads) == 1
    by_gradient = likelihood.value_and_gradient([4.0])
    reads.clear()
    found = likelihood.delta([4.0], [2.0]), likelihood.delta([1.0], [4.0])
    assert reads == []
    with ld.Likelihood([term], streamed) as other:
        assert (other.delta([4.0], [2.0]), other.delta([1.0], [4.0])) == found
    assert by_gradient[0] - likelihood.value([2.0]) == pytest.approx(found[0], abs=1e-11)
    # Many points at once: more than are remembered.
    points = [[1.0 + k / 16] for k in range(20)]
    reads.clear()
    scan = likelihood.delta_many(points, points[0])
    assert len(reads) == 1
    assert scan[0] == 0.0
    assert scan[19] == likelihood.delta(points[19], points[0])
    assert likelihood.delta_many([], [1.0]).shape == (0,)


def test_two_terms_of_one_event_each() -> None:
    """Numbers known by hand: the shape of a constant does not change, its rate does."""
    one = ld.Dataset.from_arrays(scalars={"x": np.ones(1)})
    shape = ld.NLL(A * X, data=one, accepted_mc=one, name="shape")
    rate = ld.ExtendedNLL(A * X, data=one, accepted_mc=one, name="rate")
    likelihood = ld.Likelihood([shape, rate])
    truth = 2 * (2.0 - math.log(2.0)) - 2 * 1.0
    assert likelihood.delta([2.0], [1.0]) == pytest.approx(truth, rel=1e-15)


def test_what_has_no_difference() -> None:
    """RD-03, T-43."""
    one = ld.Dataset.from_arrays(scalars={"x": np.ones(1)})
    likelihood = ld.Likelihood([ld.NLL(A * X, data=one, accepted_mc=one)])
    with pytest.raises(EvaluationError, match=r"parameter point 1: .*intensity is -1\.0"):
        likelihood.delta([1.0], [-1.0])
    with pytest.raises(ParameterError, match="NaN"):
        likelihood.delta([math.nan], [1.0])
    fixed = ld.Likelihood([ld.NLL(X + 0.0, data=one, accepted_mc=one)])
    assert fixed.delta([], []) == 0.0


def test_where_the_written_form_decides() -> None:
    """A guard that does not hold at one of the points: its sums are those that `value` uses."""
    rng = np.random.default_rng(5)
    data = ld.Dataset.from_arrays(scalars={"x": rng.uniform(1, 2, 100)})
    model = (ld.parameter("s") * X).sqrt() + 1.0
    likelihood = ld.Likelihood([ld.ExtendedNLL(model, data=data, accepted_mc=data)])
    p, q = [1e-200], [1.0]
    assert likelihood.delta(p, q) == pytest.approx(
        likelihood.value(p) - likelihood.value(q), rel=1e-13
    )
    assert likelihood.delta(p, q) == -likelihood.delta(q, p)
