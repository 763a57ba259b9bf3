"""Weighted histograms."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laddu_dask.errors import DataError
from laddu_dask.plot import pulls, weighted_histogram

CASE = json.loads((Path(__file__).parents[1] / "data" / "cases.json").read_text())["transforms"]


def lattice(prime: float) -> npt.NDArray[np.float64]:
    return np.asarray(np.modf((1.0 + np.arange(1000)) * np.sqrt(prime))[0])


def test_conformance_histogram() -> None:
    """Case transforms: x = u0 with weight u1 - 0.2 between .1, .4 and .9."""
    found = weighted_histogram(lattice(2.0), lattice(3.0) - 0.2, [0.1, 0.4, 0.9])
    assert found.counts == pytest.approx([90.82483487036272, 149.88489863425522], rel=1e-12)
    assert found.errors == pytest.approx([7.259505783090819, 9.304460385346106], rel=1e-12)
    assert found.underflow == pytest.approx(28.13914526426531, rel=1e-12)
    assert found.overflow == pytest.approx(31.580309454153184, rel=1e-12)


def test_edges_belong_to_the_bin_above_and_the_last_to_the_last() -> None:
    found = weighted_histogram([0.0, 1.0, 2.0, 2.5, -0.1], None, [0.0, 1.0, 2.0])
    assert found.counts.tolist() == [1.0, 2.0]
    assert (found.underflow, found.overflow) == (1.0, 1.0)


def test_weights_of_both_signs() -> None:
    found = weighted_histogram([0.5, 0.5], [2.0, -1.0], [0.0, 1.0])
    assert found.counts.tolist() == [1.0]
    assert found.errors.tolist() == [np.sqrt(5.0)]


def test_no_events() -> None:
    found = weighted_histogram([], [], [0.0, 1.0])
    assert (found.counts.tolist(), found.errors.tolist()) == ([0.0], [0.0])


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-5, 5)), max_size=30), st.integers(0, 30))
def test_partitions_add_up(events: list[tuple[float, float]], cut: int) -> None:
    table = np.array(events).reshape(-1, 2)
    edges = [-1.0, 0.0, 0.5, 1.0]
    whole = weighted_histogram(table[:, 0], table[:, 1], edges)
    first = weighted_histogram(table[:cut, 0], table[:cut, 1], edges)
    parts = first + weighted_histogram(table[cut:, 0], table[cut:, 1], edges)
    assert parts.counts == pytest.approx(whole.counts, abs=1e-12)
    assert parts.variances == pytest.approx(whole.variances, abs=1e-12)
    total = parts.counts.sum() + parts.underflow + parts.overflow
    assert total == pytest.approx(table[:, 1].sum(), abs=1e-12)


def test_different_edges_do_not_add() -> None:
    with pytest.raises(DataError, match="different edges"):
        weighted_histogram([], None, [0, 1]) + weighted_histogram([], None, [0, 2])


@pytest.mark.parametrize(
    ("values", "weights", "edges", "text"),
    [
        ([1.0], None, [1.0], "at least two"),
        ([1.0], None, [1.0, 1.0], "strictly ascending"),
        ([1.0], None, [0.0, np.inf], "finite"),
        ([1.0, 2.0], [1.0], [0.0, 1.0], r"shape \(2,\) with weights of shape \(1,\)"),
        ([0.5, np.nan], None, [0.0, 1.0], "event 1 has value nan and weight 1.0; 1 of 2"),
        ([0.5, 0.5], [np.inf, 1.0], [0.0, 1.0], "event 0 has value 0.5 and weight inf"),
    ],
)
def test_refused(values: list[float], weights: list[float], edges: list[float], text: str) -> None:
    with pytest.raises(DataError, match=text):
        weighted_histogram(values, weights, edges)


def test_pulls() -> None:
    found = pulls(np.array([5.0, 3.0, 0.0]), np.array([2.0, 1.0, 0.0]), np.array([4.0, 5.0, 1.0]))
    assert found[:2].tolist() == [0.5, -2.0]
    assert np.isnan(found[2])
