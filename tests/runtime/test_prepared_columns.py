"""What a prepared partition holds."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import laddu_dask as ld
from laddu_dask.compiler import Assumptions
from laddu_dask.kernels import Accumulator, get_backend
from laddu_dask.memory import MAX_BYTES, LeasePool, LocalRoom
from laddu_dask.runtime.partitions import Partition, partition_dataset
from laddu_dask.runtime.preparation import Recipe
from laddu_dask.runtime.tiers import ResidentPartition, prepare

Array = NDArray[Any]
N = 4000
ROOM = LocalRoom(LeasePool("host", MAX_BYTES))
MODEL = ld.Model((ld.parameter("a", initial=0.7) * ld.scalar("x") + 1.0) ** 2)


def prepared(weights: Array | None, chunk: int = 1024) -> list[ResidentPartition]:
    """Two resident partitions."""
    data = ld.Dataset.from_arrays(scalars={"x": np.linspace(0.5, 1.5, N)}, weights=weights)
    programs = MODEL.grouped("linear", Assumptions()).programs
    recipe = Recipe("data", programs, "interpreter", chunk)
    result = []
    for partition in partition_dataset(data, 2):
        found = prepare(recipe, partition, ["resident"], ROOM)
        assert isinstance(found, ResidentPartition)
        result.append(found)
    return result


@pytest.mark.parametrize("weights", [None, np.ones(N)])
def test_weights_of_one_take_no_memory(weights: Array | None) -> None:
    """One column of an event is kept, eight bytes."""
    for partition in prepared(weights):
        (chunk,) = partition.chunks()
        assert chunk.weights == 1.0
        assert partition.__sizeof__() < 9 * chunk.columns.shape[1]
        total = partition.weight_sum(get_backend("cpu"))
        assert (total.round(), total.count) == ([partition.events], partition.events)


def test_weights_that_differ_at_the_end() -> None:
    """Ones before the first other weight are filled in, the padding is zero."""
    weights = np.ones(N)
    weights[-3:] = [2.0, 0.0, -1.5]
    first, last = prepared(weights)
    (chunk,) = first.chunks()
    assert chunk.weights == 1.0
    (chunk,) = last.chunks()
    assert isinstance(chunk.weights, np.ndarray)
    assert chunk.weights[: last.events].tolist() == weights[first.events :].tolist()
    assert not chunk.weights[last.events :].any()
    for partition, own in ((first, weights[: first.events]), (last, weights[first.events :])):
        expected = Accumulator(1)
        expected.add_rows(own[np.newaxis], 0)
        assert partition.weight_sum(get_backend("cpu")) == expected
    last.weight_sum(get_backend("cpu")).merge(expected)  # what is kept does not change by it
    assert last.weight_sum(get_backend("cpu")) == expected
    assert last.__sizeof__() > 16 * chunk.columns.shape[1]


def test_weights_of_several_data_sets() -> None:
    """Files without weights between others: ones are kept where other weights are kept."""
    x, weights = np.linspace(0.5, 1.5, 1024), np.linspace(-1.0, 3.0, 1024)
    plain = ld.Dataset.from_arrays(scalars={"x": x})
    other = ld.Dataset.from_arrays(scalars={"x": x}, weights=weights)
    programs = MODEL.grouped("linear", Assumptions()).programs
    parts = [plain, other, plain, other]
    fragments = tuple(fragment for part in parts for fragment in part.fragments)
    for chunk_events in (1024, 2048, 4096):
        recipe = Recipe("data", programs, "interpreter", chunk_events)
        found = prepare(recipe, Partition(0, fragments), ["resident"], ROOM)
        (chunk,) = found.chunks()
        assert isinstance(chunk.weights, np.ndarray)
        expected = np.concatenate([np.ones(1024), weights, np.ones(1024), weights])
        assert chunk.weights[: chunk.events].tobytes() == expected.tobytes()


def test_a_partition_is_bound_once_and_travels_without_code() -> None:
    """A copy is bound anew, and its sum has the same bits."""
    program = MODEL.grouped("linear", Assumptions()).programs.value
    asked: list[str] = []

    def kernel() -> Any:
        asked.append("once")
        return get_backend("cpu").compile(program, "reduce")

    first, _ = prepared(None)
    sums = []
    for partition in (first, first, pickle.loads(pickle.dumps(first))):
        (reduction,) = partition.reductions("value", kernel)
        sums.append(Accumulator(1))
        reduction(np.array([0.7, 1.0]), sums[-1])
    assert len(asked) == 2
    assert sums[0] == sums[1] == sums[2]
    assert sums[0].count == first.events
