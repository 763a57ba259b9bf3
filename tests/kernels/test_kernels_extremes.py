"""Numbers at the ends of the exponent range are found as NumPy finds them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laddu_dask.compiler.precision import RANGES, Precision, has_extreme
from laddu_dask.kernels import get_backend
from laddu_dask.kernels.accumulator import LANES

SMALL, LARGE = RANGES["f64"]
FLOAT = RANGES["f32"].largest
ODD = [
    *(0.0, -0.0, 5e-324, 1e308, np.inf, -np.inf, np.nan, -np.nan, 1.0),
    *(x for edge in (SMALL, LARGE, FLOAT) for x in (edge, -edge)),
    *(np.nextafter(edge, way) for edge in (SMALL, LARGE, FLOAT) for way in (0.0, np.inf)),
]
NUMBERS = st.sampled_from(ODD) | st.floats()


@pytest.mark.parametrize("precision", ["f64", "f32"])
@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@given(
    values=st.lists(NUMBERS, min_size=6 * LANES, max_size=6 * LANES),
    which=st.lists(st.integers(0, 2), max_size=4),
    start=st.integers(0, 1),
    stop=st.integers(0, 2),
)
def test_the_same_as_numpy(
    backend: str,
    precision: Precision,
    values: list[float],
    which: list[int],
    start: int,
    stop: int,
) -> None:
    """Three rows of two vectors; some rows, some vectors."""
    rows = np.array(values).reshape(3, 2 * LANES)
    begin, end = LANES * start, LANES * stop
    found = get_backend(backend).is_any_extreme(rows, which, begin, end, precision)
    assert found is any(has_extreme(rows[row, begin:end], precision) for row in which)


@pytest.mark.parametrize("number", ODD)
def test_a_single_number(number: float) -> None:
    """In the last lane of the last row."""
    rows = np.ones((4, 5 * LANES))
    rows[3, -1] = number
    for precision in ("f64", "f32"):
        limits = RANGES[precision]
        size = abs(float(number))
        extreme = 0 < size < limits.smallest or limits.largest < size < np.inf
        cpu = get_backend("cpu")
        assert cpu.is_any_extreme(rows, (0, 3), 0, 5 * LANES, precision) is extreme
        assert cpu.is_any_extreme(rows, (0, 1, 2), 0, 5 * LANES, precision) is False
