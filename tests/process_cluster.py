"""A Dask cluster of processes that were started one by one, to be killed, stopped and cut off."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import psutil
from cut_network import Relay

GIVE_UP = 120.0
"""Bound on waiting for what comes by itself; no test depends on how long it takes."""


@dataclass
class WorkerProcess:
    """A worker of one thread, perhaps below a nanny and behind a relay."""

    process: subprocess.Popen[bytes]
    nanny: bool
    relay: Relay | None

    @property
    def pid(self) -> int | None:
        """The process that works; None while there is none, because a nanny is starting it."""
        if not self.nanny:
            return self.process.pid
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children():
                if "resource_tracker" not in " ".join(child.cmdline()):
                    return child.pid
        return None

    def kill(self) -> bool:
        """SIGKILL the process that works; whether there was one."""
        return self._send(signal.SIGKILL)

    def stop(self) -> bool:
        """SIGSTOP it."""
        return self._send(signal.SIGSTOP)

    def go_on(self) -> bool:
        """SIGCONT it."""
        return self._send(signal.SIGCONT)

    def _send(self, number: int) -> bool:
        pid = self.pid
        with suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, number)
                return True
        return False


@dataclass
class ProcessCluster:
    """A scheduler and workers.

    Parameters
    ----------
    folder
        For scratch files and logs.
    settings
        Of Dask, by environment variable, for all processes.
    """

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    workers: list[WorkerProcess] = field(default_factory=list)
    scheduler_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "scheduler.json"
        self.scheduler = self._start(
            "scheduler",
            *("--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
            *("--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)),
            *self.scheduler_options,
        )
        end = time.monotonic() + GIVE_UP
        self.address = ""
        while not self.address:
            assert time.monotonic() < end, "the scheduler never started"
            time.sleep(0.02)
            with suppress(FileNotFoundError, json.JSONDecodeError):  # being written
                self.address = str(json.loads(file.read_text())["address"])

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        here = Path(__file__).resolve().parent  # payloads are imported by their name
        path = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
        with (self.folder / f"{what}-{len(self.workers)}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", what, *options],
                env={**os.environ, **self.settings, "PYTHONPATH": path},
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def start_worker(
        self, *options: str, nanny: bool = False, relayed: bool = False
    ) -> WorkerProcess:
        """Start a worker without waiting for it; `relayed` puts a relay in front of it."""
        relay = None
        where: tuple[str, ...] = ("--host", "127.0.0.1")
        if relayed:
            port = free_port()
            relay = Relay(port)
            where = (
                *("--listen-address", f"tcp://127.0.0.1:{port}"),
                *("--contact-address", f"tcp://127.0.0.1:{relay.port}"),
            )
        process = self._start(
            "worker",
            *(self.address, "--nthreads", "1", "--no-dashboard", "--death-timeout", "60"),
            *("--nanny" if nanny else "--no-nanny", "--local-directory", str(self.folder)),
            *where,
            *options,
        )
        worker = WorkerProcess(process, nanny, relay)
        self.workers.append(worker)
        return worker

    def close(self) -> None:
        """Kill everything, nannies first, so that nobody starts anything again."""
        for worker in self.workers:
            worker.go_on()
            _kill_tree(worker.process)
            if worker.relay is not None:
                worker.relay.close()
        _kill_tree(self.scheduler)

    def __enter__(self) -> ProcessCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    children: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        parent.suspend()  # so that it starts no other child meanwhile
        children = parent.children(recursive=True)
    process.kill()
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    process.wait(timeout=30)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
