"""Exact sums of one number per event, and code that several threads ask for at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laddu_dask.kernels import Accumulator, get_backend
from laddu_dask.kernels.accumulator import LIMIT, TILE, TILE_LIMIT
from laddu_dask.kernels.number_sums import add_numbers
from laddu_dask.kernels.shared_code import shared_function

BACKENDS = ["cpu", "interpreter"]
ODD = [0.0, -0.0, 5e-324, 1.0, -1.0, LIMIT, -TILE_LIMIT, np.nextafter(LIMIT, 0.0), np.inf, np.nan]
NUMBERS = st.sampled_from(ODD) | st.floats()


def expected(numbers: np.ndarray, first: int) -> Accumulator:
    sums = Accumulator(1)
    sums.add_rows(numbers[np.newaxis, :], first)
    return sums


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    numbers=st.lists(NUMBERS, max_size=40),
    size=st.sampled_from([0, 1, 8, TILE - 1, TILE, 3 * TILE + 13]),
    place=st.integers(0, 2**20),
)
def test_the_state_of_an_accumulator(
    backend: str, numbers: list[float], size: int, place: int
) -> None:
    """AC-01: some numbers anywhere among ordinary ones; what cannot be summed is located."""
    values = np.random.default_rng(size).normal(size=size)
    values = np.insert(values, place % (size + 1), numbers)
    found = Accumulator(1)
    get_backend(backend).add_numbers(values, 77, found)
    assert found == expected(values, 77)


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_add_up(backend: str) -> None:
    values = np.random.default_rng(0).normal(size=10_007) * 1e3
    found, add = Accumulator(1), get_backend(backend).add_numbers
    for start in range(0, len(values), 999):
        add(values[start : start + 999], start, found)
    assert found == expected(values, 0)
    assert found.count == len(values)
    twice = Accumulator(1)
    add(np.repeat(values, 2)[::2], 0, twice)  # with gaps between the numbers
    assert twice == found


def test_other_numbers_are_refused() -> None:
    for numbers, size in ((np.ones(3, np.float32), 1), (np.ones((1, 3)), 1), (np.ones(3), 2)):
        with pytest.raises(ValueError, match="of one sum, not of"):
            add_numbers(numbers, 0, Accumulator(size))


def test_threads_that_are_the_first_at_the_same_time() -> None:
    """Each may get code of its own, which stays for as long as it is used."""
    values = np.arange(5000.0)
    for _ in range(5):
        shared_function.cache_clear()
        barrier = threading.Barrier(8)

        def work(_: int, barrier: threading.Barrier = barrier) -> Accumulator:
            sums = Accumulator(1)
            barrier.wait(60)
            for _ in range(50):
                add_numbers(values, 0, sums)
            return sums

        with ThreadPoolExecutor(8) as pool:
            assert {sums.exact(0) for sums in pool.map(work, range(8))} == {
                expected(np.tile(values, 50), 0).exact(0)
            }
