"""Memory that runs out: smaller chunks once, the same bits, and a clear error in the end.

Covers T-53 and DK-17: running out of memory says nothing about the model.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from narrow_fragment import Narrow
from process_cluster import ProcessCluster

import laddu_dask as ld
from laddu_dask.data import Fragment
from laddu_dask.errors import MemoryBudgetError

EVENTS = 8192


def dataset(most: int | None, *, wrapped: bool = False) -> ld.Dataset:
    """Events of one column, with or without a decoder that is short of memory."""
    x = np.modf(np.arange(1.0, EVENTS + 1) * np.sqrt(2.0))[0]
    whole = ld.Dataset.from_arrays(scalars={"x": x})
    if most is None:
        return whole
    parts: list[Fragment] = [Narrow(part, most, wrapped) for part in whole.parts]
    return replace(whole, parts=tuple(parts))


def likelihood(execution: ld.Execution, data: ld.Dataset) -> ld.Likelihood:
    x = ld.scalar("x")
    slope = ld.parameter("s", initial=0.5)
    model = ld.Model(1.0 + slope * x + (slope * x) ** 2)
    return ld.Likelihood([ld.NLL(model, data=data, accepted_mc=dataset(None))], execution)


def bits(execution: ld.Execution, data: ld.Dataset) -> tuple[list[str], int]:
    """Value and gradient to the last bit, and partitions with smaller chunks."""
    with likelihood(execution, data) as made:
        value, gradient = made.value_and_gradient()
        shrunk = sum(worker.shrunk for worker in made.report().workers)
    return [value.hex(), *(float(x).hex() for x in gradient)], shrunk


def options(storage: Any, **more: Any) -> ld.Execution:
    return ld.Execution(
        backend="interpreter",
        normalization="general",
        storage=storage,
        chunk_events=4096,
        partitions=2,
        **more,
    )


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("storage", ["resident", "streaming", "spilled"])
def test_smaller_chunks_once_with_the_same_bits(storage: str, wrapped: bool) -> None:
    expected, shrunk = bits(options(storage), dataset(None))
    assert shrunk == 0
    assert bits(options(storage), dataset(2048, wrapped=wrapped)) == (expected, 2)


@pytest.mark.parametrize("storage", ["resident", "streaming"])
def test_too_little_for_half_as_well(storage: str) -> None:
    with (
        likelihood(options(storage), dataset(1024)) as made,
        pytest.raises(MemoryBudgetError, match=r"Unable to allocate 3\.1 GiB") as caught,
    ):
        made.value()
    assert "nll/data: memory ran out" in str(caught.value)
    assert "in chunks of 2048 events" in str(caught.value)
    assert "Give a smaller budget with Execution(memory=...)" in str(caught.value)
    assert caught.value.resource == "host"


def test_the_report_tells(tmp_path: Path) -> None:
    with likelihood(options("streaming"), dataset(2048)) as made:
        made.value()
        assert "memory ran out: 2 partitions in smaller chunks" in str(made.report())
        made.value()  # they stay smaller
        assert "memory ran out: 2 partitions in smaller chunks" in str(made.report())


@pytest.mark.cluster
def test_workers_run_out_of_memory(tmp_path: Path) -> None:
    expected, _ = bits(options("resident"), dataset(None))
    with ProcessCluster(tmp_path) as cluster:
        cluster.start_worker()
        cluster.start_worker()
        with Client(cluster.address, set_as_default=False, timeout=60) as client:
            client.wait_for_workers(2, timeout=120)
            for storage in ("resident", "streaming"):
                execution = options(storage, cluster=client)
                assert bits(execution, dataset(2048)) == (expected, 2)
                with (
                    likelihood(execution, dataset(1024)) as made,
                    pytest.raises(MemoryBudgetError, match="memory ran out"),
                ):
                    made.value()
