"""A likelihood in a process that was forked from the one that made it."""

from __future__ import annotations

import os
import pickle
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from distributed import Client

import laddu_dask as ld

DEADLINE = 60.0


def in_a_fork(work: Callable[[], Any]) -> Any:
    """What a forked child finds or raises; it is killed when it hangs."""
    receive, send = os.pipe()
    with warnings.catch_warnings():  # newer Pythons warn of forks of processes with threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            answer = work()
        except BaseException as error:  # whatever it is, the parent has to hear of it
            answer = error
        os.write(send, pickle.dumps(answer))
        os._exit(0)
    os.close(send)
    try:
        if not select.select([receive], [], [], DEADLINE)[0]:
            raise TimeoutError("the child hangs")
        with os.fdopen(receive, "rb", closefd=False) as answers:
            return pickle.loads(answers.read())
    finally:
        os.close(receive)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def likelihood(**options: Any) -> ld.Likelihood:
    rng = np.random.default_rng(5)
    x, a, b = ld.scalar("x"), ld.parameter("a", initial=0.4), ld.parameter("b", initial=0.7)
    data, accepted = (
        ld.Dataset.from_arrays(scalars={"x": rng.uniform(0.5, 2.0, n)}) for n in (6000, 9000)
    )
    model = ld.Model((x.sqrt() * a + ld.complex(1.0, b)).norm_sqr() + (x * b).sin() ** 2)
    return ld.Likelihood(
        [ld.NLL(model, data=data, accepted_mc=accepted)],
        ld.Execution(partitions=4, normalization="general", **options),
    )


def as_bytes(found: tuple[float, Any]) -> bytes:
    return np.float64(found[0]).tobytes() + found[1].tobytes()


@pytest.mark.parametrize("storage", ["resident", "spilled", "streaming"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_fork_evaluates_to_the_same_bits(storage: str, threads: int) -> None:
    """With threads of its own, at other points than its parent, and after a close."""
    points = [[0.4, 0.7], [0.9, 0.1]]
    with likelihood(storage=storage, threads=threads) as shared:
        shared.value_and_gradient(points[0])

        def work() -> list[bytes]:
            found = [as_bytes(shared.value_and_gradient(point)) for point in points]
            shared.close()
            return [*found, as_bytes(shared.value_and_gradient(points[1]))]

        found = in_a_fork(work)
        expected = [as_bytes(shared.value_and_gradient(point)) for point in points]
    assert found == [*expected, expected[1]]


def test_a_fork_in_the_middle_of_an_evaluation() -> None:
    """Locks that another thread of the parent holds are free in the child."""
    with likelihood(storage="spilled", threads=2) as shared:
        expected = shared.value()
        held = threading.Event()
        done = threading.Event()

        def hold() -> None:
            with shared._turn:
                held.set()
                done.wait(DEADLINE)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(DEADLINE)
        try:
            assert in_a_fork(shared.value) == expected
        finally:
            done.set()
            thread.join()


@pytest.mark.cluster
def test_a_cluster_is_that_of_the_process_that_connected(client: Client) -> None:
    """At once: nothing in the child listens to the cluster."""
    address = client.scheduler_info()["address"]
    with likelihood(cluster=client) as shared:
        expected = shared.value()
        for work in (shared.value, shared.report):
            begin = time.monotonic()
            error = in_a_fork(work)
            assert isinstance(error, ld.ExecutionError)
            assert "before the process forked; make a new one in the child" in str(error)
            assert time.monotonic() - begin < DEADLINE / 2

        def made_anew() -> list[Any]:
            shared.close()
            with likelihood(cluster=address) as own:
                return [own.value(), as_bytes(own.value_and_gradient())]

        assert in_a_fork(made_anew) == [expected, as_bytes(shared.value_and_gradient())]
        assert shared.value() == expected
