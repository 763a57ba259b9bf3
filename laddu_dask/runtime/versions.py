"""Versions that client and workers must share for results to have the same bits.

Compared before anything is shipped, and again by the service on each worker that joins later.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from laddu_dask.errors import ExecutionError

DISTRIBUTIONS = ("laddu-dask", "numpy", "llvmlite")
"""What the values of a likelihood and the pickles of a session depend on."""


def package_versions() -> dict[str, str]:
    """Version of each of `DISTRIBUTIONS` and of Python ("3.11") in this process."""
    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for distribution in DISTRIBUTIONS:
        try:
            found[distribution] = version(distribution)
        except PackageNotFoundError:
            found[distribution] = "not installed"
    return found


def version_mismatch(
    client: Mapping[str, str], worker: Mapping[str, str], address: str
) -> ExecutionError | None:
    """The refusal to work with the process at `address`, or None when the versions agree."""
    different = {
        name: (wanted, worker.get(name, "unknown"))
        for name, wanted in client.items()
        if worker.get(name, "unknown") != wanted
    }
    if not different:
        return None
    table = ", ".join(
        f"{name} {here} here but {there} there" for name, (here, there) in different.items()
    )
    return ExecutionError(
        f"{address} runs other versions than this client: {table}. Results would depend on where "
        "a partition is evaluated. Install the same versions on both sides.",
        option="cluster",
        worker=address,
        versions={name: list(pair) for name, pair in different.items()},
    )
