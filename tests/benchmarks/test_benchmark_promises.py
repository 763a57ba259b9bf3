"""What a comparison promises is checked with numbers known in advance."""

from dataclasses import replace

import pytest
from promises import Evaluation, Start, Times, memory_misses
from report import evaluation_line, start_lines

A = Evaluation(
    model="A",
    normalization="general",
    threads=1,
    what="value_and_gradient",
    ours=Times(median=0.020, least=0.016),
    theirs=Times(median=0.200, least=0.200),
    events=1_200_000,
    column_bytes=400_000_000,
    bandwidth=25e9,
)


def test_ratios_are_of_medians_and_of_the_fastest() -> None:
    assert A.ratio == pytest.approx(10.0)
    assert A.ratio_of_least == pytest.approx(12.5)
    # 400 MB in 20 ms are 20 GB/s
    assert A.bandwidth_share == pytest.approx(0.8)


def test_a_kept_promise_is_no_miss() -> None:
    kept = replace(A, column_bytes=410_000_000)
    assert list(kept.misses()) == []
    assert "MISS" not in evaluation_line(kept)


def test_every_miss_is_named_with_both_numbers() -> None:
    slow = replace(A, ours=Times(median=0.050, least=0.050))
    speed, bandwidth = slow.misses()
    assert speed == (
        "A general value_and_gradient, 1 thread(s): 4.0 times laddu's speed, promised 5"
    )
    assert bandwidth == (
        "A general value_and_gradient, 1 thread(s): 32% of the read bandwidth, promised 80%"
    )
    assert evaluation_line(slow).endswith("MISS")


@pytest.mark.parametrize(
    ("model", "normalization", "what", "required"),
    [
        ("A", "auto", "value_and_gradient", 4.0),
        ("B", "general", "value_and_gradient", 40.0),
        ("C-fixed", "general", "value_and_gradient", 20.0),
        ("C-fixed", "auto", "value_and_gradient", 60.0),
        ("C-free", "auto", "value_and_gradient", 50.0),
        ("D", "general", "value_and_gradient", 30.0),
        ("D", "general", "value", 3.0),
    ],
)
def test_promised_ratios(model: str, normalization: str, what: str, required: float) -> None:
    row = replace(A, model=model, normalization=normalization, what=what)
    assert row.required == required


def test_bandwidth_counts_only_where_memory_is_the_limit() -> None:
    assert replace(A, normalization="auto").bandwidth_share is None
    assert replace(A, threads=2).bandwidth_share is None
    assert replace(A, model="D").bandwidth_share is None


def test_not_a_number_is_a_miss() -> None:
    nan = float("nan")
    assert len(list(replace(A, ours=Times(nan, nan)).misses())) == 2


def test_memory_is_compared_with_laddus_and_the_startup() -> None:
    mib = 2**20
    laddu = Start("D", "auto", 2, "laddu", cpu=1.0, wall=1.0, peak=100 * mib)
    cold = replace(laddu, program="cold", peak=160 * mib)
    warm = replace(laddu, program="warm", peak=161 * mib)
    # Another model's figure says nothing about this one.
    other = replace(laddu, model="A", program="cold", peak=500 * mib)
    rows = [cold, warm, laddu, other]
    (miss,) = memory_misses(rows, startup=60 * mib)
    assert miss == "D auto, warm kernel cache, 2 thread(s): 161 MiB, promised 160 MiB"
    assert start_lines(rows, missed=True).endswith("MISS")
