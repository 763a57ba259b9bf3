"""What a fit shows while it runs.

A progress object is any callable that takes a `ProgressState`; it is called after every evaluation
of the objective and once more when the fit is over. An exception it raises ends the fit and
reaches the caller unchanged, so a callback may also be used to stop.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from laddu_dask.errors import ParameterError


@dataclass(frozen=True)
class ProgressState:
    """A fit at one moment.

    Attributes
    ----------
    stage
        "start", "migrad", "newton", "hessian" or "done".
    n_evaluations
        Passes over the data so far.
    objective
        Value of the latest evaluation, +inf where an intensity was not positive.
    best
        Lowest value so far.
    seconds
        Time since the fit began.
    evaluations_per_second
        Mean rate since the fit began.
    """

    stage: str
    n_evaluations: int
    objective: float
    best: float
    seconds: float
    evaluations_per_second: float

    def line(self) -> str:
        """Return the state as one line of text."""
        return (
            f"{self.stage:<8} {self.n_evaluations:>6} evaluations  "
            f"-2 ln L {self.best:.6f}  {self.evaluations_per_second:.1f}/s  {self.seconds:.0f} s"
        )


class Progress(Protocol):
    """Receives the state of a fit after every evaluation."""

    def __call__(self, state: ProgressState, /) -> None:
        """Show or record `state`."""


def quiet(_state: ProgressState, /) -> None:
    """Show nothing."""


class PlainProgress:
    """A line of text every few seconds, for logs and batch jobs.

    Parameters
    ----------
    stream
        Where to write; standard error by default, which stays free of results.
    interval
        Seconds between two lines. The last state is always written.
    clock
        Source of the time in seconds.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        interval: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._interval = interval
        self._clock = clock
        self._next = clock() + interval

    def __call__(self, state: ProgressState, /) -> None:
        now = self._clock()
        if state.stage == "done" or now >= self._next:
            self._next = now + self._interval
            print(state.line(), file=self._stream or sys.stderr, flush=True)


class RichProgress:
    """One line that renews itself in a terminal; removed when the fit is over."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._live: Live | None = None

    def __call__(self, state: ProgressState, /) -> None:
        if state.stage == "done":
            self.close()
            return
        if self._live is None:
            self._live = Live(console=self._console, transient=True, refresh_per_second=8)
            self._live.start()
        self._live.update(Text(state.line()))

    def close(self) -> None:
        """Give the terminal back; also called when a fit ends by an exception."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def choose_progress(progress: Progress | Literal["auto"] | None) -> Progress:
    """Turn the `progress` argument of a fit into a callable.

    None is quiet; "auto" is `RichProgress` when standard error is a terminal, `PlainProgress`
    otherwise; a callable is used as it is.

    Raises
    ------
    ParameterError
        It is none of these.
    """
    if progress is None:
        return quiet
    if progress == "auto":
        return RichProgress() if sys.stderr.isatty() else PlainProgress()
    if not callable(progress):
        raise ParameterError(
            f'progress={progress!r} is not one of None, "auto" and a callable that takes a '
            "ProgressState",
            option="progress",
        )
    return progress
