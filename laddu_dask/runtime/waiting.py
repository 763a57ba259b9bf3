"""Waiting for tasks of a cluster, never for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from distributed import Client, KilledWorker

from laddu_dask.errors import ExecutionError, LadduError

PATIENCE_SECONDS = 300.0
"""Without any task finished for so long there is no hope. It must exceed the longest honest one."""

FORGET_SECONDS = 5.0
_POLL_SECONDS = 1.0


def wait_for(
    client: Client,
    wanted: Any,
    others: Sequence[Any] = (),
    *,
    what: str,
    patience: float | None = None,
) -> Any:
    """The result of a future; what Dask makes of lost workers meanwhile is its business.

    Parameters
    ----------
    client
        The client that submitted it.
    wanted
        The future.
    others
        Futures whose end shows that work goes on.
    what
        What is computed, for messages: ``the events of the evaluation``.
    patience
        Seconds; `PATIENCE_SECONDS` by default.

    Raises
    ------
    LadduError
        As the task raised it.
    ExecutionError
        The task failed otherwise, the cluster is gone, or nothing finished for `patience` seconds.
    """
    patience = PATIENCE_SECONDS if patience is None else patience
    progress, finished = time.monotonic(), -1
    while True:
        try:
            return wanted.result(timeout=_POLL_SECONDS)
        except TimeoutError as error:
            if wanted.status == "error":  # the task's own
                raise _failed(what, error) from error
            now = time.monotonic()
            done = sum(future.status != "pending" for future in others)
            if done != finished:
                progress, finished = now, done
            if client.status != "running":
                raise _gone(client, what) from None
            if now - progress > patience:
                raise ExecutionError(
                    f"{what}: no task finished for {now - progress:.0f} s ({done} of "
                    f"{len(others)} are done). Look at the workers' logs, and that there are "
                    "workers",
                    option="cluster",
                    waited=now - progress,
                ) from None
        except CancelledError:
            raise _gone(client, what) from None
        except LadduError:
            raise
        except KilledWorker as error:
            raise ExecutionError(
                f"{what}: workers died, several times over: {error}. Most often they ran out of "
                "memory: use more partitions or a smaller memory budget",
                option="cluster",
            ) from error
        except Exception as error:
            raise _failed(what, error) from error


def _failed(what: str, error: Exception) -> ExecutionError:
    return ExecutionError(
        f"{what} failed on a worker with {type(error).__name__}: {error}", option="cluster"
    )


def wait_until_forgotten(client: Client, keys: Sequence[str]) -> None:
    """Return when no worker holds any of these, which are told in batches; soon in any case."""

    async def forgotten() -> None:
        scheduler = client.scheduler
        while scheduler is not None and any((await scheduler.who_has(keys=keys)).values()):
            await asyncio.sleep(0.002)

    if client.status == "running" and keys:
        with suppress(OSError, TimeoutError):
            client.sync(forgotten, callback_timeout=FORGET_SECONDS)


def _gone(client: Client, what: str) -> ExecutionError:
    return ExecutionError(
        f"{what}: the tasks were cancelled; the Dask client is {client.status}. The scheduler is "
        "gone or the client was closed: see that scheduler and workers run, and try again with "
        "Execution(cluster=...) of a new client or of the address",
        option="cluster",
    )
