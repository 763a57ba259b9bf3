"""Ctrl-C ends what a likelihood is doing, and nothing else."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from two_wave_case import asimov, bits, two_waves

import laddu_dask as ld
from laddu_dask.fit import ProgressState

EVENTS = 20_000


class Interrupting:
    """A source of events during whose reading somebody presses Ctrl-C, when it is armed."""

    armed = False

    def __call__(self, start: int, stop: int) -> dict[str, Any]:
        if self.armed:
            self.armed = False
            os.kill(os.getpid(), signal.SIGINT)
        return {"x": ld.data.row_uniforms(7, start, stop, 1)[0] + 0.5}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("storage", ["resident", "spilled", "streaming"])
def test_an_interrupted_likelihood_stays_usable(storage: Any, threads: int) -> None:
    """While it prepares, while it evaluates, and while it prepares anew."""
    source = Interrupting()
    data = ld.Dataset.from_ranges(source, ["x"], rows=EVENTS, identity="uniform, seed 7")
    x, a = ld.scalar("x"), ld.parameter("a", initial=0.4)
    term = ld.NLL(ld.Model((1 + a * x) ** 2 + (a * x).sin() ** 2), data=data, accepted_mc=data)
    options: dict[str, Any] = {"partitions": 5, "normalization": "general"}
    with ld.Likelihood([term], ld.Execution(**options)) as quiet:
        expected = bits(quiet, [0.7])
    with ld.Likelihood([term], ld.Execution(storage=storage, threads=threads, **options)) as used:
        for _ in range(2):
            source.armed = True
            with pytest.raises(KeyboardInterrupt):
                used.value([0.7])
            assert bits(used, [0.7]) == expected
            if storage != "streaming":
                used.close()


def test_an_interrupted_fit_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "fit.checkpoint"

    def press(state: ProgressState) -> None:
        if state.n_evaluations == 6:
            os.kill(os.getpid(), signal.SIGINT)

    with two_waves(data=asimov()) as likelihood:
        expected = likelihood.fit([0.4, 0.3])
        with pytest.raises(KeyboardInterrupt):
            likelihood.fit([0.4, 0.3], checkpoint=file, progress=press)
        found = likelihood.fit([0.4, 0.3], checkpoint=file, resume=file)
    assert found.values.tobytes() == expected.values.tobytes()
    assert found.covariance.tobytes() == expected.covariance.tobytes()
    assert found.n_evaluations == expected.n_evaluations
