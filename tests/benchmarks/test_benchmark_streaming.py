"""What the benchmark of streaming promises, on made-up times; and that it measures at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import streaming

#: Decoding takes longest.
ROW = streaming.Row(
    model="D",
    threads=1,
    events=1_000_000,
    decode=1.0,
    decode_cpu=1.0,
    kernel=0.5,
    kernel_cpu=0.5,
    resident=0.2,
    stream=1.1,
    many=2.1,
    many_kernel=0.9,
    processors=2,
)


def test_what_is_kept_misses_nothing() -> None:
    assert (ROW.share, ROW.both) == (1.0 / 1.1, 0.75)
    assert list(ROW.misses()) == []
    assert "MISS" not in streaming.line(ROW)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"stream": 1.2}, "D, 1 thread(s): streaming at 83% of its slower part, not 85%"),
        ({"many": 2.3}, "D, 1 thread(s): 32 sets cost 2.09 passes, promised 2"),
    ],
)
def test_what_is_not_kept_is_told(change: dict[str, float], text: str) -> None:
    row = replace(ROW, **change)
    assert list(row.misses()) == [text]
    assert streaming.line(row).endswith("MISS")


def test_processors_limit_both_together() -> None:
    """Two threads and their readers on two processors: nobody promises anything, on four again."""
    row = replace(ROW, threads=2, decode_cpu=2.0, kernel_cpu=0.6, stream=1.5)
    assert row.both == 1.3
    assert list(row.misses()) == []
    assert len(list(replace(row, processors=4).misses())) == 1


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
    assert 0 < row.stream < 60
