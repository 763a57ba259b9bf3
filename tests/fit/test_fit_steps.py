"""The parts that keep a minimiser on its way: units, box, wall, spectrum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fit_toys import Spec
from hypothesis import given
from hypothesis import strategies as st

from laddu_dask.fit.barrier import Barrier
from laddu_dask.fit.bounds import Box
from laddu_dask.fit.hessian import Curvature
from laddu_dask.fit.scaling import sizes, units, widest
from laddu_dask.fit.spectrum import Spectrum, combination_text

FINITE = st.floats(-1e6, 1e6)


def test_scale_of_the_user_comes_first() -> None:
    specs = (Spec("a", scale=1e-7), Spec("b"))
    assert units(specs, np.array([5.0, 5.0]), np.array([1e9, 0.0])).tolist() == [1e-7, 5.0]


@pytest.mark.parametrize(
    ("spec", "start", "size"),
    [
        (Spec("a"), 40.0, 40.0),
        (Spec("a"), -40.0, 40.0),
        (Spec("a"), 0.0, 1.0),
        (Spec("a"), -1e-12, 1.0),
        (Spec("a", bounds=(-0.1, 0.3)), 0.0, 0.2),
        (Spec("a", bounds=(1000.0, 1001.0)), 1000.5, 0.5),
        (Spec("a", bounds=(0.0, None)), 0.0, 1.0),
    ],
)
def test_size_of_a_parameter(spec: Spec, start: float, size: float) -> None:
    assert sizes((spec,), np.array([start]))[0] == pytest.approx(size, rel=1e-14)


def test_unit_from_the_slope() -> None:
    """sigma = sqrt(2 size / |slope|), between a billionth of the size and the size."""
    spec = (Spec("scale"),)
    start = np.array([40.0])
    assert units(spec, start, np.array([-5600.0]))[0] == pytest.approx(math.sqrt(80 / 5600))
    assert units(spec, start, np.array([1e-9]))[0] == 40.0
    assert units(spec, start, np.array([1e30]))[0] == pytest.approx(40e-9)


def test_widest_remembers_the_start() -> None:
    """A parameter that has gone to zero has not become small."""
    wide = widest((Spec("a"),), np.array([0.1]), np.array([2.0]), np.array([1e-12]))
    assert wide.tolist() == [60.0]


def test_box() -> None:
    box = Box.of(
        (
            Spec("a", bounds=(0.0, None)),
            Spec("b"),
            Spec("phi", bounds=(-1.0, 1.0), periodic=True),
        )
    )
    assert box.clip(np.array([-1.0, -1.0, 5.0])).tolist() == [0.0, -1.0, 5.0]
    assert box.wrap(np.array([-1.0, 9.0, 1.5])).tolist() == [-1.0, 9.0, -0.5]
    assert box.limits(np.array([0.0, 0.0, 1.0])) == ("lower", "", "")
    outwards = box.blocked(np.array([0.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0]))
    inwards = box.blocked(np.array([0.0, 0.0, 0.0]), np.array([-1.0, 1.0, 1.0]))
    assert outwards.tolist() == [True, False, False]
    assert inwards.tolist() == [False, False, False]


@given(st.floats(-1e3, 1e3))
def test_wrapping_keeps_the_angle(angle: float) -> None:
    box = Box.of((Spec("phi", bounds=(-math.pi, math.pi), periodic=True),))
    wrapped = box.wrap(np.array([angle]))[0]
    assert -math.pi <= wrapped <= math.pi
    assert math.cos(wrapped) == pytest.approx(math.cos(angle), abs=1e-9)


@given(st.lists(FINITE, min_size=2, max_size=2), st.lists(FINITE, min_size=2, max_size=2))
def test_wall_is_above_its_foot_and_finite(to: list[float], slope: list[float]) -> None:
    """D5: a trial point without a likelihood never looks better than where the search began."""
    barrier = Barrier(np.array([1.0, -1.0]), 3603.5, np.array(slope))
    height = barrier.value(np.array(to))
    assert math.isfinite(height)
    assert height >= 3604.5
    assert np.isfinite(barrier.gradient(np.array(to))).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_wall_at_a_point_that_is_none(bad: float) -> None:
    barrier = Barrier(np.zeros(2), 1.0, np.ones(2))
    assert barrier.value(np.array([bad, 0.0])) == 2e12 + 1
    assert barrier.gradient(np.array([bad, 0.0])).tolist() == [0.0, 0.0]


def test_wall_slope_is_that_of_its_height() -> None:
    barrier = Barrier(np.zeros(2), 1.0, np.array([3.0, -2.0]))
    u, h = np.array([0.5, 2.0]), 1e-6
    numeric = [(barrier.value(u + h * e) - barrier.value(u - h * e)) / (2 * h) for e in np.eye(2)]
    assert barrier.gradient(u) == pytest.approx(np.array(numeric), rel=1e-8)


def spectrum(matrix: list[list[float]], value: float = 0.0) -> Spectrum:
    array = np.array(matrix)
    return Spectrum.of(Curvature(array, 0.0), value, np.full(len(array), 30.0))


def test_spectrum_ignores_units() -> None:
    plain = spectrum([[2.0, 1.0], [1.0, 2.0]])
    scaled = spectrum([[2e12, 1.0], [1.0, 2e-12]])
    assert plain.eigenvalues == pytest.approx([0.5, 1.5])
    assert scaled.eigenvalues == pytest.approx([0.5, 1.5])
    assert not scaled.flat.any()
    assert scaled.covariance() == pytest.approx(2 * np.linalg.inv([[2e12, 1.0], [1.0, 2e-12]]))


def test_spectrum_names_a_plane() -> None:
    """Three parameters that matter only as their sum: two short combinations."""
    found = spectrum([[1.0] * 3] * 3)
    rows = found.directions(found.flat)
    texts = {combination_text(row, ("a", "b", "c")) for row in rows}
    assert texts == {"a - c", "b - c"}


def test_spectrum_of_curvature_below_rounding() -> None:
    """Own curvatures that rounding of an objective of 1e4 could make are none."""
    found = spectrum([[1e-12, 3e-13], [3e-13, -1e-12]], value=1e4)
    assert found.flat.all()
    assert found.undetermined().all()


def test_spectrum_step_from_a_saddle_goes_down() -> None:
    found = spectrum([[2.0, 0.0], [0.0, -2.0]])
    assert found.negative.tolist() == [True, False]
    assert found.descent(np.array([1.0, 1.0])) == pytest.approx([-0.5, -0.5])


@pytest.mark.parametrize(
    ("direction", "text"),
    [
        ([1.0, -1.0], "a - b"),
        ([1.0, 0.25], "a + 0.25 b"),
        ([-1.0, 0.0], "a"),
        ([1.0, 1e-9], "a"),
        ([-1.0, 3.0], "-a + 3 b"),
        ([0.0, 2.0], "b"),
    ],
)
def test_combination_text(direction: list[float], text: str) -> None:
    assert combination_text(np.array(direction), ("a", "b")) == text
