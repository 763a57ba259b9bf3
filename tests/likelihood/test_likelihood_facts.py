"""Facts about event values: used when all events have them, and no bit depends on who found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import laddu_dask as ld

Array = NDArray[Any]
N = 6000

X, Y, Z, U = (ld.scalar(name) for name in "xyzu")
A, B, C = (
    ld.parameter(name, initial=value) for name, value in (("a", 0.7), ("b", 0.4), ("c", 1.1))
)
#: Not separable, so that every event counts in every evaluation.
INTENSITY = (
    A * ld.complex(X, Z) / (ld.complex(1.5, 0.0) + C * Y - 0.3j) + B * ld.complex(U, Y)
).norm_sqr() + 0.05


def columns(seed: int = 0) -> dict[str, Array]:
    """Values of which nothing special is known."""
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(0.2, 1.0, N) for name in "xyzu"}


def expected(data: dict[str, Array], mc: dict[str, Array], weights: Array) -> float:
    """The objective by NumPy."""

    def intensity(of: dict[str, Array]) -> Array:
        x, y, z, u = (of[name] for name in "xyzu")
        amplitude = 0.7 * (x + 1j * z) / (1.5 + 1.1 * y - 0.3j) + 0.4 * (u + 1j * y)
        result: Array = np.abs(amplitude) ** 2 + 0.05
        return result

    normal = np.log(intensity(mc).sum())
    return float(-2 * (weights * (np.log(intensity(data)) - normal)).sum())


def likelihood(
    data: dict[str, Array], mc: dict[str, Array], weights: Array | None, **options: Any
) -> ld.Likelihood:
    """Data perhaps with weights, accepted events without."""
    options = {"partitions": 1, "threads": 2, **options}
    return ld.Likelihood(
        [
            ld.NLL(
                INTENSITY,
                data=ld.Dataset.from_arrays(scalars=data, weights=weights),
                accepted_mc=ld.Dataset.from_arrays(scalars=mc),
            )
        ],
        ld.Execution(**options),
    )


def kept(fit: ld.Likelihood, role: str) -> int:
    """Columns of a data set, the weight included if there are weights."""
    (decision,) = (d for d in fit.plan().decisions if d.label.endswith(role))
    return decision.resident_bytes // decision.events // 8


def everywhere(of: dict[str, Array]) -> None:
    of["x"][:] = 0.6


def zero(of: dict[str, Array]) -> None:
    of["z"][:] = 0.0


def first_half(of: dict[str, Array]) -> None:
    of["x"][: N // 2] = 0.6


def but_one(of: dict[str, Array]) -> None:
    of["x"][:-1] = 0.6


def equal(of: dict[str, Array]) -> None:
    of["u"][:] = of["x"]


def opposite(of: dict[str, Array]) -> None:
    of["u"][:] = -of["x"]
    of["u"][:3] = of["x"][:3] = 0.0


def equal_but_one(of: dict[str, Array]) -> None:
    of["u"][:-1] = of["x"][:-1]


def several(of: dict[str, Array]) -> None:
    of["x"][: N // 2] = 0.6
    of["u"][:-1] = of["y"][:-1]
    of["z"][:] = 0.0


def of_events(model: Any, data: Any) -> ld.NLL:
    """A term of these data and of ordinary Monte Carlo."""
    return ld.NLL(
        model,
        data=ld.Dataset.from_arrays(scalars=data),
        accepted_mc=ld.Dataset.from_arrays(scalars=columns(2)),
    )


@pytest.mark.parametrize(
    ("change", "fewer"),
    [
        (everywhere, 1),
        (zero, 1),
        (first_half, 0),
        (but_one, 0),
        (equal, 1),
        (opposite, 1),
        (equal_but_one, 0),
        (several, 1),
    ],
)
def test_facts_of_all_events(change: Callable[[dict[str, Array]], None], fewer: int) -> None:
    """DK-15: the columns that remain, the value, and its bits in any cut, chunk and storage."""
    data, mc, weights = columns(1), columns(2), np.linspace(0.5, 1.5, N)
    change(data)
    found = []
    for options in (
        {},
        {"partitions": 5},
        {"partitions": 3, "chunk_events": 1024},
        {"storage": "streaming", "chunk_events": 2048},
        {"partitions": 2, "backend": "interpreter"},
    ):
        with likelihood(data, mc, weights, **options) as fit:
            before = fit.plan().decisions[0].resident_bytes
            if options.get("partitions") == 5:  # another history
                fit.value([0.1, 0.2, 0.3])
            value, gradient = fit.value_and_gradient()
            assert value == pytest.approx(expected(data, mc, weights), rel=1e-12)
            assert fit.value() == value
            if options.get("storage") != "streaming":
                assert kept(fit, "data") == 5 - fewer
                assert kept(fit, "accepted_mc") == 4  # all weights are one
                assert fit.plan().decisions[0].resident_bytes <= before
            found.append((value.hex(), [part.hex() for part in gradient.tolist()]))
    assert all(other == found[0] for other in found[1:])


def test_facts_of_both_data_sets_differ() -> None:
    """Accepted events keep what is constant in the data only, and the other way round."""
    data, mc = columns(1), columns(2)
    everywhere(data)
    zero(mc)
    equal(mc)
    with likelihood(data, mc, None) as fit:
        assert fit.value() == pytest.approx(expected(data, mc, np.ones(N)), rel=1e-12)
        assert (kept(fit, "data"), kept(fit, "accepted_mc")) == (3, 2)


@pytest.mark.parametrize("weights", [None, np.ones(N), np.append(np.ones(N - 1), 1.5)])
def test_weights_of_one_are_not_kept(weights: Array | None) -> None:
    """DK-15: nor do they change a bit, and a partition with other weights keeps its own."""
    data, mc = columns(1), columns(2)
    found = set()
    for options in ({}, {"partitions": 4}, {"storage": "streaming", "partitions": 2}):
        with likelihood(data, mc, weights, **options) as fit:
            value, gradient = fit.value_and_gradient()
            found.add((value.hex(), gradient.tobytes()))
    assert len(found) == 1
    used = np.ones(N) if weights is None else weights
    assert value == pytest.approx(expected(data, mc, used), rel=1e-12)


def test_few_events_have_no_facts() -> None:
    """Nothing is specialised to a handful of events."""
    data = {name: np.full(10, 0.5) for name in "xyzu"}
    with likelihood(data, columns(2), np.ones(10)) as fit:
        fit.value()
        assert fit.plan().decisions[0].resident_bytes // 8 >= 5 * 10


def test_a_value_that_is_no_number_in_the_last_event() -> None:
    """What is 1 for all events but is 0/0 for the last is no constant; the event is named."""
    model = A * ld.where(X > 0.1, 1.0, X / X) + B * Y
    data = columns(1)
    data["x"][-1] = 0.0
    with ld.Likelihood([of_events(model, data)], ld.Execution(partitions=3)) as fit:
        with pytest.raises(ld.EvaluationError) as caught:
            fit.value()
        assert caught.value.event == N - 1
    data["x"][-1] = 0.5
    with ld.Likelihood([of_events(model, data)]) as fit:
        fit.value()
        assert kept(fit, "data") == 1


def test_zero_times_an_infinite_parameter_is_not_zero() -> None:
    """A product with a column of zeros goes only while its other factor is finite."""
    model = (A * ld.complex(X, Z) * (1 / B) + Y).norm_sqr()
    data = columns(1)
    zero(data)
    with ld.Likelihood([of_events(model, data)]) as fit:
        assert np.isfinite(fit.value([0.7, 0.4]))
        with pytest.raises(ld.EvaluationError):
            fit.value([0.7, 0.0])
        assert np.isfinite(fit.value([0.7, 0.4]))
