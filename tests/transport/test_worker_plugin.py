"""The service of a worker by itself, on a stand-in for the worker.

Covers DK-16 (a retried request gives the same bits) and DK-17 (errors of the model are told apart
from everything else).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from laddu_dask.errors import DataError, EvaluationError, ExecutionError
from laddu_dask.memory import Room
from laddu_dask.runtime.versions import package_versions, version_mismatch
from laddu_dask.runtime.worker_plugin import (
    PartitionService,
    call_service,
    describe_error,
    operation_name,
    partition_key,
    plugin_name,
    rebuild_error,
)


class Doubler:
    """Record = two times the prepared number; can be held up, counts what it computed."""

    def __init__(self) -> None:
        self.computed: list[int] = []
        self.waits = True
        self.threads: list[int] = []
        self.entered = threading.Event()
        self.proceed = threading.Event()
        self.proceed.set()

    def prepare(self, partition: int, room: Room) -> int:
        return partition

    def evaluate(
        self,
        request: bytes,
        prepared: Sequence[int],
        pool: Executor,
        cancelled: Callable[[], bool],
    ) -> list[bytes]:
        self.threads.append(threading.get_ident())
        if request == b"raise":
            raise EvaluationError("negative intensity", term="signal", event=3)
        records = []
        for number in prepared:
            self.entered.set()
            assert self.proceed.wait(30)
            if cancelled():
                break
            records.append(pool.submit(lambda n=number: str(2 * n).encode()).result())
            self.computed.append(number)
        return records

    def in_memory(self, prepared: Sequence[int]) -> bool:
        return not self.waits


def stored(*partitions: int) -> dict[str, Any]:
    return {partition_key("s1", p, 0): p for p in partitions}


@contextmanager
def service_on(data: dict[str, Any]) -> Iterator[tuple[PartitionService, Any, Doubler]]:
    worker = SimpleNamespace(
        address="tcp://here:1",
        state=SimpleNamespace(nthreads=1),
        data=data,
        handlers={},
        plugins={},
    )
    payload = Doubler()
    service = PartitionService("s1", payload)
    worker.plugins[service.name] = service
    service.setup(worker)
    try:
        yield service, worker, payload
    finally:
        payload.proceed.set()
        service.teardown(worker)


def test_answer_carries_what_is_here_and_names_what_is_not() -> None:
    with service_on(stored(1, 2)) as (service, _, _):
        answer = asyncio.run(service.evaluate(1, b"", [1, 2, 3]))
    assert answer == {"epoch": 1, "partitions": [1, 2], "records": [b"2", b"4"], "missing": [3]}


def test_what_takes_no_time_is_answered_on_the_event_loop() -> None:
    """Once it is known to, and only if it waits for nothing; errors and answers are the same."""
    usual = {"partitions": [1, 2], "records": [b"2", b"4"], "missing": []}

    async def asked(service: PartitionService, epochs: Sequence[int], request: bytes) -> list[Any]:
        return [await service.evaluate(epoch, request, [1, 2]) for epoch in epochs]

    with service_on(stored(1, 2)) as (service, _, payload):
        payload.waits = False
        found = asyncio.run(asked(service, [1, 2, 3], b"twice"))
        assert found == [{"epoch": epoch, **usual} for epoch in (1, 2, 3)]
        here = threading.get_ident()
        assert [thread == here for thread in payload.threads] == [False, True, True]
        failed = asyncio.run(asked(service, [4, 5], b"raise"))
        assert failed[0]["error"]["text"] == "negative intensity"
        assert failed[0]["error"] == failed[1]["error"]
        payload.waits = True
        asyncio.run(asked(service, [6], b"twice"))
        assert payload.threads[-1] != here
        payload.waits = False
        service.seconds = dict.fromkeys(service.seconds, 1.0)
        asyncio.run(asked(service, [7], b"twice"))
        assert payload.threads[-1] != here


def test_handler_comes_and_goes_with_the_service() -> None:
    with service_on({}) as (service, worker, _):
        assert worker.handlers == {operation_name("s1"): service.evaluate}
    assert worker.handlers == {}


def test_index_follows_transitions_of_its_own_session_only() -> None:
    key, newer = partition_key("s1", 4, 0), partition_key("s1", 4, 1)
    foreign, discarded = partition_key("s2", 5, 0), partition_key("s1", 6, 0)
    with service_on({}) as (service, worker, _):
        worker.data.update(dict.fromkeys([key, newer, foreign, ("tuple", 1)], 4))
        service.transition(key, "flight", "memory")
        service.transition(foreign, "executing", "memory")
        service.transition(("tuple", 1), "executing", "memory")
        service.transition(discarded, "cancelled", "memory")  # announced, but not kept
        assert service.keys == {4: {key}}
        service.transition(newer, "executing", "memory")
        service.transition(newer, "memory", "released")
        assert service.keys == {4: {key}}  # the older copy is still here
        service.transition(key, "memory", "released")
        assert service.keys == {}


def test_damaged_index_is_repaired_from_the_store() -> None:
    with service_on(stored(1, 2)) as (service, _, _):
        service.keys.clear()
        assert asyncio.run(service.evaluate(1, b"", [1]))["records"] == [b"2"]
        service.keys[2] = {partition_key("s1", 2, 9)}
        assert asyncio.run(service.evaluate(1, b"", [2]))["records"] == [b"4"]


def test_asking_again_costs_nothing_and_joins_work_in_progress() -> None:
    """DK-16."""

    async def ask_twice(service: PartitionService, payload: Doubler) -> list[Any]:
        payload.proceed.clear()
        first = asyncio.ensure_future(service.evaluate(1, b"", [1, 2]))
        assert await asyncio.to_thread(payload.entered.wait, 30)
        second = asyncio.ensure_future(service.evaluate(1, b"", [2, 1]))
        await asyncio.sleep(0.01)
        payload.proceed.set()
        return [await first, await second, await service.evaluate(1, b"", [1])]

    with service_on(stored(1, 2)) as (service, _, payload):
        first, second, third = asyncio.run(ask_twice(service, payload))
        assert payload.computed == [1, 2]
    assert first["records"] == [b"2", b"4"]
    assert second["records"] == [b"4", b"2"]
    assert third["records"] == [b"2"]


def test_newer_epoch_stops_older_work_and_forgets_its_records() -> None:
    async def overtake(service: PartitionService, payload: Doubler) -> list[Any]:
        payload.proceed.clear()
        old = asyncio.ensure_future(service.evaluate(1, b"", [1, 2]))
        assert await asyncio.to_thread(payload.entered.wait, 30)
        new = asyncio.ensure_future(service.evaluate(2, b"", [1]))
        await asyncio.sleep(0.01)
        payload.proceed.set()
        return [await old, await new, await service.evaluate(1, b"", [1])]

    with service_on(stored(1, 2)) as (service, _, payload):
        old, new, older = asyncio.run(overtake(service, payload))
        assert payload.computed == [1]
    assert old == {"epoch": 1, "partitions": [], "records": [], "missing": [1, 2]}
    assert new == {"epoch": 2, "partitions": [1], "records": [b"2"], "missing": []}
    assert older == {"epoch": 1, "partitions": [], "records": [], "missing": [1]}


def test_error_of_the_model_is_a_reply_and_the_next_epoch_is_fine() -> None:
    """DK-17, T-11."""
    with service_on(stored(1)) as (service, _, _):
        answer = asyncio.run(service.evaluate(1, b"raise", [1]))
        error = rebuild_error(answer["error"])
        assert type(error) is EvaluationError
        assert (str(error), error.term, error.event) == ("negative intensity", "signal", 3)
        assert asyncio.run(service.evaluate(2, b"", [1]))["records"] == [b"2"]


def test_call_through_the_scheduler_finds_the_service_or_says_none() -> None:
    with service_on(stored(1)) as (_, worker, _):
        call = call_service(worker, "s1", epoch=1, request=b"", partitions=[1])
        assert asyncio.run(call) == {
            "epoch": 1,
            "partitions": [1],
            "records": [b"2"],
            "missing": [],
        }
        other = call_service(worker, "s2", epoch=1, request=b"", partitions=[1])
        assert asyncio.run(other) is None


def test_service_of_another_version_refuses_every_request() -> None:
    service = PartitionService("s1", Doubler())
    service.client_versions = {**service.client_versions, "numpy": "0.1"}
    worker = SimpleNamespace(
        address="tcp://there:2", state=SimpleNamespace(nthreads=1), data=stored(1), handlers={}
    )
    service.setup(worker)
    error = rebuild_error(asyncio.run(service.evaluate(1, b"", [1]))["error"])
    service.teardown(worker)
    assert type(error) is ExecutionError
    assert "worker tcp://there:2" in str(error)
    assert error.versions["numpy"] == ("0.1", package_versions()["numpy"])


def test_version_mismatch_names_only_what_differs() -> None:
    here = package_versions()
    assert {"python", "laddu-dask", "numpy", "llvmlite"} == here.keys()
    assert version_mismatch(here, here, "worker w") is None
    refusal = version_mismatch(here, {**here, "llvmlite": "0.1"}, "worker w")
    assert refusal is not None
    assert f"llvmlite {here['llvmlite']} here but 0.1 there" in str(refusal)
    assert "numpy" not in str(refusal)


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (np.float64(1.5), 1.5),
        (np.int32(7), 7),
        (np.bool_(True), True),
        (np.arange(3), (0, 1, 2)),
        ({"a": (1, None)}, {"a": (1, None)}),
        (Path("/data/x.parquet"), "/data/x.parquet"),
        (2**70, str(2**70)),
        (b"\x00", b"\x00"),
        (1 + 2j, "(1+2j)"),
    ],
)
def test_fields_of_errors_travel_as_plain_data(value: Any, arrives: Any) -> None:
    told = describe_error(DataError("bad", field=value), "tcp://here:1")
    error = rebuild_error(told)
    assert type(error) is DataError
    assert error.field == arrives
    assert type(error.field) is type(arrives)


def test_subclass_that_the_client_may_not_know_arrives_as_its_known_base() -> None:
    class SpecialError(DataError):
        pass

    assert type(rebuild_error(describe_error(SpecialError("bad"), "w"))) is DataError


def test_unexpected_error_arrives_with_the_traceback_of_the_worker() -> None:
    def culprit() -> None:
        raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError) as caught:
        culprit()
    error = rebuild_error(describe_error(caught.value, "tcp://here:1"))
    assert type(error) is ExecutionError
    assert error.worker == "tcp://here:1"
    assert "in culprit" in error.traceback
    assert "ZeroDivisionError: division by zero" in str(error)


def test_names_hold_the_session_apart() -> None:
    assert plugin_name("a") != plugin_name("b")
    assert operation_name("a") != operation_name("b")
    assert partition_key("a", 3, 1) == "laddu-prep:a:3:1"
