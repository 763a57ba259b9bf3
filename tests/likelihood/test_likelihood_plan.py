"""Memory: the plan comes before anything is read, budgets are refused early, leases return."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster
from two_wave_case import bits, model, sample, two_waves

import laddu_dask as ld
from laddu_dask.errors import DataError, ExecutionError, MemoryBudgetError
from laddu_dask.runtime import adaptive
from laddu_dask.runtime.forms import choose_form
from laddu_dask.runtime.planner_link import kept_results
from laddu_dask.runtime.worker_memory import NAME, PARTITION_PREFIX

A = ld.parameter("a", initial=0.5)
X = ld.scalar("x")


def events(n: int = 100_000) -> ld.Dataset:
    return ld.Dataset.from_arrays(scalars={"x": np.linspace(0, 1, n)})


def likelihood(mc: ld.Dataset | None = None, **options: Any) -> ld.Likelihood:
    term = ld.NLL(
        1 + A * X, data=events(10_000), accepted_mc=events() if mc is None else mc, name="signal"
    )
    return ld.Likelihood(
        [term], ld.Execution(**({"backend": "interpreter", "normalization": "general"} | options))
    )


def test_planned_before_anything_is_read(tmp_path: Path) -> None:
    """The file may be gone when the plan is made; it prints, and says the same afterwards."""
    path = tmp_path / "mc.parquet"
    pq.write_table(pa.table({"x": np.linspace(0, 1, 1000)}), path, row_group_size=100)
    planned = likelihood(ld.read_parquet(path))
    path.unlink()
    text = str(planned.plan())
    assert "signal/data" in text
    assert "signal/accepted_mc" in text
    assert "resident" in text
    assert str(planned.plan()) == text
    decision = planned.plan().decisions[1]
    assert (decision.label, decision.events) == ("signal/accepted_mc", 1000)
    assert json.loads(json.dumps(planned.plan().to_dict()))["decisions"][1]["events"] == 1000
    with pytest.raises(DataError, match="cannot be found"):
        planned.value()
    assert str(planned.plan()) == text
    planned.close()


def test_decisions_follow_the_budget() -> None:
    """DP rows: resident if it fits, else streaming in chunks that do, with the reason."""
    needed = likelihood(storage="resident", threads=1).plan()
    assert [d.strategy for d in needed.decisions] == ["resident", "resident"]
    assert needed.decisions[1].resident_bytes >= 8 * 100_000  # x; there are no weights
    # The data fit beside chunks of the accepted events, these do not fit whole.
    budget = needed.decisions[1].resident_bytes
    memory = ld.MemoryPlan(budget, disk=1)
    with likelihood(memory=memory, threads=1, chunk_events=1100, partitions=1) as tight:
        data, mc = tight.plan().decisions
        assert mc.strategy == "streaming"
        assert mc.chunk_events == 1024
        assert "budget" in mc.reason or "room" in mc.reason
        assert data.resident_bytes + mc.peak_bytes <= budget
        with likelihood() as ample:
            assert bits(tight) == bits(ample)


def roots(**options: Any) -> ld.Likelihood:
    """A model of roots and reciprocals of one column."""
    x, a = ld.scalar("x"), ld.parameter("a", initial=0.5)
    amplitude = (a + 1 / (x + 1).sqrt()) * (a + 1 / (x + 2).sqrt()) + 1j * a * x
    events = {"x": np.linspace(0.1, 1.0, 40_000)}
    data = ld.Dataset.from_arrays(scalars=events)
    term = ld.NLL((amplitude / (a + x)).norm_sqr(), data=data, accepted_mc=data)
    return ld.Likelihood([term], ld.Execution(threads=1, chunk_events=1024, **options))


@pytest.mark.parametrize("storage", ["fastest", "resident"])
def test_columns_are_computed_again_before_events_are_read_again(storage: Any) -> None:
    """The planner's lever: fewer columns where memory is short, and the same bits."""
    with roots() as ample:
        expected = bits(ample)
        kept = [d.resident_bytes for d in ample.plan().decisions]
    tight = 2 * kept[0] - 40_000
    with roots(memory=tight, storage=storage) as short:
        decisions = short.plan().decisions
        assert [d.strategy for d in decisions] == ["resident", "resident"]
        assert all(d.resident_bytes < before for d, before in zip(decisions, kept, strict=True))
        assert bits(short) == expected
        assert short.plan().decisions == decisions
    with roots(memory=ld.MemoryPlan(kept[0] // 3, disk=1), partitions=1) as streamed:
        assert {d.strategy for d in streamed.plan().decisions} == {"streaming"}
        assert bits(streamed) == expected


def test_a_wish_for_chunks_only_shrinks() -> None:
    """T-50: and what was asked for is kept to."""
    plan = likelihood(chunk_events=3000).plan()
    assert [d.chunk_events for d in plan.decisions] == [2048, 2048]
    assert "limited to 3000 events as asked" in str(plan)
    plan = likelihood(chunk_events=7).plan()
    assert [d.chunk_events for d in plan.decisions] == [1024, 1024]
    assert "a chunk has at least 1024 events, more than the 7 asked for" in str(plan)


@pytest.mark.parametrize("storage", ["fastest", "streaming"])
def test_a_budget_too_small_for_one_block(storage: Any) -> None:
    """Refused by the plan, with what is needed and what there is; nothing was read."""
    small = likelihood(storage=storage, memory=1000, threads=2)
    for attempt in (small.plan, small.value, small.fit):
        with pytest.raises(MemoryBudgetError, match=r"signal/data: streaming it") as caught:
            attempt()
        assert caught.value.remaining == 1000
        assert caught.value.requested > 1000
        assert (caught.value.resource, caught.value.label) == ("host", "signal/data")
        assert "raise the memory budget" in str(caught.value)
    with likelihood(storage=storage, memory=caught.value.requested + 1_000_000) as enough:
        assert np.isfinite(enough.value())


def test_the_requested_budget_is_enough() -> None:
    """What the error asks for is what it takes."""
    memory, refused = 50_000, []
    # First a data set that does not fit even alone is named, then what does not fit together.
    for label in ("signal/data", "signal/accepted_mc", "signal/data, signal/accepted_mc"):
        with pytest.raises(MemoryBudgetError, match="resident.* needs") as caught:
            likelihood(storage="resident", memory=memory, threads=1).plan()
        assert 'choose storage="fastest"' in str(caught.value)
        assert (caught.value.label, caught.value.remaining) == (label, memory)
        memory = caught.value.requested
        refused.append(memory)
    assert refused == sorted(refused)
    with likelihood(storage="resident", memory=memory, threads=1) as fits:
        assert np.isfinite(fits.value())
    with pytest.raises(MemoryBudgetError):
        likelihood(storage="resident", memory=memory - 1, threads=1).plan()


@pytest.mark.parametrize("memory", ["-1 GiB", "2 gibibites", "0", "200%", 0, 1.5])
def test_malformed_budgets(memory: Any) -> None:
    with pytest.raises(MemoryBudgetError, match="is not a memory budget"):
        ld.Execution(memory=memory)


def test_budgets_in_words() -> None:
    """Text, percentages and plans reach the decisions."""
    for memory in ("2 GiB", 2**31, ld.MemoryPlan(host="2048 MiB")):
        assert likelihood(memory=memory).plan().decisions[0].available_bytes <= 2**31
    half, whole = (
        likelihood(memory=text).plan().decisions[0].available_bytes for text in ("50%", "100%")
    )
    assert 0 < half < whole


def test_leases_are_released() -> None:
    """DP-10, T-48: held while partitions are, returned by close, and after any exception."""
    used = likelihood(storage="resident")
    used.value()
    pool = used._reducer.reducer._pool
    assert pool is not None
    kept = sum(decision.events * 8 for decision in used.plan().decisions)  # x, no weights
    assert pool.reserved == kept
    assert kept < pool.high_water <= used.plan().peak_bytes
    used.close()
    assert pool.reserved == 0
    used.close()  # again, and nothing happens


def test_leases_return_when_preparing_fails(tmp_path: Path) -> None:
    """T-48: nothing was kept, so nothing stays reserved; a repaired file may then be used."""
    path = tmp_path / "mc.parquet"
    table = pa.table({"x": np.linspace(0, 1, 1000)})
    pq.write_table(table, path)
    hidden = tmp_path / "hidden.parquet"
    broken = likelihood(ld.read_parquet(path), storage="resident")
    path.rename(hidden)
    for _ in range(2):
        with pytest.raises(DataError):
            broken.value()
        assert broken._reducer.reducer._pool is not None
        assert broken._reducer.reducer._pool.reserved == 0
    hidden.rename(path)
    with likelihood(events(1000)) as usual:
        assert broken.value() == usual.value()
    broken.close()


def test_leases_of_a_pass_return_after_its_error(tmp_path: Path) -> None:
    """T-48: streaming holds bytes only while a pass runs, also when it fails."""
    path = tmp_path / "mc.parquet"
    pq.write_table(pa.table({"x": np.linspace(0, 1, 1000)}), path)
    with likelihood(ld.read_parquet(path), storage="streaming") as streaming:
        streaming.value()
        pool = streaming._reducer.reducer._pool
        assert pool is not None
        path.unlink()
        for _ in range(3):
            with pytest.raises(DataError):
                streaming.value()
            assert pool.reserved == 0
        assert pool.high_water > 0


def test_closed_and_used_again() -> None:
    """Close gives everything back; the likelihood itself is only a description."""
    used = two_waves(ld.Execution(backend="interpreter"))
    first = bits(used)
    used.close()
    assert bits(used) == first
    used.close()


def test_report_counts() -> None:
    """ST-01, DK-18: evaluations, events and this process."""
    with likelihood(threads=2, partitions=3) as used:
        assert used.report().evaluations == 0
        assert used.report().evaluations_per_second == 0
        used.value()
        used.value_and_gradient()
        report = used.report()
    assert (report.evaluations, report.events) == (2, 110_000)
    assert report.evaluations_per_second > 0
    (process,) = report.workers
    assert (process.nthreads, process.partitions) == (2, 6)
    assert 0 < process.resident_bytes <= process.peak_resident_bytes
    text = str(report)
    assert "2 evaluations of 110000 events" in text
    assert "signal/accepted_mc" in text
    assert json.loads(json.dumps(report.to_dict()))["evaluations"] == 2


def test_everything_that_describes_a_likelihood_pickles() -> None:
    """Models, terms and data sets travel; what comes out gives the same bits."""
    term = ld.ExtendedNLL(model(), data=sample("data"), accepted_mc=sample("mc"), name="signal")
    revived_model, revived = pickle.loads(pickle.dumps((term.model, term)))
    assert revived_model.digest == term.model.digest
    assert revived.model is revived_model  # sharing survives
    assert revived.name == "signal"
    execution = ld.Execution(backend="interpreter", memory="1 GiB", storage="streaming")
    assert pickle.loads(pickle.dumps(execution)) == execution
    with (
        ld.Likelihood([term], execution) as before,
        ld.Likelihood([revived], pickle.loads(pickle.dumps(execution))) as after,
    ):
        assert bits(after) == bits(before)
        assert after.parameters == before.parameters


@pytest.mark.cluster
def test_plan_of_a_cluster(client: Client) -> None:
    """DK-06: for the worker with the largest share, before any task exists."""
    with likelihood(cluster=client, partitions=3, memory="1 GiB") as planned:
        data, mc = planned.plan().decisions
        # Two of the three partitions go to one of the workers, the largest ones at worst.
        assert (data.events, mc.events) == (4096 + 3072, 34_464 + 33_792)
        assert mc.available_bytes <= 2**30
        assert not client.run_on_scheduler(_session_keys)
        planned.value()
        report = planned.report()
    assert sorted(worker.partitions for worker in report.workers) == [3, 3]
    with likelihood(cluster=client, partitions=1) as single:
        assert single.plan().decisions[1].events == 100_000


@pytest.mark.cluster
def test_a_budget_too_small_for_one_block_on_a_cluster(client: Client) -> None:
    """The same error; the cluster is not touched."""
    with pytest.raises(MemoryBudgetError, match="signal/data: streaming it") as caught:
        likelihood(cluster=client, memory=1000).value()
    assert caught.value.remaining == 1000
    assert not client.run_on_scheduler(_session_keys)


@pytest.mark.cluster
def test_a_cluster_without_workers() -> None:
    """Refused instead of waiting for ever, in plans and evaluations of any kind."""
    with LocalCluster(n_workers=0, processes=True, dashboard_address=":0") as empty:
        execution = ld.Execution(cluster=empty, patience=0.2)
        used = likelihood(cluster=empty, patience=0.2)
        for attempt in (
            used.plan,
            used.value,
            lambda: ld.Model(1 + A * X).evaluate(events(), execution=execution),
        ):
            with pytest.raises(ExecutionError, match="the cluster has no workers") as caught:
                attempt()
            assert caught.value.option == "cluster"
        used.close()


@pytest.mark.cluster
def test_a_cluster_that_scales_from_zero(caplog: pytest.LogCaptureFixture) -> None:
    """DK-16: asked for a worker, it starts one; the value is that of this process."""
    with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0") as empty:
        empty.adapt(minimum=0, maximum=1, interval="100ms", wait_count=50)
        with likelihood(cluster=empty) as used:
            assert used.value() == likelihood().value()
    assert "the cluster has no workers; waiting for one" in caplog.text


def _session_keys(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks if "laddu" in str(key)]


def test_forms_are_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """DP-10: also where memory is short and computing more from fewer columns does not help."""
    chosen: list[str] = []

    def counted(item: Any, *arguments: Any, **options: Any) -> Any:
        chosen.append(item.label)
        return choose_form(item, *arguments, **options)

    monkeypatch.setattr(adaptive, "choose_form", counted)
    with likelihood(events(200_000), memory=ld.MemoryPlan("1 MiB", disk=1)) as used:
        values = {used.value()}
        first = len(chosen)
        decisions = used._reducer.reducer.plan().decisions
        assert any(decision.streamed_events for decision in decisions)
        values |= {used.value() for _ in range(3)}
    assert len(chosen) == first
    assert len(values) == 1


def test_the_report_compares_plan_and_measurement() -> None:
    """ME-11, DK-06: 64 MiB of columns, kept and seen; the model of a pass is right within a third.

    The interpreter compiles nothing that would be counted.
    """
    with likelihood(events(8_000_000), threads=1, storage="resident") as used:
        plan = used.report().plan  # prepares
    mc = plan.decisions[1]
    assert mc.measured_bytes is not None
    assert 0.9 * mc.resident_bytes < mc.measured_bytes < 1.33 * mc.peak_bytes
    (process,) = plan.processes
    assert process.name == ""
    assert abs(process.errors["signal/accepted_mc"]) < 0.33
    assert process.error is not None
    assert abs(process.error) < 0.33
    assert "this process: 1 thread, holds" in str(plan)
    assert "signal/accepted_mc: planned" in str(plan)


def _kept_and_promised(dask_scheduler: Any) -> tuple[int, int]:
    """Bytes of all prepared partitions: as Dask counts them, and as they were reserved."""
    kept = kept_results(dask_scheduler, PARTITION_PREFIX)
    leases = dask_scheduler.plugins[NAME].book.leases()
    keys = {result.key for result in kept}
    return sum(result.nbytes for result in kept), sum(c.nbytes for c in leases if c.owner in keys)


@pytest.mark.cluster
def test_a_cluster_tells_pools_leases_and_errors(client: Client) -> None:
    """ME-11, DK-07: before and after; what another session holds is in the plan of the next one."""
    with likelihood(events(500_000), cluster=client, storage="resident") as first:
        before = first.plan()
        assert {pool.resource for pool in before.pools} == {"host", "disk"}
        assert len(before.processes) == len(client.scheduler_info(n_workers=-1)["workers"])
        assert before.notes == ()
        report = first.report().plan  # prepares
        held = sum(pool.reserved for pool in report.pools if pool.resource == "host")
        # All columns, a header for each partition, and room for a chunk on each worker.
        assert 8 * 510_000 < held <= sum(process.peak_bytes for process in report.processes)
        assert all(process.measured_bytes is not None for process in report.processes)
        kept, promised = client.run_on_scheduler(_kept_and_promised)
        # What Dask counts for the objects is what was asked for, their headers and the padding.
        assert promised <= kept < 1.01 * promised
        assert "measured" in str(report)
        with likelihood(cluster=client) as second:
            told = second.plan()
            assert sum(p.reserved for p in told.pools if p.resource == "host") == held
            assert len(told.notes) == len(before.processes)
            assert all(f"of {client.id} holds" in note for note in told.notes)
            left = [p.remaining for p in told.pools if p.resource == "host"]
            assert all(process.budget_bytes <= max(left) for process in told.processes)
    with likelihood(cluster=client) as third:
        assert third.plan().notes == ()
