"""How many events are worked on at once where each has results of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from counting_source import counting
from distributed import Client

import laddu_dask as ld
from laddu_dask.errors import MemoryBudgetError
from laddu_dask.runtime import window

X = ld.scalar("x")
MODEL = ld.Model(X * ld.parameter("a"))
N = 20_000
DATA = ld.Dataset.from_arrays(scalars={"x": np.arange(float(N))})
POINTS = [[float(k)] for k in range(50)]
PROGRAMS = MODEL.compiled("complex").programs


def test_an_event_and_its_results() -> None:
    """EV-11: source and prepared column twice, 64 bytes for what users get, for every point.

    One column in, one cached column, two rows out.
    """
    alone = window.bytes_per_event(PROGRAMS, DATA, 1, 2, waiting=0)
    assert alone == 2 * (8 + 8) + (8 * 2 + 8) + (2 * 8 + 64)
    many = window.bytes_per_event(PROGRAMS, DATA, 50, 2, waiting=0)
    assert many - alone == 49 * (2 * 8 + 64)
    assert window.bytes_per_event(PROGRAMS, DATA, 1, 2, waiting=2) - alone == 2 * 2 * 8


@pytest.mark.parametrize("points", [1, 50])
def test_blocks_fit_the_budget(points: int) -> None:
    """EV-11, EV-20, T-31: more points, shorter blocks; no value changes."""
    lengths: list[int] = []
    shown: list[float] = []

    def consume(offset: int, point: int, values: object) -> None:
        assert isinstance(values, np.ndarray)
        lengths.append(len(values))
        if point == points - 1:
            shown.extend(values.real)

    tight = ld.Execution(memory=200_000, threads=1, backend="interpreter")
    MODEL.visit(DATA, {str(k): POINTS[k] for k in range(points)}, consume, tight)
    each = window.bytes_per_event(PROGRAMS, DATA, points, 2, waiting=0)
    assert max(lengths) <= (200_000 - 4096) // each
    assert max(lengths) >= min((200_000 - 4096) // each, 1024) // 2
    np.testing.assert_array_equal(shown, np.arange(float(N)) * POINTS[points - 1][0])


def test_what_cannot_fit_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """EV-20: with both numbers."""
    data, reads = counting(DATA)
    with pytest.raises(MemoryBudgetError, match="one event and its values: .* remain") as caught:
        MODEL.evaluate_many(data, POINTS, ld.Execution(memory=8_000, threads=1))
    assert caught.value.requested > caught.value.remaining
    assert reads == []


@pytest.mark.cluster
def test_partitions_that_wait_fit_the_budget_of_a_worker(client: Client) -> None:
    """EV-05: the number of partitions follows from the memory of the workers."""
    offsets: list[int] = []
    tight = ld.Execution(cluster=client, memory=2_000_000, backend="interpreter")
    MODEL.visit(
        DATA,
        {str(k): point for k, point in enumerate(POINTS)},
        lambda offset, point, values: offsets.append(offset) if point == 0 else None,
        tight,
    )
    each = window.bytes_per_event(PROGRAMS, DATA, len(POINTS), 2, waiting=window.AHEAD)
    assert len(offsets) >= N * each / 2_000_000
    assert offsets == sorted(set(offsets))
