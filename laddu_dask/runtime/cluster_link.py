"""The private and the fragile parts of talking to a Dask cluster, in one place.

`connect` accepts what people hand over as "the cluster"; `check_cluster` refuses one that runs
other software; `Route` carries requests to workers, directly when it can and through the scheduler
otherwise; `Hints` brings news of workers that left or joined.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from distributed import Client

from laddu_dask.errors import ExecutionError
from laddu_dask.runtime.cluster_form import is_scheduler_file, refuse_other_forms
from laddu_dask.runtime.versions import package_versions, version_mismatch
from laddu_dask.runtime.worker_plugin import (
    MEMBERSHIP_TOPIC,
    Answer,
    call_service,
    operation_name,
)

logger = logging.getLogger(__name__)

PROBE_SECONDS = 5.0


# -------------------------------------------------------------------------------- connecting


def connect(cluster: Any) -> tuple[Client, bool]:
    """A synchronous, running client, and whether it was opened here.

    Parameters
    ----------
    cluster
        A `distributed.Client`, the address of a scheduler, the path of a scheduler file, or a
        cluster object of Dask.

    Raises
    ------
    ExecutionError
        The cluster is asynchronous, closed, cannot be reached, or is none of these.
    """
    refuse_other_forms(cluster)
    if isinstance(cluster, Client):
        _refuse_asynchronous(cluster)
        if cluster.status != "running":
            raise ExecutionError(
                f"the Dask client is {cluster.status}, not running. Hand over a connected client.",
                option="cluster",
            )
        return cluster, False
    try:
        if isinstance(cluster, str | os.PathLike):
            where = os.fspath(cluster)
            if is_scheduler_file(where):
                if not os.path.isfile(where):
                    raise ExecutionError(
                        f"there is no scheduler file {where}. Start the scheduler with "
                        f"--scheduler-file {where}, or give its address.",
                        option="cluster",
                    )
                return Client(scheduler_file=where, set_as_default=False), True
            return Client(where, set_as_default=False), True
        if isinstance(getattr(cluster, "scheduler_address", None), str):
            _refuse_asynchronous(cluster)
            return Client(cluster, set_as_default=False), True
        _refuse_asynchronous(cluster)
        client = cluster.get_client()
        _refuse_asynchronous(client)
        return client, True
    except (OSError, ValueError) as error:
        raise ExecutionError(
            f"no Dask scheduler answers at {cluster}: {error}. Check the address and that the "
            "scheduler runs.",
            option="cluster",
        ) from error


def _refuse_asynchronous(owner: Any) -> None:
    if getattr(owner, "asynchronous", False):
        raise ExecutionError(
            f"this {type(owner).__name__} is asynchronous, or is used from inside its event loop; "
            "evaluations block until they are done and would lock it up. Use a synchronous client "
            "(asynchronous=False) outside of the loop.",
            option="cluster",
        )


async def check_cluster(client: Client) -> float | None:
    """Compare software with the scheduler and every worker.

    Returns
    -------
    float or None
        The scheduler's idle timeout in seconds, None when it has none.

    Raises
    ------
    ExecutionError
        Naming the process and its versions, or the process that lacks the package.
    """
    here = package_versions()
    scheduler = scheduler_address(client)
    idle_timeout: float | None
    try:
        there, idle_timeout = await client.run_on_scheduler(_scheduler_facts)
    except ImportError as error:
        raise _not_importable(f"the scheduler {scheduler}", error) from error
    # The scheduler computes nothing: only what is unpickled there has to agree.
    needed = {name: here[name] for name in ("python", "laddu-dask")}
    if refusal := version_mismatch(needed, there, f"the scheduler {scheduler}"):
        raise refusal
    answers = await client.run(package_versions, on_error="return")
    for address, answer in answers.items():
        if isinstance(answer, ImportError):
            raise _not_importable(f"worker {address}", answer) from answer
        if isinstance(answer, OSError):
            continue  # left in this moment; whoever replaces it is checked by its service
        if isinstance(answer, Exception):
            raise answer
        if refusal := version_mismatch(here, answer, f"worker {address}"):
            raise refusal
    return idle_timeout


def scheduler_address(client: Client) -> str:
    """Where the client's scheduler listens, for messages."""
    return str(getattr(client.scheduler, "address", "an unknown address"))


