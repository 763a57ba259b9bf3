"""One likelihood used by several threads, and copies of it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import laddu_dask as ld

EVENTS = 40_000


def sample(seed: int) -> ld.Dataset:
    """The last events are unlike all others, so that what is assumed of them fails late."""
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(0.5, 2.0, EVENTS), np.ones(EVENTS)
    x[-1], z[-2] = -0.5, 3.0
    return ld.Dataset.from_arrays(scalars={"x": x, "z": z, "y": rng.uniform(0.0, 1.0, EVENTS)})


@pytest.fixture(scope="module")
def term() -> ld.NLL:
    x, y, z = (ld.scalar(name) for name in "xyz")
    a, b = ld.parameter("a", initial=0.4), ld.parameter("b", initial=0.7)
    amplitude = (x * a * a).sqrt() * ld.complex(a, b) + b * z * y
    return ld.NLL(amplitude.norm_sqr() + 1e-3, data=sample(1), accepted_mc=sample(2))


def run(count: int, work: Callable[[], Any]) -> list[Any]:
    """What threads that work at once find or raise."""
    found: list[Any] = []

    def attempt() -> None:
        try:
            found.append(work())
        except Exception as error:  # the test says which are expected: none
            found.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def as_bytes(found: tuple[float, Any]) -> bytes:
    return np.float64(found[0]).tobytes() + found[1].tobytes()


@pytest.mark.parametrize("memory", [None, "4 MiB"])
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_take_turns(term: ld.NLL, threads: int, memory: str | None) -> None:
    """From the first call on, where assumptions fail, and with memory for one pass only."""
    with ld.Likelihood([term], ld.Execution(threads=1)) as alone:
        expected = as_bytes(alone.value_and_gradient())
    options = {} if memory is None else {"memory": memory}
    with ld.Likelihood([term], ld.Execution(threads=threads, **options)) as shared:
        found = run(6, lambda: as_bytes(shared.value_and_gradient()))
    assert found == [expected] * 6


def test_close_waits_for_evaluations(term: ld.NLL) -> None:
    shared = ld.Likelihood([term], ld.Execution(threads=2))
    expected = shared.value()
    stop = threading.Event()

    def evaluate() -> list[float]:
        values = []
        while not stop.is_set():
            values.append(shared.value())
        return values

    def close() -> list[float]:
        for _ in range(8):
            shared.close()
        stop.set()
        return []

    works = iter([evaluate, evaluate, close])
    found = run(3, lambda: next(works)())
    assert {value for values in found for value in values} == {expected}
    shared.close()


def test_copies_prepare_for_themselves(term: ld.NLL) -> None:
    with ld.Likelihood([term], ld.Execution(threads=1)) as original:
        expected = original.value()
        with pickle.loads(pickle.dumps(original)) as copy:
            assert copy.parameter_names == original.parameter_names
            assert copy.value() == expected
