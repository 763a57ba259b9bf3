"""What the benchmark of streaming promises, on made-up times; and that it measures at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import streaming

#: Decoding takes longest, of everything with two processors.
ROW = streaming.Row(
    model="D",
    threads=1,
    events=1_000_000,
    decode=1.0,
    decode_cpu=1.0,
    kernel=0.3,
    memory_cpu=0.5,
    stream=1.1,
    many=2.1,
    many_kernel=0.9,
    table=1.2,
    first=1.5,
    first_streaming=1.4,
    processors=2,
)


def test_what_is_kept_misses_nothing() -> None:
    assert ROW.slowest == 1.0
    assert list(ROW.misses()) == []
    assert "MISS" not in streaming.line(ROW)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"stream": 1.2}, "D, 1 thread(s): streaming at 83% of its slowest part, not 85%"),
        ({"many": 2.3}, "D, 1 thread(s): 32 sets cost 2.09 passes, promised 2"),
        ({"first": 1.6}, "D, 1 thread(s): first evaluation takes 1.33 readings, promised 1.3"),
    ],
)
def test_what_is_not_kept_is_told(change: dict[str, float], text: str) -> None:
    row = replace(ROW, **change)
    assert list(row.misses()) == [text]
    assert streaming.line(row).endswith("MISS")


def test_processors_limit_both_together() -> None:
    """Two threads on two processors: no pass is faster than the work that there is."""
    row = replace(ROW, decode_cpu=2.0, memory_cpu=0.6, stream=1.5)
    assert row.slowest == 1.3
    assert list(row.misses()) == []


def test_many_sets_may_cost_more_where_kernels_dominate() -> None:
    row = replace(ROW, many=9.0, many_kernel=8.0)
    assert not row.reading_dominates
    assert list(row.misses()) == []


def test_a_measurement(tmp_path: Path) -> None:
    """A few events of the model that the benchmark adds; resident and streamed values agree."""
    paths = streaming.write(tmp_path, "wide", 3000, 1000)
    row = streaming.measure("wide", paths, 2, 3000, 1)
    assert row.events == 6000
    assert 0 < row.decode < 60
    assert 0 < row.first < 60
