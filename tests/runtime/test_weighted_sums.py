"""`Model.reduce` and its sisters: values, derivatives, many points, errors; here, on a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from counting_source import counting
from distributed import Client

import laddu_dask as ld
from laddu_dask.errors import DataError, EvaluationError, ExpressionError, ParameterError

X = ld.scalar("x")
S = ld.parameter("s")


@pytest.fixture(
    params=[
        pytest.param("here", id="here"),
        pytest.param("cluster", id="cluster", marks=pytest.mark.cluster),
    ]
)
def execution(request: pytest.FixtureRequest) -> ld.Execution:
    """Two threads here, or a cluster."""
    where: Client | None = None
    if request.param == "cluster":
        where = request.getfixturevalue("client")
    return ld.Execution(cluster=where, threads=2, backend="interpreter")


def events(x: Any, weights: Any = None) -> ld.Dataset:
    return ld.Dataset.from_arrays(scalars={"x": np.array(x, dtype=float)}, weights=weights)


THREE = events([1, 2, 3], np.array([2.0, 3.0, 4.0]))
SCALED = ld.Model(S * X + 1)


def test_known_sums(execution: ld.Execution) -> None:
    """AX-33, RD-01, RD-05, RD-06: of the value, of positive values, of their logarithms."""
    assert SCALED.reduce(THREE, [2.0], execution) == 49.0
    for reduction, value, slope in (
        ("linear", 49.0, 20.0),
        ("positive", 49.0, 20.0),
        ("log", 14.809178910859774, 3.580952380952381),
    ):
        found = SCALED.reduce_with_gradient(THREE, [2.0], execution, reduction)  # type: ignore[arg-type]  # one of the words
        assert isinstance(found.value, float)
        assert found.value == pytest.approx(value, rel=1e-14)
        assert found.gradient.tolist() == pytest.approx([slope], rel=1e-14)


def test_ax39(execution: ld.Execution) -> None:
    """AX-39: trigonometric, with weights."""
    scale, offset = ld.parameter("scale"), ld.parameter("offset")
    model = ld.Model((X * scale + offset).sin() + ld.complex(scale, offset).norm_sqr() + 2)
    data = events([0.25, 0.75, 1.25], np.array([0.5, 1.5, 2.0]))
    value, gradient = model.reduce_with_gradient(data, [1.25, 0.5], execution)
    assert value == pytest.approx(18.862757685653755, rel=1e-14)
    assert gradient == pytest.approx([9.0551543545445909, 3.5989388751958698], rel=1e-11)
    value, gradient = model.reduce_with_gradient(data, [1.25, 0.5], execution, "log")
    assert value == pytest.approx(6.2029396903700475, rel=1e-14)
    assert gradient == pytest.approx([1.919877585136988, 0.76460581712145764], rel=1e-13)


def test_many_points_in_one_reading(execution: ld.Execution) -> None:
    """AX-35, EV-04, EV-18: the bits that each point has by itself, in any order."""
    shifted = ld.Model(X + ld.parameter("offset", initial=0.5))
    sums = shifted.reduce_many(events([1, 2, 3]), [None, [1.5]], execution, "positive")
    assert sums.tolist() == [7.5, 10.5]
    rng = np.random.default_rng(6)
    model = ld.Model((S * X).exp() + ld.parameter("t") * X**2)
    data = events(rng.uniform(-1, 1, 5000), rng.normal(size=5000))
    points = rng.normal(size=(5, 2))
    found = model.reduce_many_with_gradient(data, points, execution)
    assert np.array_equal(found.value, model.reduce_many(data, points, execution))
    for k in (4, 0, 2):
        alone = model.reduce_with_gradient(data, points[k], execution)
        assert alone.value == found.value[k]
        assert alone.gradient.tolist() == found.gradient[k].tolist()
    few = model.reduce_many(data, points[[3, 1]], execution)
    assert few.tolist() == [found.value[3], found.value[1]]


def test_reads_and_bits() -> None:
    """EV-02, T-37, RD-07, AX-66: one reading; no bit depends on cuts, threads or chunks."""
    data, reads = counting(events(1 / np.arange(1.0, 1001.0)))
    for chunk in (1, 7, 32, 1000):
        options = ld.Execution(chunk_events=chunk, threads=1, partitions=1)
        assert ld.Model(X).reduce(data, execution=options) == 7.485470860550345
    reads.clear()
    ld.Model(S * X).reduce_many(data, [[1.0], [2.0]], ld.Execution(partitions=1))
    assert len(reads) == 1
    rng = np.random.default_rng(8)
    many = events(rng.normal(size=9000), rng.normal(size=9000) * 1e9)
    found = {
        SCALED.reduce(many, [0.3], ld.Execution(partitions=parts, threads=threads))
        for parts in (1, 3, 9)
        for threads in (1, 2)
    }
    assert len(found) == 1


@pytest.mark.parametrize("bad", [0.0, -2.0, np.nan])
@pytest.mark.parametrize("reduction", ["positive", "log"])
def test_values_that_are_not_positive(reduction: Any, bad: float, execution: ld.Execution) -> None:
    """AX-34, RD-03, RD-04, T-06, T-32, BL-05: also of weight zero; the first of them is named."""
    x = np.ones(4000)
    x[[3500, 1500, 2500]] = bad
    weights = np.ones(4000)
    weights[1500] = 0.0
    data = events(x, weights)
    with pytest.raises(EvaluationError, match=f"reduction '{reduction}' failed") as caught:
        ld.Model(X * 1.0).reduce(data, execution=execution, reduction=reduction)
    assert caught.value.event == 1500
    np.testing.assert_equal(caught.value.value, bad)
    assert caught.value.reduction == reduction


def test_which_point_failed() -> None:
    """EV-05, T-42."""
    with pytest.raises(
        EvaluationError, match=r"^parameter point 1: reduction 'log' failed: .*event 0.* is -1\.0;"
    ):
        ld.Model(S * X).reduce_many(events([1.0]), [[1.0], [-1.0]], reduction="log")
    with pytest.raises(EvaluationError, match="the first part that is not finite is"):
        ld.Model(S / X).reduce(events([1.0, 0.0]), [1.0])
    with pytest.raises(EvaluationError, match="its product with the weight, overflows"):
        ld.Model(X).reduce(events([1e300], np.array([1e300])))


@pytest.mark.parametrize("reduction", ["linear", "positive", "log"])
def test_the_written_form_decides(reduction: Any) -> None:
    """A product that another order takes out of the range; and a point where no root exists."""
    model = ld.Model((S * X * 1e-200) * (X * 1e-200) * 1e290 + 1)
    data = events([0.5, 1.5, 1e200])
    values = model.evaluate(data, [0.5], real=True)
    expected = np.log(values).sum() if reduction == "log" else values.sum()
    assert model.reduce(data, [0.5], reduction=reduction) == pytest.approx(expected, rel=1e-13)
    root = ld.Model((S * X).sqrt() + 3)
    found = root.reduce_many(data, [[-4.0], [4.0]], reduction=reduction)
    for k, s in enumerate((-4.0, 4.0)):
        values = root.evaluate(data, [s]).real
        expected = np.log(values).sum() if reduction == "log" else values.sum()
        assert found[k] == pytest.approx(expected, rel=1e-13)


def test_nothing_and_refusals() -> None:
    """EV-03, T-43, RD-01, T-33: no events, no points, no parameters, imaginary parts."""
    assert SCALED.reduce(events([]), [1.0]) == 0.0
    assert SCALED.reduce_many(THREE, []).shape == (0,)
    empty = SCALED.reduce_many_with_gradient(THREE, [])
    assert (empty.value.shape, empty.gradient.shape) == ((0,), (0, 1))
    plain = ld.Model(X + 4j).reduce_with_gradient(THREE)
    assert (plain.value, plain.gradient.shape) == (20.0, (0,))
    with pytest.raises(DataError, match="'y'"):
        ld.Model(ld.scalar("y")).reduce(THREE)
    with pytest.raises(ParameterError, match="expected 1 parameters"):
        SCALED.reduce(THREE, [1.0, 2.0])
    with pytest.raises(ParameterError, match="NaN: s"):
        SCALED.reduce(THREE, [np.nan])
    with pytest.raises(ExpressionError, match="'cubic' is not one of 'linear'"):
        SCALED.reduce(THREE, [1.0], reduction="cubic")  # type: ignore[arg-type]  # no such word
    with pytest.raises(ExpressionError, match="'cubic' is not one of 'linear'"):
        SCALED.visit(THREE, {}, print, reduction="cubic")  # type: ignore[arg-type]  # likewise
