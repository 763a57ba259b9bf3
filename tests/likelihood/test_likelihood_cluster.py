"""Likelihoods on a Dask cluster: side by side, without a trace, and through the loss of workers."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle
import dask
import pytest
from distributed import Client, LocalCluster
from local_clusters import two_worker_processes
from two_wave_case import asimov, bits, sample, two_waves

import laddu_dask as ld
from laddu_dask.errors import EvaluationError, ExecutionError
from laddu_dask.fit import ProgressState
from laddu_dask.runtime.worker_plugin import PartitionService

pytestmark = pytest.mark.cluster

GIVE_UP = 60.0
"""Bound on waiting for something that comes by itself; no test depends on how long it takes."""

# Functions below run on the scheduler and on workers, which cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + GIVE_UP
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.01)


def keys(dask_scheduler: Any) -> list[str]:
    """Everything of ours that the scheduler knows."""
    return [str(key) for key in dask_scheduler.tasks if "laddu" in str(key)]


def services(dask_worker: Any) -> int:
    """Sessions that a worker serves."""
    return sum(isinstance(plugin, PartitionService) for plugin in dask_worker.plugins.values())


async def busy(dask_worker: Any) -> bool:
    """Whether a worker is in the middle of an evaluation."""
    plugins = dask_worker.plugins.values()
    return any(plugin.running for plugin in plugins if isinstance(plugin, PartitionService))


def nothing_left(client: Client) -> bool:
    return not client.run_on_scheduler(keys) and not any(client.run(services).values())


def local(**options: Any) -> tuple[str, ...]:
    """The bits of this process."""
    with two_waves(ld.Execution(**options)) as likelihood:
        return bits(likelihood)


@pytest.mark.parametrize("form", ["client", "address", "cluster"])
def test_every_form_of_a_cluster(cluster: LocalCluster, client: Client, form: str) -> None:
    """A client stays the caller's; a connection opened here is closed here."""
    given = {"client": client, "address": cluster.scheduler_address, "cluster": cluster}[form]
    connected = len(client.run_on_scheduler(_clients))
    execution = ld.Execution(backend="interpreter", cluster=given, partitions=4)
    with two_waves(execution) as likelihood:
        assert bits(likelihood) == local(backend="interpreter")
        assert len(likelihood.report().workers) == 2
    wait_until(lambda: len(client.run_on_scheduler(_clients)) == connected, "a closed connection")
    assert client.status == "running"
    assert nothing_left(client)


@pytest.mark.parametrize("form", ["client", "cluster"])
def test_a_likelihood_is_pickled_with_the_address(
    cluster: LocalCluster, client: Client, form: str
) -> None:
    """A copy connects by itself and gives the same bits."""
    given = client if form == "client" else cluster
    original = two_waves(ld.Execution(backend="interpreter", cluster=given, partitions=4))
    pickled = pickle.dumps(original)
    with original, pickle.loads(pickled) as copy:
        assert original.execution.cluster is given
        assert copy.execution.cluster == cluster.scheduler_address
        assert bits(copy) == bits(original)


def test_a_closed_client_cannot_be_pickled(cluster: LocalCluster) -> None:
    with Client(cluster, set_as_default=False) as closed:
        execution = ld.Execution(cluster=closed)
    with pytest.raises(ExecutionError, match="cannot be pickled: a Client"):
        pickle.dumps(execution)


def _clients(dask_scheduler: Any) -> list[str]:
    return [name for name in dask_scheduler.clients if "worker" not in name]


def test_an_address_where_nobody_listens() -> None:
    """An error about the address, not one from the depths of Dask."""
    quickly = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with (
        quickly,
        two_waves(ld.Execution(cluster="tcp://127.0.0.1:9")) as likelihood,
        pytest.raises(ExecutionError, match=r"no Dask scheduler answers at tcp://127") as at,
    ):
        likelihood.value()
    assert at.value.option == "cluster"


def test_an_address_that_dask_cannot_read() -> None:
    with (
        two_waves(ld.Execution(cluster="parrot://127.0.0.1:9")) as likelihood,
        pytest.raises(ExecutionError, match=r"answers at parrot://127\S*: unknown address scheme"),
    ):
        likelihood.value()


@pytest.mark.parametrize("by_address", [True, False])
def test_a_scheduler_that_ends_during_a_fit(by_address: bool) -> None:
    """The error says what to do, then and ever after, and a new likelihood goes on from there."""
    quickly = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    reached: list[ProgressState] = []
    with quickly, two_workers() as (cluster, client):
        given = cluster.scheduler_address if by_address else client
        with two_waves(ld.Execution(backend="interpreter", cluster=given)) as likelihood:

            def progress(state: ProgressState) -> None:
                reached.append(state)
                if len(reached) == 3:
                    cluster.close()

            for _ in range(2):
                with pytest.raises(
                    ExecutionError, match=r"make a new likelihood .*A fit can begin at the last"
                ) as caught:
                    likelihood.fit(progress=progress)
                assert caught.value.option == "cluster"


