"""Fits while workers are killed, stopped, retired and added, and the network fails.

Covers DK-15, DK-16, DK-17 and T-55: every number of the result has the bits of the quiet fit, and
it takes as many evaluations.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from distributed import Client
from process_cluster import ProcessCluster, WorkerProcess
from two_wave_case import model, table

import laddu_dask as ld
from laddu_dask.fit import ProgressState

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

# Functions below run on the scheduler, which cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

WORKERS = 3
COPIES = 20
"""Of the sample: an evaluation takes long enough to be hit in the middle."""
KINDS = ("kill", "kill", "kill", "stop", "hole", "cut", "add", "retire", "hole", "add")


@cache
def many_events(name: str) -> ld.Dataset:
    """The accepted sample several times over, no two copies with the same weights."""
    whole = table("mc")
    columns = {key: np.tile(whole[key].to_numpy(), COPIES) for key in whole.column_names}
    names = ("beam", "target", "ks1", "ks2")
    p4s = {p4: np.stack([columns[f"{p4}_{c}"] for c in ("e", "px", "py", "pz")], 1) for p4 in names}
    rng = np.random.default_rng(len(name))
    weights = columns["weight"] * rng.uniform(0.5, 1.5, len(columns["weight"]))
    sample = ld.Dataset.from_arrays(p4s=p4s, weights=weights)
    if name == "data":
        rate = weights * model().evaluate(sample, real=True)
        sample = sample.with_weights(20000 * rate / rate.sum())
    return sample


def fitted(execution: ld.Execution, progress: Callable[[ProgressState], None] | None) -> Any:
    """Every number of a fit in hexadecimal, and how many evaluations it took."""
    term = ld.NLL(model(), data=many_events("data"), accepted_mc=many_events("accepted_mc"))
    with ld.Likelihood([term], execution) as likelihood:
        result = likelihood.fit([0.05, -2.5], progress=progress)
    assert result.converged
    numbers = [result.objective, result.edm, *result.values, *result.covariance.flat]
    return result.n_evaluations, [float(number).hex() for number in numbers]


@cache
def quiet() -> Any:
    """The fit in this process."""
    return fitted(ld.Execution(backend="interpreter", normalization="general"), None)


class Chaos:
    """Misfortunes of a cluster, drawn from a seed; one after the other while a fit goes on."""

    def __init__(self, seed: int, cluster: ProcessCluster, client: Client) -> None:
        self.random = random.Random(seed)
        self.cluster = cluster
        self.client = client
        self.workers = list(cluster.workers)
        self.left = list(KINDS)
        self.random.shuffle(self.left)
        self.next_at = 2
        self.threads: list[threading.Thread] = []
        self.began = time.monotonic()
        self.happened: list[str] = []

    def __call__(self, state: ProgressState) -> None:
        """After an evaluation: perhaps something goes wrong during the next one."""
        self.tell(f"evaluation {state.n_evaluations}")
        if self.left and state.n_evaluations >= self.next_at:
            self.next_at = state.n_evaluations + self.random.choice((1, 2, 2, 3))
            self.soon(self.left.pop())

    def soon(self, kind: str) -> None:
        """Let it happen in a moment."""
        delay = self.random.uniform(0.0, 0.2)
        span = self.random.uniform(0.3, 2.0)
        victim = self.random.choice(self.workers)

        def happen() -> None:
            time.sleep(delay)
            self.tell(f"{kind} for {span:.1f} s")
            getattr(self, kind)(victim, span)

        self.threads.append(threading.Thread(target=happen))
        self.threads[-1].start()

    def tell(self, what: str) -> None:
        self.happened.append(f"{time.monotonic() - self.began:.2f} s: {what}")

    def kill(self, victim: WorkerProcess, span: float) -> None:
        victim.kill()

    def kill_while_preparing(self) -> None:
        """As soon as partitions are being prepared."""

        def work() -> None:
            victim = self.random.choice(self.workers)
            while not self.client.run_on_scheduler(_preparing):
                time.sleep(0.01)
            self.tell("kill while preparing")
            victim.kill()

        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()

    def stop(self, victim: WorkerProcess, span: float) -> None:
        victim.stop()
        time.sleep(span)
        victim.go_on()

    def hole(self, victim: WorkerProcess, span: float) -> None:
        assert victim.relay is not None
        victim.relay.hole()
        time.sleep(span)
        victim.relay.heal()

    def cut(self, victim: WorkerProcess, span: float) -> None:
        assert victim.relay is not None
        victim.relay.cut()
        time.sleep(span)
        victim.relay.heal()

    def add(self, victim: WorkerProcess, span: float) -> None:
        self.workers.append(self.cluster.start_worker(nanny=True, relayed=True))

    def retire(self, victim: WorkerProcess, span: float) -> None:
        assert victim.relay is not None
        self.workers.remove(victim)
        with suppress(OSError, ValueError, KeyError):  # others may have happened to it
            self.client.retire_workers([f"tcp://127.0.0.1:{victim.relay.port}"])


def _preparing(dask_scheduler: Any) -> bool:
    return any(
        "laddu-prep" in str(task.key) and task.state == "processing"
        for task in dask_scheduler.tasks.values()
    )


def _ours(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks if "laddu" in str(key)]


def check_chaos(seed: int, storage: Any, folder: Path) -> None:
    """Fit through a seed's misfortunes."""
    expected = quiet()
    with ProcessCluster(folder) as cluster:
        for _ in range(WORKERS):
            cluster.start_worker(nanny=True, relayed=True)
        with Client(cluster.address, set_as_default=False, timeout=60) as client:
            client.wait_for_workers(WORKERS, timeout=120)
            chaos = Chaos(seed, cluster, client)
            execution = ld.Execution(
                backend="interpreter",
                normalization="general",
                cluster=client,
                partitions=8,
                storage=storage,
                chunk_events=4096,
                patience=120.0,
            )
            chaos.kill_while_preparing()
            try:
                found = fitted(execution, chaos)
            finally:
                for thread in chaos.threads:
                    thread.join()
                print(f"seed {seed}, {storage}:", *chaos.happened, sep="\n  ")
            assert not chaos.left, "the fit was over before everything had happened"
            assert found == expected, f"seed {seed}"
            end = time.monotonic() + 60
            while left := client.run_on_scheduler(_ours):
                assert time.monotonic() < end, f"seed {seed} leaves {left}"
                time.sleep(0.05)


def test_chaos(tmp_path: Path) -> None:
    check_chaos(1, "resident", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "storage"), [(2, "resident"), (3, "streaming"), (4, "spilled"), (5, "fastest")]
)
def test_more_chaos(seed: int, storage: str, tmp_path: Path) -> None:
    check_chaos(seed, storage, tmp_path)
