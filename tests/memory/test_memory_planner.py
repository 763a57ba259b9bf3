"""Plans: storage and chunks of one and of several data sets within one budget."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from laddu_dask.errors import ExecutionError, MemoryBudgetError
from laddu_dask.memory import (
    DatasetRequest,
    Decision,
    LeasePool,
    MemoryReport,
    Policy,
    plan_dataset,
    plan_datasets,
)
from laddu_dask.memory.spill_place import SpillPlace

POLICIES: tuple[Policy, ...] = ("fastest", "resident", "streaming")

# Cache 10, source 10 (20 with read-ahead), 100 per chunk, 100 events: the data set of AX-38.
AX38 = DatasetRequest("signal/data", 100, 10, 10, 100)


@pytest.mark.parametrize(
    ("available", "resident", "chunk"),
    [(2000, 1300, 35), (3100, 1100, 100), (3099, 1200, 94), (1900, 1400, 25)],
)
def test_resident_acceptance_numbers(available: int, resident: int, chunk: int) -> None:
    """MP-06, DP-02, DP-03, AX-38: with source bytes given once and doubled by the planner."""
    for policy in POLICIES[:2]:
        decision = plan_dataset(AX38, available, policy)
        assert decision.strategy == "resident"
        assert (decision.resident_bytes, decision.chunk_events) == (resident, chunk)
        assert decision.transient_bytes == 20 * chunk
        assert decision.peak_bytes <= decision.available_bytes == available


@pytest.mark.parametrize("available", [1899, 1500, 1120, 1119])
def test_fastest_streams_what_does_not_fit(available: int) -> None:
    """DP-03, DP-04, AX-38: streaming fits (fixed 100, 2 * 10 + 10 per event)."""
    decision = plan_dataset(AX38, available)
    assert decision.strategy == "streaming"
    assert decision.resident_bytes == 0
    assert decision.chunk_events == (available - 100) // 30
    assert decision.peak_bytes == 100 + 30 * decision.chunk_events
    assert "takes at least 1.9 KiB" in decision.reason


@pytest.mark.parametrize("available", [1899, 1120, 1119, 0])
def test_resident_asks_for_a_budget_that_works(available: int) -> None:
    """DP-02, T-47: the least sufficient budget, not the insufficient minimum of MP-03."""
    with pytest.raises(
        MemoryBudgetError, match=r"signal/data: keeping it resident.*streaming"
    ) as e:
        plan_dataset(AX38, available, "resident")
    error = e.value
    assert (error.resource, error.label) == ("host", "signal/data")
    assert (error.requested, error.remaining) == (1900, available)
    assert plan_dataset(AX38, error.requested, "resident").strategy == "resident"
    copied = pickle.loads(pickle.dumps(error))
    assert copied.requested == 1900


def test_without_overhead_the_request_is_the_references() -> None:
    """DP-02: cache * events + fixed + 2 * source."""
    request = DatasetRequest("x", 100, 10, 28)
    with pytest.raises(MemoryBudgetError) as caught:
        plan_dataset(request, 1055, "resident")
    assert caught.value.requested == 10 * 100 + 0 + 2 * 28


def test_budget_too_small_for_one_block() -> None:
    """DP-04: names data set, smallest chunk, both numbers and the cure."""
    request = dataclasses.replace(AX38, events=5000, tile_events=1024, minimum_chunk=1000)
    need = 100 + 30 * 1024
    for policy in (POLICIES[0], POLICIES[2]):
        with pytest.raises(MemoryBudgetError) as caught:
            plan_dataset(request, need - 1, policy)
        error = caught.value
        assert (error.label, error.requested, error.remaining) == ("signal/data", need, need - 1)
        text = str(error)
        assert "signal/data" in text
        assert "1024 events" in text
        assert str(need) in text
        assert str(need - 1) in text
        assert "raise the memory budget" in text
    assert plan_dataset(request, need).chunk_events == 1024


def test_tasks_in_flight_scale_every_transient_term() -> None:
    """MP-06, T-44: k tasks hold 2 k sources, k scratch areas, k streamed caches."""
    request = DatasetRequest("x", 1000, 8, 56, 100, 24, tasks_in_flight=4)
    streaming = plan_dataset(request, 10_000, "streaming")
    assert streaming.fixed_bytes == 4 * 100
    assert streaming.bytes_per_event == 8 * 56 + 4 * 24 + 4 * 8
    resident = plan_dataset(request, 100_000, "resident")
    assert resident.fixed_bytes == 0
    assert resident.bytes_per_event == 8 * 56 + 4 * 24


@pytest.mark.parametrize(
    ("wish", "chunk", "noted"),
    [
        *((3, 3, True), (1, 1, True), (33, 33, True)),
        *((34, 33, False), (100, 33, False), (None, 33, False)),
    ],
)
def test_a_user_chunk_only_shrinks(wish: int | None, chunk: int, noted: bool) -> None:
    """DP-05, T-50: the reason mentions the wish where it decided."""
    decision = plan_dataset(AX38, 1100, "streaming", wish)
    assert decision.chunk_events == chunk
    assert decision.reason.endswith(f"chunks are limited to {wish} events as asked") == noted


def test_a_user_chunk_is_a_whole_number_of_tiles() -> None:
    """DP-05: rounded down, but never below one tile."""
    request = DatasetRequest("x", 5000, 8, 8, tile_events=1024)
    assert plan_dataset(request, 10**6, "streaming", 3000).chunk_events == 2048
    decision = plan_dataset(request, 10**6, "streaming", 3)
    assert decision.chunk_events == 1024
    assert decision.reason.endswith("a chunk has at least 1024 events, more than the 3 asked for")
    assert plan_dataset(request, 10**6, "streaming", 5000).chunk_events == 5000


def test_chunks_are_no_longer_than_what_is_useful() -> None:
    """With any amount of memory; a wish still counts below, and is not blamed above."""
    request = DatasetRequest("x", 10**6, 8, 8, tile_events=1024, longest_chunk=16384)
    for storage in ("streaming", "resident"):
        for wish, chunk, noted in (
            (None, 16384, False),
            (5000, 4096, True),
            (50_000, 16384, False),
        ):
            decision = plan_dataset(request, 10**12, storage, wish)
            assert decision.chunk_events == chunk
            assert ("events as asked" in decision.reason) is noted
    few = dataclasses.replace(request, events=16_000)
    assert plan_dataset(few, 10**12, "resident").chunk_events == 16_000


def test_a_user_chunk_counts_in_what_stays_resident() -> None:
    """MP-05, T-47: small chunks cost more overhead, so residency may be lost."""
    assert plan_dataset(AX38, 3100).resident_bytes == 1100
    assert plan_dataset(AX38, 3100, user_chunk=10).resident_bytes == 2000
    assert plan_dataset(AX38, 3100, user_chunk=4).strategy == "streaming"
    with pytest.raises(MemoryBudgetError, match="chunk_events"):
        plan_dataset(AX38, 3100, "resident", 4)


def test_row_groups_add_partly_filled_chunks() -> None:
    """MP-05: 7 pieces cut at 35 events are at most 3 + 6 chunks."""
    request = dataclasses.replace(AX38, fragments=7)
    assert plan_dataset(request, 2600).resident_bytes == 1000 + 100 * (3 + 6)
    assert plan_dataset(request, 2600).chunk_events == 35


def test_no_events_need_no_memory() -> None:
    """MP-02, T-43."""
    empty = dataclasses.replace(AX38, events=0)
    for policy, strategy in zip(POLICIES, ("resident", "resident", "streaming"), strict=True):
        decision = plan_dataset(empty, 0, policy)
        assert (decision.strategy, decision.chunk_events, decision.peak_bytes) == (strategy, 1, 0)
    decisions = plan_datasets((empty, AX38, empty), 3100)
    assert [decision.resident_bytes for decision in decisions] == [0, 1100, 0]
    assert plan_datasets((), 0) == ()


def test_bad_options_are_refused() -> None:
    """Errors name the option and the choices."""
    with pytest.raises(ExecutionError, match="fastest, resident, spilled, streaming") as caught:
        plan_dataset(AX38, 100, "disk")  # type: ignore[arg-type]  # what is refused
    assert caught.value.option == "storage"
    with pytest.raises(ExecutionError) as caught:
        plan_dataset(AX38, 3100, user_chunk=0)
    assert caught.value.option == "chunk_events"
    with pytest.raises(MemoryBudgetError, match="tile_events of x is 0"):
        DatasetRequest("x", 1, 1, 1, tile_events=0)
    with pytest.raises(MemoryBudgetError, match="events of x is -1"):
        DatasetRequest("x", -1, 1, 1)


def test_huge_counts_do_not_overflow() -> None:
    """T-45: an absurd number of events still plans."""
    request = DatasetRequest("x", 2**63, 2**20, 2**20, 2**20, tile_events=1024)
    decision = plan_dataset(request, 2**40)
    assert decision.strategy == "streaming"
    assert decision.peak_bytes <= 2**40
    with pytest.raises(MemoryBudgetError) as caught:
        plan_dataset(request, 2**40, "resident")
    assert caught.value.requested == 2**64 - 1


# ---- several data sets ------------------------------------------------------------------------

DATA = DatasetRequest("signal/data", 1000, 8, 8, 0)
MC = DatasetRequest("signal/accepted_mc", 10_000, 8, 8, 0)


def test_transients_do_not_add_up() -> None:
    """DP-04, T-49: 88 kB stay, one pass at a time gets the other 16 kB."""
    decisions = plan_datasets((DATA, MC), 88_000 + 16_000, "resident")
    assert [decision.resident_bytes for decision in decisions] == [8_000, 80_000]
    assert [decision.chunk_events for decision in decisions] == [1000, 1000]
    assert [decision.available_bytes for decision in decisions] == [24_000, 96_000]
    report = MemoryReport(decisions)
    assert report.peak_bytes == 104_000


def test_fastest_keeps_the_larger_set_that_fits() -> None:
    """DP-03: the one whose second reading costs most; order of the requests does not matter."""
    for requests in ((DATA, MC), (MC, DATA)):
        kept = {d.label: d.strategy for d in plan_datasets(requests, 84_000)}
        assert kept == {"signal/data": "streaming", "signal/accepted_mc": "resident"}
        kept = {d.label: d.strategy for d in plan_datasets(requests, 60_000)}
        assert kept == {"signal/data": "resident", "signal/accepted_mc": "streaming"}


def test_equal_data_sets_are_kept_in_request_order() -> None:
    """DP-12: deterministic."""
    twins = tuple(dataclasses.replace(DATA, label=label) for label in "abc")
    decisions = plan_datasets(twins, 17_000)
    assert [decision.strategy for decision in decisions] == ["resident", "resident", "streaming"]
    assert [decision.label for decision in decisions] == ["a", "b", "c"]
    assert "beside the other data sets" in decisions[2].reason


def test_residency_is_not_bought_with_tiny_chunks() -> None:
    """DP-03: never worse than streaming everything: 8000 bytes kept would leave 15 events."""
    decisions = plan_datasets((DATA, MC), 8_000 + 24 * 15)
    assert [decision.strategy for decision in decisions] == ["streaming", "streaming"]
    decisions = plan_datasets((DATA, MC), 8_000 + 24 * 16)
    assert [decision.strategy for decision in decisions] == ["resident", "streaming"]
    assert decisions[1].chunk_events == 16


def test_many_tasks_may_make_a_small_set_cheaper_to_keep() -> None:
    """DP-03: 8 tasks would hold 8 streamed caches of a set that is one chunk."""
    request = DatasetRequest("x", 100, 100, 1, tasks_in_flight=8, minimum_chunk=100)
    other = dataclasses.replace(MC, tasks_in_flight=8)
    decisions = plan_datasets((request, other), 12_000)
    assert [decision.strategy for decision in decisions] == ["resident", "streaming"]
    with pytest.raises(MemoryBudgetError):
        plan_datasets((request, other), 12_000, "streaming")


def test_resident_error_names_one_or_all() -> None:
    """DP-02: a data set too large by itself, or all of them together."""
    with pytest.raises(MemoryBudgetError) as caught:
        plan_datasets((DATA, MC), 50_000, "resident")
    assert (caught.value.label, caught.value.requested) == ("signal/accepted_mc", 80_016)
    with pytest.raises(MemoryBudgetError, match="together") as caught:
        plan_datasets((DATA, MC), 88_015, "resident")
    assert caught.value.label == "signal/data, signal/accepted_mc"
    assert (caught.value.requested, caught.value.remaining) == (88_016, 88_015)
    assert len(plan_datasets((DATA, MC), 88_016, "resident")) == 2


requests = st.builds(
    DatasetRequest,
    label=st.sampled_from(["a", "b", "c"]),
    events=st.integers(0, 5000),
    cache_bytes_per_event=st.integers(0, 64),
    source_bytes_per_event=st.integers(0, 64),
    fixed_bytes=st.integers(0, 3000),
    transient_bytes_per_event=st.integers(0, 16),
    tasks_in_flight=st.integers(1, 4),
    minimum_chunk=st.integers(1, 300),
    tile_events=st.sampled_from([1, 7, 64, 1024]),
    fragments=st.integers(1, 3),
)
policies = st.sampled_from(POLICIES)
user_chunks = st.none() | st.integers(1, 6000)
budgets = st.integers(0, 20_000) | st.integers(0, 2_000_000)


def planned(
    several: list[DatasetRequest], available: int, policy: Policy, user_chunk: int | None
) -> tuple[Decision, ...] | None:
    """The plan, or `None` where the budget is too small."""
    try:
        return plan_datasets(several, available, policy, user_chunk)
    except MemoryBudgetError:
        return None


def affordable(
    several: list[DatasetRequest], available: int, policy: Policy, user_chunk: int | None
) -> int:
    """Raise the budget to what the errors ask for, until it works."""
    while True:
        try:
            plan_datasets(several, available, policy, user_chunk)
        except MemoryBudgetError as error:
            needed = error.requested
        else:
            return available
        assert needed > available
        available = needed


@given(st.lists(requests, min_size=1, max_size=4), budgets, policies, user_chunks)
@settings(max_examples=300, deadline=None)
def test_a_refusal_says_how_much_is_missing(
    several: list[DatasetRequest], available: int, policy: Policy, user_chunk: int | None
) -> None:
    """DP-02, DP-04: what is asked for exceeds what remains, and would do for the one named."""
    several = [dataclasses.replace(r, label=str(number)) for number, r in enumerate(several)]
    available = min(available, affordable(several, 0, policy, user_chunk) - 1)
    assume(available >= 0 and planned(several, available, policy, user_chunk) is None)
    with pytest.raises(MemoryBudgetError) as caught:
        plan_datasets(several, available, policy, user_chunk)
    error = caught.value
    assert error.requested > error.remaining == available
    named = [request for request in several if request.label in error.label.split(", ")]
    assert planned(named, error.requested, policy, user_chunk) is not None
    if policy != "fastest":
        assert planned(named, error.requested - 1, policy, user_chunk) is None


@given(st.lists(requests, max_size=4), budgets, policies, user_chunks)
@settings(max_examples=300, deadline=None)
def test_plans_keep_every_promise(
    several: list[DatasetRequest], available: int, policy: Policy, user_chunk: int | None
) -> None:
    """MP-05, DP-04, DP-05, DP-12: budget, tiles, user chunk and order, for any input."""
    available = affordable(several, available, policy, user_chunk)
    decisions = plan_datasets(several, available, policy, user_chunk)
    assert [decision.label for decision in decisions] == [request.label for request in several]
    kept = sum(decision.resident_bytes for decision in decisions)
    assert kept + max((d.transient_bytes for d in decisions), default=0) <= available
    for request, decision in zip(several, decisions, strict=True):
        chunk, events = decision.chunk_events, request.events
        assert decision.events == events
        assert decision.peak_bytes <= decision.available_bytes <= available
        if events == 0:
            continue
        assert chunk == events or chunk % request.tile_events == 0
        assert min(request.smallest_chunk, events) <= chunk <= events
        if user_chunk is not None:
            assert chunk <= max(user_chunk, request.smallest_chunk)
        tasks = request.tasks_in_flight
        rows = 2 * tasks * request.source_bytes_per_event
        rows += tasks * request.transient_bytes_per_event
        if decision.strategy == "resident":
            chunks = -(-events // chunk) + request.fragments - 1
            resident = request.cache_bytes_per_event * events + request.fixed_bytes * chunks
            assert decision.resident_bytes == resident
            assert decision.transient_bytes == max(rows, 1) * chunk
        else:
            assert decision.resident_bytes == 0
            rows += tasks * request.cache_bytes_per_event
            expected = tasks * request.fixed_bytes + max(rows, 1) * chunk
            assert decision.transient_bytes == expected
        if policy != "fastest":
            assert decision.strategy == policy


@given(st.lists(requests, min_size=1, max_size=4), budgets, budgets, policies, user_chunks)
@settings(max_examples=300, deadline=None)
def test_more_memory_is_never_worse(
    several: list[DatasetRequest],
    available: int,
    extra: int,
    policy: Policy,
    user_chunk: int | None,
) -> None:
    """DP-03: same storage gives chunks at least as large; the most expensive set goes first."""
    available = affordable(several, available, policy, user_chunk)
    less = plan_datasets(several, available, policy, user_chunk)
    more = plan_datasets(several, available + extra, policy, user_chunk)
    before = [decision.strategy for decision in less]
    after = [decision.strategy for decision in more]
    if before == after:
        pairs = zip(less, more, strict=True)
        assert all(small.chunk_events <= large.chunk_events for small, large in pairs)
    elif planned(several, available, "streaming", user_chunk) is not None:
        cost = [request.events * request.source_bytes_per_event for request in several]
        order = sorted(range(len(several)), key=lambda number: (-cost[number], number))
        changed = next(number for number in order if before[number] != after[number])
        assert after[changed] == "resident"


@given(requests, budgets, budgets, user_chunks)
@settings(deadline=None)
def test_one_data_set_is_monotone_in_the_budget(
    request: DatasetRequest, available: int, extra: int, user_chunk: int | None
) -> None:
    """DP-03: once resident, resident with more memory too."""
    available = affordable([request], available, "fastest", user_chunk)
    less = plan_dataset(request, available, "fastest", user_chunk)
    more = plan_dataset(request, available + extra, "fastest", user_chunk)
    if less.strategy == "resident":
        assert more.strategy == "resident"
    if less.strategy == more.strategy:
        assert more.chunk_events >= less.chunk_events


@given(st.lists(requests, min_size=1, max_size=4), budgets, user_chunks)
@settings(deadline=None)
def test_fastest_succeeds_whenever_another_policy_does(
    several: list[DatasetRequest], available: int, user_chunk: int | None
) -> None:
    """DP-03: never an error where streaming or keeping everything would have worked."""
    plans = {policy: planned(several, available, policy, user_chunk) for policy in POLICIES}
    if plans["resident"] is not None:
        assert plans["fastest"] is not None
        assert [d.resident_bytes for d in plans["fastest"]] == [
            d.resident_bytes for d in plans["resident"]
        ]
    if plans["streaming"] is not None:
        assert plans["fastest"] is not None


# ---- what is shown ----------------------------------------------------------------------------


def test_a_decision_prints_on_one_line_and_as_json() -> None:
    """MD-04, MD-05, ME-11."""
    decision = plan_dataset(AX38, 2000)
    assert str(decision) == (
        "signal/data: resident, 100 events in 3 chunks of at most 35, holds 1.3 KiB, "
        "peak 2.0 KiB of 2.0 KiB: its prepared columns fit in memory, so every pass reuses them"
    )
    assert json.loads(json.dumps(decision.to_dict())) == {
        "label": "signal/data",
        "strategy": "resident",
        "events": 100,
        "chunk_events": 35,
        "resident_bytes": 1300,
        "peak_bytes": 2000,
        "available_bytes": 2000,
        "reason": "its prepared columns fit in memory, so every pass reuses them",
        "fixed_bytes": 0,
        "bytes_per_event": 20,
        "measured_bytes": None,
        "resident_events": 100,
        "spilled_events": 0,
        "spilled_bytes": 0,
    }
    assert pickle.loads(pickle.dumps(decision)) == decision
    assert "(measured 1.9 KiB)" in str(dataclasses.replace(decision, measured_bytes=1946))


def test_the_report_is_a_table() -> None:
    """ME-11, MD-05: decisions in order, totals, pools."""
    pool = LeasePool("host", 2**20)
    report = MemoryReport(pools=[pool.report()])
    assert str(report).startswith("no memory decisions yet")
    report.record(*plan_datasets((DATA, MC), 60_000))
    report.measure("signal/data", 9000)
    lines = str(report).splitlines()
    sizes = ["resident", "disk", "peak", "measured"]
    assert re.split(r"\s{2,}", lines[0]) == (
        ["data set", "storage", "events", "chunk", *sizes, "why"]
    )
    rows = [re.split(r"\s{2,}", line) for line in lines if line.startswith("signal")]
    assert [row[:8] for row in rows] == [
        ["signal/data", "resident", "1000", "1000", "7.8 KiB", "0 B", "23.4 KiB", "8.8 KiB"],
        ["signal/accepted_mc", "streaming", "10000", "2166", "0 B", "0 B", "50.8 KiB", "-"],
    ]
    assert re.split(r"\s{2,}", lines[-2]) == (
        ["together", "7.8 KiB", "0 B", "58.6 KiB", "one pass at a time"]
    )
    assert lines[-1].startswith("host: 0 B of 1.0 MiB reserved")
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["resident_bytes"] == 8000
    assert plain["decisions"][0]["measured_bytes"] == 9000
    with pytest.raises(MemoryBudgetError, match="no memory decision is labelled 'other'"):
        report.measure("other", 1)


def test_what_is_said_where_nothing_is_known_of_the_disk() -> None:
    """Bytes are on disk, not of "disk memory"; a cure that is always possible."""
    with pytest.raises(MemoryBudgetError, match="data: spilling it needs") as caught:
        plan_dataset(DatasetRequest("data", 1000, 8, 8, 0), 1 << 20, "spilled", disk=10)
    assert "needs 8000 bytes (7.8 KiB) on disk, 10 bytes remain; set TMPDIR" in str(caught.value)
    told = SpillPlace("the local directory of the worker", 10, False, "start it with").cure(11)
    assert told.startswith("the disk of the local directory of the worker has 10 bytes free;")
    assert "start it with a folder on a disk with more room" in told