def _scheduler_facts(dask_scheduler: Any) -> tuple[dict[str, str], float | None]:
    return package_versions(), dask_scheduler.idle_timeout


def _not_importable(where: str, error: Exception) -> ExecutionError:
    return ExecutionError(
        f"{where} cannot import this package ({error}). Install laddu-dask "
        f"{package_versions()['laddu-dask']} on the scheduler and on every worker.",
        option="cluster",
    )


# ---------------------------------------------------------------------------------- requests


class Route:
    """Carries requests of one session to workers.

    `Client.rpc` goes straight to the worker over a pooled connection with the client's TLS
    settings, in about half the time of `Client.run`, which passes through the scheduler. The
    first is not documented, so its absence, and workers that only the scheduler can reach, are
    provided for.

    Attributes
    ----------
    direct
        Whether workers are called directly.
    """

    def __init__(self, client: Client, session: str) -> None:
        self.client = client
        self.session = session
        self.operation = operation_name(session)
        self.direct = callable(getattr(client, "rpc", None))

    async def call(
        self, worker: str, epoch: int, request: bytes, partitions: Sequence[int]
    ) -> Answer | None:
        """The worker's answer; None when it has no service for this session.

        Raises
        ------
        OSError
            The link or the process broke.
        """
        fields: dict[str, Any] = {"epoch": epoch, "request": request, "partitions": [*partitions]}
        if self.direct:
            answer: Answer | None = await getattr(self.client.rpc(worker), self.operation)(**fields)
            if answer is not None:  # a worker without the handler answers None
                return answer
        answers = await self.client.run(
            call_service, workers=[worker], session=self.session, **fields
        )
        found: Answer | None = answers.get(worker)
        return found

    async def probe(self, workers: Iterable[str]) -> None:
        """Feature test: an empty request to each worker decides whether to call directly."""
        addresses = [*workers]
        if not self.direct or not addresses:
            return
        calls = [asyncio.wait_for(self.call(w, 0, b"", ()), PROBE_SECONDS) for w in addresses]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        # One broken worker is a matter of recovery; none reachable means a proxy in between.
        if all(isinstance(outcome, OSError | TimeoutError) for outcome in outcomes):
            self.direct = False
            logger.warning(
                "workers of %s cannot be called directly (%s); requests go through the scheduler",
                scheduler_address(self.client),
                outcomes[0],
            )


# ------------------------------------------------------------------------------------- hints


class Hints:
    """Workers that left or joined since one last looked; filled by the client's event loop."""

    def __init__(self) -> None:
        self.gone: deque[str] = deque()
        self.joined: deque[str] = deque()

    def take_gone(self) -> list[str]:
        """Return and forget the departures."""
        return [self.gone.popleft() for _ in range(len(self.gone))]

    def take_joined(self) -> list[str]:
        """Return and forget the arrivals."""
        return [self.joined.popleft() for _ in range(len(self.joined))]


_listeners: WeakKeyDictionary[Client, WeakSet[Hints]] = WeakKeyDictionary()
"""A client has one handler per topic, but may serve several sessions."""


def listen(client: Client, hints: Hints) -> None:
    """Have `hints` filled; again after a reconnection, which drops the subscription."""
    audience = _listeners.setdefault(client, WeakSet())
    audience.add(hints)

    def publish(event: Any) -> None:
        message = event[1] if isinstance(event, tuple | list) else event
        for listener in audience:
            if gone := message.get("gone"):
                listener.gone.append(gone)
            if joined := message.get("joined"):
                listener.joined.append(joined)

    client.subscribe_topic(MEMBERSHIP_TOPIC, publish)


def stop_listening(client: Client, hints: Hints) -> None:
    """End what `listen` began; the last one to leave cancels the subscription."""
    audience = _listeners.get(client)
    if audience is None:
        return
    audience.discard(hints)
    if not audience:
        del _listeners[client]
        client.unsubscribe_topic(MEMBERSHIP_TOPIC)
