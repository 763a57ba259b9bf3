"""What may be handed over as "the cluster": told from its form, without asking anybody."""

from __future__ import annotations

import os
import re
from typing import Any

from laddu_dask.errors import ExecutionError

# A scheme, or a host with a port; Dask knows several schemes and takes tcp for one left out.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://\S+|(\[[0-9A-Fa-f:.%]+\]|[\w.-]+):\d{1,5}")


def is_scheduler_file(where: str) -> bool:
    """Whether a text means a scheduler file rather than an address."""
    return where.endswith(".json") or os.path.isfile(where)


def picklable_form(cluster: Any) -> Any:
    """The same cluster in another process: clients and cluster objects become an address.

    Raises
    ------
    ExecutionError
        It has no address (any more).
    """
    if cluster is None or isinstance(cluster, str | os.PathLike):
        return cluster
    address = getattr(cluster, "scheduler_address", None)
    if not isinstance(address, str):  # a client knows that of its scheduler
        address = getattr(getattr(cluster, "scheduler", None), "address", None)
    if isinstance(address, str) and _ADDRESS.fullmatch(address):
        return address
    raise ExecutionError(
        f"cluster={cluster!r} cannot be pickled: a {type(cluster).__name__} works in its own "
        "process only, and this one has no address of a scheduler to go by, or is closed. Give "
        'the address, Execution(cluster="tcp://host:8786"), or a scheduler file',
        option="cluster",
        value=repr(cluster),
    )


def refuse_other_forms(cluster: Any) -> None:
    """Raise unless `cluster` looks like one of the forms that `Execution` takes.

    Raises
    ------
    ExecutionError
        Naming the value and the forms.
    """
    if isinstance(cluster, str | os.PathLike):
        where = os.fspath(cluster)
        if isinstance(where, str) and (is_scheduler_file(where) or _ADDRESS.fullmatch(where)):
            return
        what = "neither an address nor a scheduler file"
    else:
        if (
            isinstance(getattr(cluster, "scheduler_address", None), str)
            or callable(getattr(cluster, "get_client", None))
            or callable(getattr(cluster, "scheduler_info", None))  # a client
        ):
            return
        what = f"a {type(cluster).__name__}"
    raise ExecutionError(
        f"cluster={cluster!r} is {what}. It must be a distributed Client, the address of a "
        'scheduler ("tcp://host:8786"), the path of a scheduler file ("scheduler.json"), or a '
        "Dask cluster object.",
        option="cluster",
        value=repr(cluster),
    )
