"""What a fit shows while it runs."""

from __future__ import annotations

import io
import math
import sys

import numpy as np
import pytest
from fit_toys import Spec, Toy, rosenbrock
from rich.console import Console

from laddu_dask.errors import EvaluationError, ParameterError
from laddu_dask.fit import PlainProgress, ProgressState, RichProgress, fit, quiet
from laddu_dask.fit.progress import choose_progress


def state(n: int, stage: str = "migrad") -> ProgressState:
    return ProgressState(stage, n, math.inf, 3603.489176773588, float(n), 1.0)


def valley() -> Toy:
    return Toy(rosenbrock, [Spec("x", -1.2), Spec("y", 1.0)])


def test_callback_sees_every_evaluation_and_the_end() -> None:
    states: list[ProgressState] = []
    result = fit(valley(), progress=states.append)
    assert [s.n_evaluations for s in states[:-1]] == list(range(1, result.n_evaluations + 1))
    assert states[-1].stage == "done"
    assert states[-1].best <= min(s.objective for s in states) == states[-1].best
    assert {s.stage for s in states} == {"start", "migrad", "newton", "hessian", "done"}


def test_callback_may_stop_the_fit() -> None:
    class EnoughError(Exception):
        pass

    def stop(s: ProgressState) -> None:
        if s.n_evaluations == 12:
            raise EnoughError

    toy = valley()
    with pytest.raises(EnoughError):
        fit(toy, progress=stop)
    assert len(toy.points) == 12


def test_plain_lines_come_now_and_then() -> None:
    stream = io.StringIO()
    now = [0.0]
    progress = PlainProgress(stream, interval=5.0, clock=lambda: now[0])
    for second in range(12):
        now[0] = float(second)
        progress(state(second))
    progress(state(12, "done"))
    lines = stream.getvalue().splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["migrad", "5"],
        ["migrad", "10"],
        ["done", "12"],
    ]
    assert lines[0] == "migrad        5 evaluations  -2 ln L 3603.489177  1.0/s  5 s"


def test_rich_line_disappears_at_the_end() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100)
    progress = RichProgress(console)
    progress(state(1))
    progress(state(2))
    progress(state(2, "done"))
    progress.close()
    assert "2 evaluations" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K")


def test_terminal_is_given_back_when_a_fit_fails() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)

    def hopeless(_p: np.ndarray) -> tuple[float, np.ndarray]:
        raise EvaluationError("no intensity")

    with pytest.raises(EvaluationError):
        fit(Toy(hopeless, [Spec("a", 1.0)]), progress=RichProgress(console))
    # A second display could not start while the first one holds the console.
    with console.status("free again"):
        pass


def test_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_progress(None) is quiet
    assert choose_progress(quiet) is quiet
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert isinstance(choose_progress("auto"), PlainProgress)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(choose_progress("auto"), RichProgress)


def test_quiet_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """Also for an objective without end, about which Minuit would complain on standard error."""
    fit(Toy(lambda p: (p[0], np.ones(1)), [Spec("p", 1.0)]))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("progress", ["yes", "", True, 5.0])
def test_what_is_no_progress(progress: object) -> None:
    """Refused before any evaluation."""
    toy = valley()
    with pytest.raises(ParameterError, match=r'progress=.* is not one of None, "auto"') as caught:
        fit(toy, progress=progress)
    assert caught.value.option == "progress"
    assert toy.points == []
