"""Fits of likelihoods that go on from a checkpoint: on another cluster, in other pieces, or not.

Covers the loss of the scheduler, which a fit does not survive: it ends in a clear error, and goes
on elsewhere to the same bits.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client
from process_cluster import ProcessCluster
from two_wave_case import as_arrays, asimov, model, sample, scaled_model, two_waves

import laddu_dask as ld
from laddu_dask.errors import DataError, ExecutionError, OutputError
from laddu_dask.fit import FitResult, ProgressState
from laddu_dask.fit.journal import read_journal

HERE = ld.Execution(backend="interpreter", partitions=6)
START = [0.4, 0.3]


class LostError(Exception):
    """Something that ends a fit."""


def outcome(result: FitResult) -> tuple[Any, ...]:
    """All of a result but its duration, numbers to the last bit."""
    numbers = [result.objective, result.edm, *result.values, *result.covariance.flat]
    words = (result.converged, result.message, result.warnings)
    return (*(float(x).hex() for x in numbers), result.n_evaluations, *words)


def fitted(execution: ld.Execution, **options: Any) -> tuple[Any, ...]:
    with two_waves(execution, data=asimov(), accepted_mc=sample("mc")) as likelihood:
        return outcome(likelihood.fit(START, **options))


def interrupted(execution: ld.Execution, at: int, file: Path) -> None:
    """A fit that ends at some evaluation."""

    def progress(state: ProgressState) -> None:
        if state.n_evaluations == at:
            raise LostError

    with pytest.raises(LostError):
        fitted(execution, checkpoint=file, progress=progress)


@pytest.mark.parametrize("at", [1, 7, 16])
def test_a_fit_goes_on_in_other_pieces(at: int, tmp_path: Path) -> None:
    """Neither where nor in how many pieces the events lie makes a difference."""
    expected = fitted(HERE)
    interrupted(HERE, at, tmp_path / "a")
    elsewhere = replace(HERE, partitions=2, threads=1, storage="streaming", chunk_events=1024)
    assert fitted(elsewhere, resume=tmp_path / "a") == expected


@pytest.mark.cluster
def test_a_fit_goes_on_on_a_cluster_and_back(client: Client, tmp_path: Path) -> None:
    expected = fitted(HERE)
    there = replace(HERE, cluster=client)
    interrupted(HERE, 5, tmp_path / "a")

    def progress(state: ProgressState) -> None:
        if state.n_evaluations == 12:
            raise LostError

    with pytest.raises(LostError):
        fitted(there, resume=tmp_path / "a", progress=progress)
    assert len(read_journal(tmp_path / "a").records) > 12
    assert fitted(HERE, resume=tmp_path / "a") == expected


@pytest.mark.cluster
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_scheduler_is_lost_and_the_fit_goes_on_on_a_new_cluster(
    how: signal.Signals, tmp_path: Path
) -> None:
    expected = fitted(HERE)
    file = tmp_path / "a"
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
        ProcessCluster(tmp_path / "lost") as cluster,
    ):
        cluster.start_worker()
        cluster.start_worker()
        client = Client(cluster.address, set_as_default=False, timeout=60)
        client.wait_for_workers(2, timeout=120)
        client._timeout = 2.0  # of a reconnection

        def progress(state: ProgressState) -> None:
            if state.n_evaluations == 8:
                os.kill(cluster.scheduler.pid, how)
                cluster.scheduler.wait()

        with pytest.raises(ExecutionError, match="make a new likelihood|not answered for") as lost:
            fitted(replace(HERE, cluster=client, patience=20.0), checkpoint=file, progress=progress)
        assert lost.value.option == "cluster"
        assert f"resume={str(file)!r} goes on from there" in lost.value.__notes__[0]
        client.close()
    assert len(read_journal(file).records) >= 1 + 8
    with ProcessCluster(tmp_path / "new") as cluster:
        cluster.start_worker()
        with Client(cluster.address, set_as_default=False, timeout=60) as client:
            client.wait_for_workers(1, timeout=120)
            assert fitted(replace(HERE, cluster=client), resume=file) == expected


@pytest.mark.cluster
def test_two_fits_at_once_on_one_cluster(client: Client, tmp_path: Path) -> None:
    """Each with a checkpoint of its own."""
    expected = fitted(HERE)
    there = replace(HERE, cluster=client)
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda name: fitted(there, checkpoint=tmp_path / name), ("one", "two"))
    assert list(found) == [expected, expected]


def test_a_file_serves_one_fit_at_a_time(tmp_path: Path) -> None:
    """A job that was submitted twice does not spoil the work of the first."""
    expected = fitted(HERE)
    file = tmp_path / "a"
    refused = []

    def progress(state: ProgressState) -> None:
        if state.n_evaluations == 4:
            with pytest.raises(OutputError, match="in use by a fit that is running") as caught:
                fitted(HERE, resume=file)
            refused.append(caught.value.file)

    assert fitted(HERE, checkpoint=file, progress=progress) == expected
    assert refused == [str(file)]


def test_another_likelihood_is_refused_by_what_differs(tmp_path: Path) -> None:
    interrupted(HERE, 6, tmp_path / "a")

    def told(likelihood: ld.Likelihood, start: Any = START) -> str:
        with likelihood, pytest.raises(DataError) as caught:
            likelihood.fit(start, resume=tmp_path / "a")
        return str(caught.value)

    data, mc = asimov(), sample("mc")
    assert "the option precision (f64 there, f32 here)" in told(
        two_waves(replace(HERE, precision="f32"), data=data, accepted_mc=mc)
    )
    assert "the data of 'nll' (5000 events with weights there, 600 events" in told(
        two_waves(HERE, accepted_mc=mc)
    )
    other = ld.NLL(scaled_model(), data=data, accepted_mc=mc)
    assert "the free parameters (mag, pha there, scale, mag, pha here)" in told(
        ld.Likelihood([other], HERE), [40.0, *START]
    )
    renamed = ld.NLL(model(), data=data, accepted_mc=mc, name="signal")
    assert "the terms (NLL 'nll' there, NLL 'signal' here)" in told(ld.Likelihood([renamed], HERE))
    assert "the start of 'pha' (0.3 there, 0.2 here)" in told(
        two_waves(HERE, data=data, accepted_mc=mc), [0.4, 0.2]
    )
    weights = data.weights()
    weights[17] *= 1 + 1e-12
    assert "is of other data: at its first point -2 ln L was" in told(
        two_waves(HERE, data=data.with_weights(weights), accepted_mc=mc)
    )


def test_equal_events_from_elsewhere_are_the_same_data(tmp_path: Path) -> None:
    """A fit may go on where its files were copied to."""
    expected = fitted(HERE)
    interrupted(HERE, 6, tmp_path / "a")
    copied = as_arrays("mc").with_weights(asimov().weights())
    with two_waves(HERE, data=copied, accepted_mc=as_arrays("mc")) as likelihood:
        assert outcome(likelihood.fit(START, resume=tmp_path / "a")) == expected
