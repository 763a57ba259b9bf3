"""Data sets for each bin of a column (conventions: the last bin is closed)."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from laddu_dask.data import Dataset
from laddu_dask.errors import DataError


def test_edges_belong_to_the_bin_above_and_the_last_to_the_last() -> None:
    data = Dataset.from_arrays(scalars={"x": [-1.0, 0.0, 1.9, 2.0, 5.0, 5.1]})
    low, high = pickle.loads(pickle.dumps(data.bin_by("x", [0, 2, 5])))
    np.testing.assert_array_equal(low.column("x"), [0.0, 1.9])
    np.testing.assert_array_equal(high.column("x"), [2.0, 5.0])
    assert low.fingerprint != high.fingerprint
    assert high.row_label(1) == "event 1 (row 4 of the arrays)"


def test_a_value_that_is_nan_is_refused_when_read() -> None:
    (only,) = Dataset.from_arrays(scalars={"x": [0.5, np.nan]}).bin_by("x", [0, 1])
    with pytest.raises(DataError, match="NaN"):
        only.column("x")


@pytest.mark.parametrize("edges", [[], [1.0], [0.0, 0.0], [1.0, 0.0], [0.0, np.nan]])
def test_edges_that_make_no_bins_are_refused(edges: list[float]) -> None:
    data = Dataset.from_arrays(scalars={"x": [0.5]})
    with pytest.raises(DataError, match="each above the one before"):
        data.bin_by("x", edges)
