"""What a reduction sends and checks: requests, records, and that no event was lost."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import cloudpickle
import numpy as np
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import laddu_dask as ld
from laddu_dask.data import ArrayFragment, Batch
from laddu_dask.errors import DataError, ExecutionError
from laddu_dask.kernels import Accumulator
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.memory import MAX_BYTES, LeasePool, LocalRoom
from laddu_dask.runtime import Execution, Model, Pass, Reducer
from laddu_dask.runtime.local import LocalSession
from laddu_dask.runtime.payload import ReductionPayload, reduce_partition
from laddu_dask.runtime.wire import (
    RemotePayload,
    decode_record,
    decode_request,
    encode_record,
    encode_request,
)

# However the tests are imported, workers get the classes of this file with the work.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROOM = LocalRoom(LeasePool("host", MAX_BYTES))
LINE = Model(1 + ld.parameter("a", initial=0.5) * ld.scalar("x"))
STORAGES = pytest.mark.parametrize("storage", ["resident", "spilled", "streaming"])


#: Four partitions of one tile each.
N = 4 * TILE


def events(n: int = N) -> ld.Dataset:
    return ld.Dataset.from_arrays(scalars={"x": np.linspace(0, 1, n)}, weights=np.full(n, 0.5))


def reducer(*datasets: ld.Dataset, **options: Any) -> Reducer:
    programs = LINE.compiled("linear").programs
    passes = [Pass(f"sample {i}", dataset, programs) for i, dataset in enumerate(datasets)]
    return Reducer(passes, Execution(**({"backend": "interpreter", "partitions": 4} | options)))


def frontier(*parameters: float) -> Any:
    return LINE.compiled("linear").invariants.frontier(np.array(parameters))


# requests ----------------------------------------------------------------------------------


@given(
    st.sampled_from(["weights", "value", "gradient"]),
    st.lists(
        arrays(
            np.float64,
            st.tuples(st.integers(0, 3), st.integers(0, 5)),
            elements=st.floats(width=64),
        ),
        max_size=5,
    ),
)
def test_requests_survive_to_the_last_bit(mode: Any, frontiers: list[Any]) -> None:
    """NaN payloads, signed zeros and infinities included."""
    found, values = decode_request(encode_request(mode, frontiers))
    assert found == mode
    assert [v.tobytes() for v in values] == [f.tobytes() for f in frontiers]
    assert [v.shape for v in values] == [f.shape for f in frontiers]


def test_payload_pickles_and_is_cancelled_between_partitions() -> None:
    """The rest is left out from the first partition that had not begun."""
    with closing(reducer(events())) as used:
        used.start()
        session = used._session
        assert isinstance(session, LocalSession)
        here: ReductionPayload = session._payload
        payload: RemotePayload = pickle.loads(pickle.dumps(RemotePayload(here)))
    prepared = [payload.prepare(number, ROOM) for number in range(len(here.tasks))]
    rows = [frontier(0.5)[np.newaxis]]
    request = encode_request("value", rows)
    with ThreadPoolExecutor(1) as pool:
        everything = payload.evaluate(request, prepared, pool, lambda: False)
        assert list(map(decode_record, everything)) == here.evaluate("value", rows, prepared, map)
        assert len(everything) == 4
        for allowed in range(4):
            asked = iter(range(10))
            done = payload.evaluate(request, prepared, pool, lambda: next(asked) >= allowed)  # noqa: B023
            assert done == everything[:allowed]
    sizes = [item.__sizeof__() for item in prepared]
    assert all(size >= 8 * 2 * TILE for size in sizes)  # Dask accounts for the columns


# sums --------------------------------------------------------------------------------------


@STORAGES
def test_sums_of_several_passes(storage: str) -> None:
    """One accumulator each, with the number of events; zero events make zero sums."""
    with closing(reducer(events(100), events(0), events(7), storage=storage)) as used:
        sums = used.reduce("weights", [np.zeros(0)] * 3)
        assert [(total.count, total.round()) for total in sums] == [
            (100, [50.0]),
            (0, [0.0]),
            (7, [3.5]),
        ]
        sums = used.reduce("gradient", [frontier(2.0)] * 3)
    # 1 + 2 x: sum of weights, and twice the sum of x / 2 over evenly spaced x in [0, 1].
    assert [total.round()[0] for total in sums] == pytest.approx([100.0, 0.0, 7.0], rel=1e-15)
    assert [total.round()[1] for total in sums] == pytest.approx([25.0, 0.0, 1.75], rel=1e-15)


def test_one_thread_works_on_one_partition() -> None:
    """Two partitions each even out several threads; the sums have the same bits."""
    found = []
    for threads, partitions in ((1, 1), (2, 4)):
        with closing(reducer(events(100_000), threads=threads, partitions=None)) as used:
            sums = used.reduce("gradient", [frontier(0.5)])
            assert len(used._planned().partitions[0]) == partitions
            found.append(sums)
    assert found[0] == found[1]


def test_a_session_that_is_closed_says_so() -> None:
    used = reducer(events())
    session = used.start()
    used.close()
    with pytest.raises(ExecutionError, match="this session is closed"):
        session.evaluate("value", [frontier(0.5)[np.newaxis]], 1.0)


# losses ------------------------------------------------------------------------------------


def test_lost_sums_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that answers for three of four partitions."""
    complete = LocalSession.evaluate

    def incomplete(self: LocalSession, *asked: Any) -> list[list[Accumulator]]:
        sums = complete(self, *asked)
        del sums[2]
        return sums

    monkeypatch.setattr(LocalSession, "evaluate", incomplete)
    with closing(reducer(events())) as used:
        with pytest.raises(ExecutionError, match="3 of 4 partitions answered") as caught:
            used.reduce("value", [frontier(0.5)])
        assert caught.value.option == "cluster"
        assert used._pool is not None
        kept = 4 * TILE * (8 + 8)  # x and weights
        assert used._pool.reserved == kept  # the pass gave its share back