def test_two_likelihoods_at_once(client: Client) -> None:
    """Interleaved and from two threads; closing one leaves the other alone."""
    execution = ld.Execution(backend="interpreter", cluster=client, partitions=3)
    shape, rate = two_waves(execution), two_waves(execution, extended=True)
    expected = local(backend="interpreter")
    with two_waves(ld.Execution(backend="interpreter"), extended=True) as alone:
        expected_rate = bits(alone)
    assert bits(shape) == expected
    assert bits(rate) == expected_rate
    assert set(client.run(services).values()) == {2}
    found: dict[str, list[tuple[str, ...]]] = {"shape": [], "rate": []}

    def work(name: str, likelihood: ld.Likelihood) -> None:
        for _ in range(10):
            found[name].append(bits(likelihood))

    threads = [
        threading.Thread(target=work, args=pair) for pair in (("shape", shape), ("rate", rate))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"shape": [expected] * 10, "rate": [expected_rate] * 10}
    shape.close()
    assert bits(rate) == expected_rate
    assert set(client.run(services).values()) == {1}
    rate.close()
    wait_until(lambda: nothing_left(client), "an empty cluster")


def test_close_leaves_nothing_on_the_cluster(client: Client) -> None:
    """DK-10: a fit leaves no keys behind; neither does an error, nor a likelihood forgotten."""
    execution = ld.Execution(backend="interpreter", cluster=client, partitions=5)
    with two_waves(execution, data=asimov()) as likelihood:
        likelihood.value()
        held = len(client.run_on_scheduler(keys))
        assert held == 10
        likelihood.fit([0.4, 0.3])
        assert len(client.run_on_scheduler(keys)) == held
    assert nothing_left(client)
    with (
        two_waves(execution) as failing,
        pytest.raises(EvaluationError),
    ):
        failing.value([float("inf"), 0.0])
    assert nothing_left(client)
    forgotten = two_waves(execution)
    forgotten.value()
    del forgotten
    wait_until(lambda: nothing_left(client), "an empty cluster")


# loss of workers ---------------------------------------------------------------------------


@contextmanager
def two_workers() -> Iterator[tuple[LocalCluster, Client]]:
    """Workers to be killed; their nannies start new ones."""
    with (
        two_worker_processes() as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield cluster, client


def kill_one(cluster: LocalCluster) -> None:
    os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)


@pytest.mark.parametrize("storage", ["resident", "streaming"])
def test_workers_killed_between_and_during_evaluations(storage: Any) -> None:
    """DK-15, DK-16: the bits are the same, and an error stays an error of the model.

    The data are five tiles, so that both workers hold some of them.
    """
    with two_waves(ld.Execution(backend="interpreter"), data=asimov()) as alone:
        expected = bits(alone)
    with two_workers() as (cluster, client):
        options: dict[str, Any] = {"storage": storage, "partitions": 8, "chunk_events": 20}
        execution = ld.Execution(backend="interpreter", cluster=client, **options)
        with two_waves(execution, data=asimov()) as likelihood:
            assert bits(likelihood) == expected
            kill_one(cluster)
            assert bits(likelihood) == expected
            wait_until(lambda: len(client.run(services)) == 2, "a restarted worker")

            found: list[tuple[str, ...]] = []
            stop = threading.Event()

            def evaluate() -> None:
                while not stop.is_set():
                    found.append(bits(likelihood))

            thread = threading.Thread(target=evaluate)
            thread.start()
            pids = client.run(os.getpid)
            victims: list[str] = []

            def found_victim() -> bool:
                victims[:] = [worker for worker, at_work in client.run(busy).items() if at_work]
                return bool(victims)

            wait_until(found_victim, "an evaluation under way")
            os.kill(pids[victims[0]], signal.SIGKILL)
            stop.set()
            thread.join()
            assert set(found) == {expected}
            with pytest.raises(EvaluationError):
                likelihood.value([float("inf"), 0.0])
            assert bits(likelihood) == expected
        wait_until(lambda: nothing_left(client), "an empty cluster")


def test_a_fit_does_not_notice_that_workers_die() -> None:
    """DK-11, DK-15: every number of the result, and the number of evaluations, is the same."""

    def fitted(progress: Any = None, **options: Any) -> tuple[str, ...]:
        execution = ld.Execution(backend="interpreter", partitions=6, **options)
        with two_waves(execution, data=asimov(), accepted_mc=sample("mc")) as likelihood:
            result = likelihood.fit([0.4, 0.3], progress=progress)
        assert result.converged
        numbers = [result.objective, *result.values, *result.covariance.flat]
        return (str(result.n_evaluations), *(float(number).hex() for number in numbers))

    expected = fitted()
    with two_workers() as (cluster, client):
        killed: list[int] = []

        def progress(state: Any) -> None:
            if state.n_evaluations in (4, 15) and state.n_evaluations not in killed:
                killed.append(state.n_evaluations)
                wait_until(lambda: len(cluster.scheduler_info["workers"]) == 2, "two workers")
                kill_one(cluster)

        assert fitted(progress, cluster=client) == expected
        assert killed == [4, 15]
