"""Compilation in the background: models answer at once and become fast a little later."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

Job = Callable[[], None]

#: Seconds without any other compilation before one in the background begins. LLVM is entered by one
#: thread at a time, so whoever needs code at once would have to wait for the end of a long job.
QUIET = 0.25


class Optimizer:
    """Runs jobs one after the other on a thread of its own, which begins with the first job."""

    def __init__(self, quiet: float = QUIET) -> None:
        #: Of the queue; a fork must not find it held.
        self.lock = threading.Lock()
        self._quiet = quiet
        self._last = time.monotonic()
        self._forget()

    def hold(self) -> None:
        """Somebody waits for code: nothing begins for a while."""
        self._last = time.monotonic()

    def _forget(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._open = 0
        self._idle = threading.Event()
        self._idle.set()
        self._process = os.getpid()

    def submit(self, job: Job) -> None:
        """Run a job some time soon. One that fails is logged; what it was to replace stays."""
        with self.lock:
            self._forget_parent()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="laddu-optimizer", daemon=True
                )
                self._thread.start()
                # LLVM must not be at work when the process takes it apart.
                atexit.register(self.close)
            self._open += 1
            self._idle.clear()
            self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            while (left := self._last + self._quiet - time.monotonic()) > 0:
                time.sleep(left)
            if self._thread is not threading.current_thread():
                return  # closed in the meantime
            try:
                job()
            except Exception:  # of any kind: the jobs behind this one must not be lost with it
                logger.exception("optimising a kernel failed; its first code stays in use")
            with self.lock:
                self._open -= 1
                if not self._open:
                    self._idle.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; whether that came true."""
        with self.lock:
            self._forget_parent()
        return self._idle.wait(timeout)

    def _forget_parent(self) -> None:
        if self._process != os.getpid():
            self._forget()  # a fork has no threads of its parent

    def close(self) -> None:
        """Drop what has not begun, and wait for what has."""
        with self.lock:
            thread, self._thread = self._thread, None
            if thread is None or self._process != os.getpid():
                return
            while not self._jobs.empty():
                self._jobs.get_nowait()
            self._jobs.put(None)
        thread.join()
        with self.lock:
            self._forget()


#: The one of this process.
optimizer = Optimizer()
os.register_at_fork(
    before=optimizer.lock.acquire,
    after_in_parent=optimizer.lock.release,
    after_in_child=optimizer.lock.release,
)
