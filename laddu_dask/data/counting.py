"""Rows whose number is known only when they have been read: counted once, then remembered."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from laddu_dask.data.fragment import Fragment
from laddu_dask.forks import renewed

if TYPE_CHECKING:
    from laddu_dask.data.footer import FileStamp

__all__ = ["CountedOnce", "Each", "Job", "Uncounted", "files_of", "fingerprints_of", "on_threads"]


@dataclass(frozen=True)
class Job:
    """Some rows to count; picklable.

    Parameters
    ----------
    run
        Counts them.
    stamp
        The file that they are read from, or None.
    """

    run: Callable[[], int]
    stamp: FileStamp | None = None

    def __call__(self) -> int:
        return self.run()


Each: TypeAlias = Callable[[Sequence[Job]], Sequence[int]]
"""Does all jobs and gives their numbers in order, or raises the error of the first that failed."""


class Uncounted(Protocol):
    """Picklable description of rows that have to be counted.

    Attributes
    ----------
    files
        Absolute paths of the files that are read.
    fingerprint
        Identity of the content, known without counting.
    """

    @property
    def files(self) -> tuple[str, ...]: ...
    @property
    def fingerprint(self) -> str: ...

    def count(self, each: Each) -> tuple[Fragment, ...]:
        """Count, by jobs that `each` does, and describe the rows."""
        ...


class CountedOnce:
    """Uncounted rows, and the fragments that they turned out to be.

    Parameters
    ----------
    uncounted
        The rows.

    Notes
    -----
    Thread safe: a second thread waits for the count of the first. A copy made by pickling knows
    what was known by then, and forgets nothing.
    """

    def __init__(self, uncounted: Uncounted) -> None:
        self.uncounted = uncounted
        self.found: tuple[Fragment, ...] | None = None
        self._lock = renewed(self, "_lock", threading.Lock)

    def fragments(self, each: Each) -> tuple[Fragment, ...]:
        """What the rows are; counts them if that has not been done."""
        with self._lock:
            if self.found is None:
                self.found = self.uncounted.count(each)
            return self.found

    def __getstate__(self) -> dict[str, Any]:
        return {"uncounted": self.uncounted, "found": self.found}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = renewed(self, "_lock", threading.Lock)


def files_of(parts: Sequence[Fragment] | CountedOnce) -> tuple[str, ...]:
    """Absolute paths of the files that rows lie in, each once, in order."""
    if isinstance(parts, CountedOnce):
        return parts.uncounted.files
    paths = (fragment.file for fragment in parts)
    return tuple(dict.fromkeys(path for path in paths if path is not None))


def fingerprints_of(parts: Sequence[Fragment] | CountedOnce) -> tuple[str, ...]:
    """Identities that together are one of the rows; the same before and after a count."""
    if isinstance(parts, CountedOnce):
        return (parts.uncounted.fingerprint,)
    return tuple(fragment.fingerprint for fragment in parts)


def on_threads(jobs: Sequence[Job], threads: int | None = None) -> list[int]:
    """Count on threads of this process; None: as many as it may use processors."""
    if threads is None and hasattr(os, "sched_getaffinity"):
        threads = len(os.sched_getaffinity(0))
    threads = min(threads or os.cpu_count() or 1, len(jobs))
    if threads <= 1:
        return [job() for job in jobs]
    with ThreadPoolExecutor(threads, "laddu-count") as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            return [future.result() for future in futures]
        finally:
            pool.shutdown(cancel_futures=True)  # after an error there is nothing left to count
