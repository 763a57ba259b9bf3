"""A report tells how events are kept, also where that is not what was planned."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

import laddu_dask as ld
from laddu_dask.runtime import spilled
from laddu_dask.runtime.spill_file import write_chunks

# Functions below run on workers, which cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

EVENTS = 150_000
#: Too little for the events, which two workers share.
HERE, ON_WORKERS = (ld.MemoryPlan(memory, disk="64 MiB") for memory in ("2 MiB", "1 MiB"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ld.Dataset:
    """In a file, so that it takes no memory of workers."""
    path = tmp_path_factory.mktemp("events") / "events.parquet"
    values = np.random.default_rng(5).uniform(0.5, 2.0, EVENTS)
    pq.write_table(pa.table({"x": values}), path, row_group_size=10_000)
    return ld.read_parquet(path)


def likelihood(data: ld.Dataset, **options: Any) -> ld.Likelihood:
    x, a = ld.scalar("x"), ld.parameter("a", initial=0.4)
    model = ld.Model((x.sqrt() * a + ld.complex(1.0, a * x)).norm_sqr() + (a * x).sin() ** 2)
    return ld.Likelihood(
        [ld.NLL(model, data=data, accepted_mc=data, name="s")],
        ld.Execution(partitions=6, normalization="general", **options),
    )


def refuse(*arguments: Any, **fields: Any) -> Any:
    raise ld.MemoryBudgetError("the disk is full today", resource="disk")


ORIGINAL = write_chunks


def spill_by(writer: Callable[..., Any]) -> None:
    vars(spilled)["write_chunks"] = writer


def check_report(used: ld.Likelihood) -> None:
    """Everything that was to be on disk is streamed, and the report says so."""
    report = used.report()
    low = [kept for kept in report.not_as_planned if kept.planned == "spilled"]
    assert {kept.label for kept in low} == {"s/data", "s/accepted_mc"}, str(report)
    for kept in low:
        assert kept.used == "streaming"
        assert report.storage[kept.label]["streaming"] >= kept.events > 0
        assert "spilled" not in report.storage[kept.label]
        assert sum(report.storage[kept.label].values()) == EVENTS
        assert (
            f"NOT AS PLANNED: {kept.label}: {kept.events} events in {kept.partitions} partitions "
            "are streaming, not spilled; no room for it to be spilled: the disk is full today\n"
        ) in str(report)
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["storage"] == report.storage
    assert len(plain["not_as_planned"]) == len(report.not_as_planned)
    assert plain["not_as_planned"][0]["used"] == "streaming"


def test_a_disk_that_turns_out_to_be_full(
    data: ld.Dataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning for a data set, with the reason, and the same bits."""
    with likelihood(data) as resident:
        expected = resident.value()
        assert resident.report().not_as_planned == ()
        assert resident.report().storage == {
            label: {"resident": EVENTS} for label in ("s/data", "s/accepted_mc")
        }
    with likelihood(data, memory=HERE, threads=2) as planned:
        assert planned.value() == expected
        report = planned.report()
        assert report.not_as_planned == ()
        assert "NOT AS PLANNED" not in str(report)
        found = {label: Counter(events) for label, events in report.storage.items()}
        for decision in report.plan.decisions:
            assert found[decision.label]["spilled"] > 0
    monkeypatch.setattr(spilled, "write_chunks", refuse)
    with caplog.at_level(logging.WARNING), likelihood(data, memory=HERE, threads=2) as used:
        assert used.value() == expected
        check_report(used)
    said = [r.getMessage() for r in caplog.records if "not kept as planned" in r.getMessage()]
    assert sorted(text.split(":")[0] for text in said) == ["s/accepted_mc", "s/data"]
    assert all("the disk is full today" in text for text in said)


@pytest.mark.cluster
def test_workers_whose_disks_are_full(client: Client, data: ld.Dataset) -> None:
    """What each worker kept is asked of it."""
    on_workers: Callable[..., Any] = client.run
    with likelihood(data) as here:
        expected = here.value()
    on_workers(spill_by, refuse)
    try:
        with likelihood(data, cluster=client, memory=ON_WORKERS) as used:
            assert used.value() == expected
            check_report(used)
    finally:
        on_workers(spill_by, ORIGINAL)
