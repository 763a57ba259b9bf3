"""The resident planner: acceptance numbers and the search against exhaustion."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laddu_dask.memory import MAX_BYTES, Footprint, resident_cache_plan
from laddu_dask.memory.residency import Load, largest_chunks, least_budget


@pytest.mark.parametrize(
    ("available", "expected"),
    [(2000, (1300, 35)), (3100, (1100, 100)), (3099, (1200, 94)), (1900, (1400, 25))]
    + [(available, None) for available in (1899, 1500, 1120, 1119)],
)
def test_acceptance_numbers(available: int, expected: tuple[int, int] | None) -> None:
    """MP-01, MP-03, MP-04, AX-38, T-47."""
    assert resident_cache_plan(100, 10, 20, 100, available) == expected


def test_more_acceptance_numbers() -> None:
    """MP-02, AX-38."""
    assert resident_cache_plan(0, 8, 16, 1000, 10000) == (8000, 125)
    assert resident_cache_plan(0, 10, 20, 0, 5) == (0, 1)
    assert resident_cache_plan(100, 10, 20, 0, 5) == (100, 1)


@pytest.mark.parametrize("where", range(4))
def test_overflow_does_not_fit(where: int) -> None:
    """MP-03, T-45: sums beyond 2**64 - 1 are no plan, also in a budget that large."""
    fixed, cache, source, events = (MAX_BYTES if place == where else 10 for place in range(4))
    assert resident_cache_plan(fixed, cache, source, events, MAX_BYTES) is None
    assert resident_cache_plan(fixed, cache, source, events, 2**80) is None


small = st.integers(0, 40)


@given(small, small, small, st.integers(1, 60), st.integers(0, 4000))
@settings(max_examples=300, deadline=None)
def test_the_largest_feasible_chunk_is_found(
    fixed: int, cache: int, source: int, events: int, available: int
) -> None:
    """MP-04, MP-05: equal to trying every chunk."""

    def resident(chunk: int) -> int:
        return cache * events + fixed * -(-events // chunk)

    feasible = [
        chunk
        for chunk in range(1, events + 1)
        if resident(chunk) + max(source, 1) * chunk <= available
    ]
    expected = (resident(feasible[-1]), feasible[-1]) if feasible else None
    assert resident_cache_plan(fixed, cache, source, events, available) == expected


loads = st.builds(
    lambda tiles, part, tile, kept, per_chunk, fixed, per_event, least, most: Load(
        events=tiles * tile + part % tile,
        kept=kept,
        kept_per_chunk=per_chunk,
        transient=Footprint(fixed, per_event),
        smallest=min(least, tiles) * tile,
        largest=tiles * tile + part % tile if most > tiles else max(most, least) * tile,
        tile=tile,
    ),
    st.integers(3, 6),
    st.integers(0, 4),
    st.integers(1, 5),
    small,
    small,
    small,
    small,
    st.integers(1, 2),
    st.integers(2, 9),
)


def chunks_of(load: Load) -> list[int]:
    """Every allowed chunk."""
    tiled = range(0, load.largest, load.tile)
    return [chunk for chunk in (*tiled, load.largest) if chunk >= load.smallest]


def peak(several: list[Load], chunks: tuple[int, ...]) -> int:
    """Kept bytes of all plus the largest transient, written out."""
    pairs = list(zip(several, chunks, strict=True))
    kept = sum(load.kept + load.kept_per_chunk * -(-load.events // chunk) for load, chunk in pairs)
    return kept + max(
        load.transient.fixed_bytes + max(load.transient.bytes_per_event, 1) * chunk
        for load, chunk in pairs
    )


@given(st.lists(loads, min_size=1, max_size=2), st.integers(0, 2000))
@settings(max_examples=300, deadline=None)
def test_several_data_sets_get_the_largest_chunks_together(
    several: list[Load], available: int
) -> None:
    """DP-04, T-49: every feasible choice is below the one found, in every data set at once."""
    first, *rest = several
    choices: list[tuple[int, ...]] = [(chunk,) for chunk in chunks_of(first)]
    if rest:
        choices = [(*choice, chunk) for choice in choices for chunk in chunks_of(rest[0])]
    feasible = [choice for choice in choices if peak(several, choice) <= available]
    found = largest_chunks(several, available)
    if not feasible:
        assert found is None
        return
    assert found in feasible
    for choice in feasible:
        assert all(chunk <= most for chunk, most in zip(choice, found, strict=True))


@given(st.lists(loads, min_size=1, max_size=3))
@settings(deadline=None)
def test_least_budget_is_exact(several: list[Load]) -> None:
    """T-47: the number that an error asks for works, one byte less does not."""
    least = least_budget(several)
    assert largest_chunks(several, least) is not None
    assert largest_chunks(several, least - 1) is None


def test_the_hardest_budgets_take_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """MP-04: just above and below the least budget the search creeps, but not for long."""
    rounds = 0
    plain = Load.chunk_within

    def counted(self: Load, room: int) -> int:
        nonlocal rounds
        rounds += 1
        return plain(self, room)

    monkeypatch.setattr(Load, "chunk_within", counted)
    events = 10**12
    load = Load(events, 0, 1, Footprint(0, 1), 1, events)
    least = least_budget([load])
    for available in (least - 10, least - 1, least, least + 1, least + 10):
        rounds = 0
        largest_chunks([load], available)
        assert 0 < rounds <= 5 * events**0.25
