"""Columns, operations and sums per event may only fall."""

from __future__ import annotations

import pytest
from lowering_table import MODELS, REACHED, counts

from laddu_dask.compiler import Assumptions, compile_model


@pytest.mark.parametrize("name", MODELS)
def test_as_good_as_by_hand(name: str) -> None:
    """DC-12: textbook formulas reach the form that a specialist would write."""
    found = counts(compile_model(MODELS[name](), "linear", Assumptions()))
    reached = REACHED[name]
    assert found.bytes <= reached.bytes
    assert found.frontier <= reached.frontier
    if name != "C-free":  # its system of equations is counted in `test_solve`
        assert found.forward + found.backward <= reached.forward + reached.backward
