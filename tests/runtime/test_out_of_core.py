"""A data set twenty times as large as the hard limit of a worker, which is killed if it exceeds it.

AX and DK rows on memory: nothing is spilled by Dask, nobody is killed, the bits are those of a
machine with plenty of memory, and plans that cannot work fail before anything is read.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

import laddu_dask as ld
from laddu_dask.errors import MemoryBudgetError

MIB = 1 << 20
LIMIT = 384 * MIB
#: 32 bytes per event: three columns and a weight.
GROUPS, GROUP_EVENTS = 256, 1 << 20
GROUPS_V1 = Path("/sys/fs/cgroup/memory")
GROUPS_V2 = Path("/sys/fs/cgroup")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 8 GiB of numbers, which repeat so that it is small until they are decoded."""
    path = tmp_path_factory.mktemp("large") / "events.parquet"
    assert GROUPS * GROUP_EVENTS * 32 >= 20 * LIMIT
    generator = np.random.default_rng(5)
    schema = pa.schema([(name, pa.float64()) for name in ("x", "y", "z", "weight")])
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(GROUPS):
            few = generator.uniform(0.5, 1.5, (4, GROUP_EVENTS // 64))
            columns = [np.repeat(row, 64) for row in few]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=GROUP_EVENTS)
    return path


@contextmanager
def limited_group() -> Iterator[Path]:
    """A control group that kills what takes more memory than the limit, swap included."""
    first = GROUPS_V1.is_dir()
    group = (GROUPS_V1 if first else GROUPS_V2) / f"laddu-dask-{uuid4().hex}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    try:
        yield group
    finally:
        group.rmdir()


@contextmanager
def limited_worker(client: Client, group: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of two threads in the group; Dask is told of the limit too."""
    address = client.scheduler.address
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny"]
    command += ["--nthreads", "2", "--memory-limit", str(LIMIT), "--local-directory", str(folder)]
    enter = f'echo $$ > {group}/cgroup.procs && exec "$0" "$@"'
    # The process itself takes more than half of so small a limit.
    shares = {"TARGET": "0.8", "SPILL": "0.85", "PAUSE": "0.9"}
    names = {f"DASK_DISTRIBUTED__WORKER__MEMORY__{name}": share for name, share in shares.items()}
    with (folder / "log").open("wb") as log:
        worker = subprocess.Popen(
            ["sh", "-c", enter, *command], stdout=log, stderr=log, env={**os.environ, **names}
        )
        try:
            client.wait_for_workers(1, timeout=120)
            yield worker
        finally:
            worker.terminate()
            worker.wait(60)


def likelihood(large: Path, **options: Any) -> ld.Likelihood:
    """Few data, many accepted events; every evaluation goes over all of them."""
    a, b = ld.parameter("a", initial=0.4), ld.parameter("b", initial=0.5)
    x, y, z = (ld.scalar(name) for name in "xyz")
    model = ld.Model((a * x + b * y * z).exp() + (1 + a * z * z).sqrt())
    generator = np.random.default_rng(7)
    data = ld.Dataset.from_arrays(
        scalars={name: generator.uniform(0.5, 1.5, 2000) for name in "xyz"}
    )
    term = ld.NLL(model, data=data, accepted_mc=ld.read_parquet(large))
    return ld.Likelihood([term], ld.Execution(normalization="general", **options))


def bits(used: ld.Likelihood) -> list[str]:
    """Value and gradient."""
    value, gradient = used.value_and_gradient([0.3, 0.7])
    return [value.hex(), *map(float.hex, gradient.tolist())]


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(1500)
def test_twenty_times_the_limit(large: Path, tmp_path: Path) -> None:
    """Streamed with a fit, and spilled; a plan that is refused. One worker, never killed."""
    with likelihood(large, threads=2, storage="streaming", chunk_events=4096) as free:
        expected = bits(free)
    budget = 64 * MIB
    with ExitStack() as stack:
        cluster = stack.enter_context(
            LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=logging.CRITICAL)
        )
        client = stack.enter_context(Client(cluster))
        group = stack.enter_context(limited_group())
        worker = stack.enter_context(limited_worker(client, group, tmp_path))
        limited: dict[str, Any] = {"cluster": client}

        with likelihood(large, memory=budget, storage="resident", **limited) as refused:
            with pytest.raises(MemoryBudgetError) as caught:
                refused.value()
            assert caught.value.requested > 20 * LIMIT
            assert caught.value.remaining == budget
            assert refused._reducer.reducer._session is None  # nothing was read

        for storage, disk in (("streaming", None), ("spilled", "16 GiB")):
            limited |= {"memory": ld.MemoryPlan(budget, disk=disk), "storage": storage}
            with likelihood(large, **limited) as used:
                assert bits(used) == expected
                (_, plan) = used.plan().decisions
                assert plan.strategy == storage
                if storage == "streaming":
                    assert used.fit().converged
            assert worker.poll() is None
        log = (tmp_path / "log").read_text()
        assert "paus" not in log.lower(), log  # by Dask, for want of memory
        assert not list(tmp_path.rglob("storage/*"))  # where Dask would spill to
