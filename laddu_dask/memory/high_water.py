"""How much memory work took, seen from outside: growth of the resident memory of the process.

The kernel keeps the highest value for each process. In the processes of a cluster it is told to
begin anew. In a process that is the user's own it is left alone, since others measure by it as
well: a new highest value says what work took, and below it a thread looks every now and then.
Either way there is one number for the whole process, so work that goes on at the same time is
charged to everybody.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from laddu_dask.forks import renewed
from laddu_dask.memory.capacity import peak_resident_bytes, reset_peak, resident_bytes

SAMPLE_SECONDS = 0.02


@dataclass(eq=False)
class _Window:
    """A stretch of time: resident bytes when it began, and the most since then."""

    base: int
    peak: int


class _Process:
    """All windows of this process, which may overlap in any way."""

    def __init__(self) -> None:
        self._lock = renewed(self, "_lock", threading.Lock)
        self._open: set[_Window] = renewed(self, "_open", set[_Window])
        self._sampler: threading.Thread | None = renewed(self, "_sampler", lambda: None)
        self._exact = False
        self._highest = 0
        self.may_reset = False

    def open(self) -> _Window:
        """Begin a window."""
        with self._lock:
            self._look()
            now = resident_bytes()
            window = _Window(now, now)
            self._open.add(window)
            self._exact = self.may_reset and reset_peak()
            self._highest = peak_resident_bytes(since_reset=True)
            if not self._exact and self._sampler is None:
                self._sampler = threading.Thread(
                    target=self._sample, name="laddu-memory", daemon=True
                )
                self._sampler.start()
            return window

    def close(self, window: _Window) -> None:
        """End a window; its numbers are final."""
        with self._lock:
            self._look()
            self._open.discard(window)

    def _look(self) -> None:
        """Let all open windows know the most since the last look."""
        if not self._open:
            return
        highest = peak_resident_bytes(since_reset=True)
        new = self._exact or highest > self._highest
        most, self._highest = highest if new else resident_bytes(), highest
        for window in self._open:
            window.peak = max(window.peak, most)

    def _sample(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(SAMPLE_SECONDS)
            with self._lock:
                if not self._open:
                    self._sampler = None
                    return
                self._look()


_PROCESS = _Process()


def measure_exactly() -> None:
    """This process is ours: the kernel's highest value may begin anew for each measurement."""
    _PROCESS.may_reset = True


class HighWater:
    """What a session's work took in this process, by data set; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = renewed(self, "_lock", threading.Lock)
        self._running: Counter[str] = Counter()
        self._windows: dict[str, tuple[_Window, int]] = {}
        self._kept: Counter[str] = Counter()
        self._measured: dict[str, int] = {}
        self._begin: int | None = None
        self._most = 0

    @contextmanager
    def watch(self, label: str) -> Iterator[None]:
        """Measure while work on a data set goes on, in one thread or in several at once."""
        with self._lock:
            self._running[label] += 1
            if self._running[label] == 1:
                window = _PROCESS.open()
                self._windows[label] = window, self._kept[label]
                if self._begin is None:
                    self._begin = window.base
        try:
            yield
        finally:
            with self._lock:
                self._running[label] -= 1
                if not self._running[label]:
                    self._end(label)

    def _end(self, label: str) -> None:
        window, kept = self._windows.pop(label)
        _PROCESS.close(window)
        grown = kept + window.peak - window.base
        self._measured[label] = max(self._measured.get(label, 0), grown)
        assert self._begin is not None
        self._most = max(self._most, window.peak - self._begin)

    def keep(self, label: str, kept: object, nbytes: int) -> None:
        """What stays in memory of a data set from now on, for as long as `kept` lives."""
        with self._lock:
            self._kept[label] += nbytes
        weakref.finalize(kept, self._forget, label, nbytes)

    def __reduce__(self) -> tuple[type[HighWater], tuple[()]]:
        """What was measured belongs to the process: elsewhere it begins anew."""
        return HighWater, ()

    def _forget(self, label: str, nbytes: int) -> None:
        # A finalizer may run while this thread holds the lock; a single operation needs none.
        self._kept[label] -= nbytes

    @property
    def measured(self) -> dict[str, int]:
        """Bytes at most, by data set: kept ones and those that work on it took beside."""
        with self._lock:
            return dict(self._measured)

    @property
    def growth(self) -> int:
        """By how much the process grew at most since the first work."""
        return self._most