def test_a_lost_partition_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that are there but count no event: the rows promised are compared with the sum."""

    def forgetful(recipe: Any, partition: Any, mode: Any, values: Any) -> list[Accumulator]:
        if partition.first_event == 2 * TILE:
            return [Accumulator(1 if mode != "gradient" else 2)]
        return reduce_partition(recipe, partition, mode, values)

    monkeypatch.setattr("laddu_dask.runtime.payload.reduce_partition", forgetful)
    with closing(reducer(events(8), events())) as used:
        for mode in ("weights", "value", "gradient"):
            with pytest.raises(
                DataError, match="sample 1: 3072 events were summed.* promised 4096"
            ):
                used.reduce(mode, [frontier(0.5)] * 2)


def test_a_partition_counted_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """More events than promised are as wrong as fewer."""

    def doubled(recipe: Any, partition: Any, mode: Any, values: Any) -> list[Accumulator]:
        (total,) = reduce_partition(recipe, partition, mode, values)
        if partition.first_event == 0:
            (same,) = decode_record(encode_record([total]))
            total.merge(same)
        return [total]

    monkeypatch.setattr("laddu_dask.runtime.payload.reduce_partition", doubled)
    with (
        closing(reducer(events())) as used,
        pytest.raises(DataError, match="5120 events were summed.* promised 4096"),
    ):
        used.reduce("value", [frontier(0.5)])


class Short(ArrayFragment):
    """A source that ends early without saying so."""

    def cut(self, start: int, stop: int) -> Short:
        piece = super().cut(start, stop)
        return Short(piece.columns, piece.values, piece.weights, piece.offset)

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        for batch in super().read(columns, batch_rows):
            keep = len(batch.weights) - 1
            yield Batch(batch.start, batch.values[:, :keep].copy(), batch.weights[:keep])


@pytest.fixture(
    params=[
        pytest.param("here", id="here"),
        pytest.param("cluster", id="cluster", marks=pytest.mark.cluster),
    ]
)
def where(request: pytest.FixtureRequest) -> Client | None:
    """None for this process, else a client of the cluster."""
    return None if request.param == "here" else request.getfixturevalue("client")


@pytest.mark.parametrize(
    ("storage", "mode", "text"),
    [
        ("resident", "value", "sample 0: the arrays gave 1023 events where its .* promised 1024"),
        ("streaming", "value", "sample 0: the arrays gave 1023 events where its .* promised 1024"),
        (
            "streaming",
            "weights",
            "sample 0: the arrays gave 1023 events where its .* promised 1024",
        ),
    ],
)
def test_a_source_that_ends_early(where: Client | None, storage: str, mode: Any, text: str) -> None:
    """In a partition on whatever process; nothing is summed over what is left."""
    (whole,) = events().fragments
    short = Short(whole.columns, whole.values, whole.weights)
    dataset = ld.Dataset(events().schema, (short,), "a short source")
    with (
        closing(reducer(dataset, storage=storage, cluster=where)) as used,
        pytest.raises(DataError, match=text),
    ):
        used.reduce(mode, [frontier(0.5)])


def test_preparation_stops_at_the_first_error() -> None:
    """In order of the partitions: the same error each time, and no thread is left behind."""
    x = np.linspace(0, 1, N)
    (whole,) = events().fragments

    class Failing(ArrayFragment):
        def cut(self, start: int, stop: int) -> Failing:
            piece = super().cut(start, stop)
            return Failing(piece.columns, piece.values, piece.weights, piece.offset)

        def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
            raise DataError(f"cannot read from {self.offset}", event=self.offset)

    failing = Failing(whole.columns, whole.values, whole.weights)
    dataset = ld.Dataset(events().schema, (failing,), "a bad source")
    assert dataset.n_events == len(x)
    used = reducer(dataset, storage="resident", threads=2)
    attempt: Callable[[], Any] = used.start
    for _ in range(3):
        with pytest.raises(DataError, match="cannot read from 0"):
            attempt()
    assert used._session is None
    used.close()
