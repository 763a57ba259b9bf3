"""Budgets: what people write, and the bytes it means."""

from __future__ import annotations

import pickle
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laddu_dask.errors import MemoryBudgetError
from laddu_dask.memory import MAX_BYTES, MemoryBudget, MemoryPlan, format_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.5 KiB", 1536),
        (".5 kb", 500),
        ("1.999 B", 1),
        ("8 GiB", 8589934592),
        ("8gib", 8589934592),
        ("  2 MB ", 2_000_000),
        ("3TB", 3 * 10**12),
        ("1 TiB", 2**40),
        ("0.1 GB", 10**8),
        ("4096", 4096),
        (4096, 4096),
        (MAX_BYTES, MAX_BYTES),
    ],
)
def test_byte_budgets(text: str | int, expected: int) -> None:
    """ME-02, AX-48: units, any case, exact decimals cut to whole bytes."""
    assert MemoryBudget.parse(text).resolve(total=None, available=None) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, 400),
        ("auto", 400),
        ("50%", 500),
        ("50% total", 500),
        ("50% available", 250),
        ("70 % AVAILABLE", 350),
        ("70% free", 350),
        ("70% remaining", 350),
        ("0.1%", 1),
        ("100%", 1000),
    ],
)
def test_fractions_of_the_machine(text: str | None, expected: int) -> None:
    """ME-01, AX-48: total 1000, available 500."""
    assert MemoryBudget.parse(text).resolve(total=1000, available=500) == expected


def test_automatic_budget_without_availability_is_half_the_total() -> None:
    """ME-01."""
    assert MemoryBudget.parse("auto").resolve(total=1000, available=None) == 500


@pytest.mark.parametrize(
    "value",
    [
        *("", "0", ".", "NaN", "1 XB", "0 B", "0.5 B", "-1 GB", "1e9 B", "1 GB 2", "0%", "101%"),
        *("5% used", "20 EiB", "inf", "99999999 TiB", "1" * 5000, 0, -5, 2**64, 1.5, True, b"1 GB"),
    ],
)
def test_malformed_budgets_are_refused(value: object) -> None:
    """ME-02, AX-48: the error repeats the value and shows what can be written."""
    with pytest.raises(MemoryBudgetError, match=r"memory budget.*2 GiB"):
        MemoryBudget.parse(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["auto", "50%", "50% available"])
def test_unknown_capacity_is_an_error(text: str) -> None:
    """ME-01: a fraction of an unknown number."""
    with pytest.raises(MemoryBudgetError, match="unknown"):
        MemoryBudget.parse(text).resolve(total=None, available=None)


def test_zero_resolved_bytes_are_an_error() -> None:
    """ME-01."""
    with pytest.raises(MemoryBudgetError, match="zero bytes") as caught:
        MemoryBudget.parse("1%").resolve(total=99, available=99)
    assert caught.value.remaining == 0


@given(count=st.integers(1, 10**13), digits=st.integers(0, 12))
@settings(deadline=None)
def test_decimals_are_exact(count: int, digits: int) -> None:
    """ME-02: no binary floating point on the way from text to bytes."""
    scaled = count // 10**digits
    text = f"{scaled}.{count % 10**digits:0{digits}d}" if digits else str(count)
    exact = int(Fraction(count, 10**digits) * 10**6)
    if exact:
        assert MemoryBudget.parse(f"{text} MB").resolve(None, None) == exact


@pytest.mark.parametrize(
    ("text", "expected"), [("auto", 100), ("1000 B", 250), ("3 B", 1), ("50%", 125)]
)
def test_processes_share_a_budget_equally(text: str, expected: int) -> None:
    """ME-10: four processes on a machine with 1000 bytes, 500 available."""
    assert MemoryBudget.parse(text).split(4).resolve(1000, 500) == expected


def test_memory_plan_reads_the_execution_option() -> None:
    """A plan is itself; anything else is the host's budget."""
    plan = MemoryPlan(host="2 GiB", device="50%")
    assert MemoryPlan.parse(plan) is plan
    assert plan.host == MemoryBudget.parse(2 * 2**30)
    assert plan.device == MemoryBudget("total", Fraction(1, 2))
    assert MemoryPlan.parse("2 GiB") == MemoryPlan("2 GiB")
    assert MemoryPlan.parse(None) == MemoryPlan()
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_budgets_print_as_they_are_written() -> None:
    """The text appears in errors."""
    texts = [str(MemoryBudget.parse(text)) for text in ("auto", "1 KiB", "50%", "70% free")]
    assert texts == ['"auto"', '"1024 B"', '"50% total"', '"70% available"']
    assert str(MemoryBudget().split(2)) == '"auto" / 2'


@pytest.mark.parametrize(
    ("count", "text"),
    [
        *((0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB")),
        *((2**20 - 1, "1.0 MiB"), (3 * 2**30, "3.0 GiB"), (2**64 - 1, "more than 16 EiB")),
    ],
)
def test_sizes_for_reading(count: int, text: str) -> None:
    """Human byte sizes in decisions."""
    assert format_bytes(count) == text
