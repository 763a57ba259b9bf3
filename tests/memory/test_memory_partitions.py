"""The planner decides partition by partition: memory, disk, and the rest streamed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laddu_dask.errors import MemoryBudgetError
from laddu_dask.memory.planner import DatasetRequest, plan_dataset, plan_datasets

#: Ten partitions of 100 events: 10 bytes kept, 10 read per event, nothing else.
TEN = DatasetRequest("signal/data", 1000, 10, 10, partitions=10)


def test_as_many_partitions_as_fit_are_resident() -> None:
    """Streaming takes 30 bytes per event of a chunk, each resident partition 1000."""
    # A comfortable chunk has 16 tiles of one event: 480 bytes.
    for budget, kept in ((10_000 + 20_000, 10), (4480, 4), (4479, 3), (1480, 1), (1479, 0)):
        decision = plan_dataset(TEN, budget)
        assert decision.resident_events == 100 * kept
        assert decision.streamed_events == 1000 - 100 * kept
        assert decision.resident_bytes == 1000 * kept
        assert decision.peak_bytes <= budget
        assert decision.strategy == {10: "resident", 0: "streaming"}.get(kept, "mixed")
    assert plan_dataset(TEN, 4480).reason == (
        "4 of 10 partitions fit in memory, every pass reads 6 again"
    )


def test_the_rest_goes_to_disk() -> None:
    """Whole partitions, as many as there is room for."""
    decision = plan_dataset(TEN, 4480, disk=5999)
    assert (decision.resident_events, decision.spilled_events) == (400, 500)
    assert decision.spilled_bytes == 5000
    assert decision.reason == (
        "4 of 10 partitions fit in memory, 5 are kept on disk, every pass reads 1 again"
    )
    assert decision.tiers([100] * 10) == ["resident"] * 4 + ["spilled"] * 5 + ["streaming"]
    decision = plan_dataset(TEN, 1479, disk=10_000)
    assert (decision.strategy, decision.spilled_bytes) == ("spilled", 10_000)
    assert "takes at least 9.8 KiB" in decision.reason
    assert decision.reason.endswith("more than the budget, so it is kept on disk")
    assert "9.8 KiB on disk" in str(decision)
    decision = plan_dataset(TEN, 1479, disk=3000)
    assert decision.reason.endswith(
        "3 of 10 partitions are kept on disk and every pass reads the others again"
    )


def test_spilled_storage_that_is_asked_for() -> None:
    """All or nothing, as for resident: refused with requested and remaining bytes."""
    decision = plan_dataset(TEN, 30, "spilled", disk=10_000)
    assert (decision.strategy, decision.resident_bytes, decision.chunk_events) == ("spilled", 0, 1)
    with pytest.raises(MemoryBudgetError, match="spilling it and the other data sets") as caught:
        plan_datasets((TEN, TEN), 1000, "spilled", disk=19_999)
    error = caught.value
    assert (error.resource, error.requested, error.remaining) == ("disk", 20_000, 19_999)
    assert "TMPDIR" in str(error)
    with pytest.raises(MemoryBudgetError, match="streaming it in the smallest chunks"):
        plan_dataset(TEN, 29, "spilled", disk=10_000)


def test_partitions_of_different_size() -> None:
    """The first ones, as long as they are covered by what was planned."""
    decision = plan_dataset(TEN, 4480, disk=2000)  # 40 % resident, 20 % spilled
    assert decision.tiers([40, 10, 10, 40]) == ["resident", "spilled", "spilled", "streaming"]
    assert decision.tiers([]) == []


requests = st.builds(
    DatasetRequest,
    label=st.just("x"),
    events=st.integers(1, 3000),
    cache_bytes_per_event=st.integers(0, 50),
    source_bytes_per_event=st.integers(0, 50),
    fixed_bytes=st.integers(0, 100),
    tasks_in_flight=st.integers(1, 3),
    tile_events=st.sampled_from([1, 16]),
    partitions=st.integers(1, 12),
)


@given(st.lists(requests, min_size=1, max_size=3), st.integers(0, 200_000), st.integers(0, 100_000))
def test_plans_keep_to_both_budgets(several: list[DatasetRequest], memory: int, disk: int) -> None:
    """MP-06: all that is kept and the largest transient, and what is on disk."""
    try:
        plan = plan_datasets(several, memory, disk=disk)
    except MemoryBudgetError as error:
        memory = error.requested
        plan = plan_datasets(several, memory, disk=disk)
    kept = sum(decision.resident_bytes for decision in plan)
    assert kept + max(decision.transient_bytes for decision in plan) <= memory
    assert sum(decision.spilled_bytes for decision in plan) <= disk
    for request, decision in zip(several, plan, strict=True):
        assert 0 <= decision.streamed_events <= request.events
        if disk >= sum(r.events * r.cache_bytes_per_event + 50 * r.partitions for r in several):
            assert decision.streamed_events == 0
