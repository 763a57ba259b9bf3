"""Event-wise results written to Parquet where they are computed: a folder of files, or nothing."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from laddu_dask.data import Dataset, read_parquet
from laddu_dask.errors import ExpressionError, LadduError, OutputError
from laddu_dask.expr import Expr, as_expr
from laddu_dask.runtime.eventwise import plan_work
from laddu_dask.runtime.execution import Execution, execution_or_default
from laddu_dask.runtime.partitions import Partition
from laddu_dask.runtime.queries import Split, compile_together
from laddu_dask.runtime.shard import WEIGHT, Shards, column_names

Parameters = Sequence[float] | npt.NDArray[np.float64] | Mapping[str, float] | None

MANIFEST = "manifest.json"
_FORMAT = 1
#: Who was told to stop may still write for a moment.
_CLEANING_SECONDS = 5.0


def write_parquet(
    quantities: Mapping[str, Expr],
    dataset: Dataset,
    folder: str | os.PathLike[str],
    parameters: Parameters = None,
    execution: Execution | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Evaluate expressions at every event and write the values, each partition where it is read.

    Nothing is gathered: a worker writes the file of its partition. The folder appears when all
    files are complete, in one step; when anything fails nothing is left behind.

    Parameters
    ----------
    quantities
        Expressions by name. A complex one becomes two columns, ``name_re`` and ``name_im``; vectors
        and matrices a column for each element, ``name_0``, ``name_0_1``. ``ld.scalar("x")`` copies
        a column of the data set.
    dataset
        The events. Their weights, if they have any, are the column ``weight``.
    folder
        Folder to make, in one that exists. On a cluster all workers must see it.
    parameters
        Vector in the order of first appearance, or a mapping; start values otherwise.
    execution
        Where and how; `partitions` is the least number of files.
    overwrite
        Replace a folder that was written by this function and holds nothing else.

    Returns
    -------
    Dataset
        The events that were written, in the order of `dataset`: what ``read_parquet(folder)``
        opens. ``manifest.json`` beside the files lists them with their first events, the columns,
        and what they were made of.

    Raises
    ------
    OutputError
        The folder exists, and may not be replaced or holds what this function did not write; or
        it cannot be written.
    DataError, ExpressionError, ParameterError
        As `laddu_dask.evaluate` does; and two columns of one name.
    """
    execution = execution_or_default(execution)
    exprs = [as_expr(expr) for expr in quantities.values()]
    if not exprs:
        raise ExpressionError("write_parquet: there is no quantity", operation="write_parquet")
    model, split = compile_together(exprs, execution)
    columns = column_names(list(quantities), split)
    vector = model.layout.vector(parameters)
    target = _refuse(Path(os.path.abspath(folder)), overwrite=overwrite)
    work, partitions = plan_work(model, dataset, [vector], execution, gradient=False)
    with _staging(target) as draft:
        shards = Shards(work, Split(split), columns, dataset.schema.has_weight, str(draft))
        digits = max(6, len(str(len(partitions))))
        names = [f"part-{number:0{digits}d}.parquet" for number in range(len(partitions))]
        rows = _write_all(shards, partitions, names, execution)
        _check(draft, names, rows, partitions)
        manifest = {
            "format": _FORMAT,
            "events": dataset.n_events,
            "files": [
                {"name": name, "first_event": partition.first_event, "events": partition.events}
                for name, partition in zip(names, partitions, strict=True)
            ],
            "columns": list(columns),
            "weight": WEIGHT if shards.weighted else None,
            "quantities": {name: repr(expr) for name, expr in zip(quantities, exprs, strict=True)},
            "parameters": dict(zip(model.layout.names, vector.tolist(), strict=True)),
            "source": dataset.source,
            "source_fingerprint": dataset.fingerprint,
        }
        with (draft / MANIFEST).open("x") as stream:
            json.dump(manifest, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        _take_place(draft, target, overwrite=overwrite)
    return read_parquet(target, weight=WEIGHT if shards.weighted else None)


def _refuse(target: Path, *, overwrite: bool) -> Path:
    """The folder, if it may be written."""
    if not target.parent.is_dir():
        raise OutputError(
            f"cannot write {target}: the folder {target.parent} does not exist; create it first",
            file=str(target),
        )
    if os.path.lexists(target):
        if not overwrite:
            raise OutputError(
                f"{target} exists and is left as it is; choose another name or pass overwrite=True",
                file=str(target),
            )
        foreign = _foreign(target)
        if foreign:
            raise OutputError(
                f"{target} is not a folder that write_parquet made, or not only that ({foreign}), "
                "so it is not replaced; move what you need, remove the rest yourself, or choose "
                "another name",
                file=str(target),
            )
    return target


def _foreign(target: Path) -> str:
    """What in a folder is not of `write_parquet`, in words; empty if nothing is."""
    if target.is_symlink():
        return "it is a symbolic link"
    if not (target / MANIFEST).is_file():
        return f"it has no {MANIFEST}"
    try:
        manifest = json.loads((target / MANIFEST).read_bytes())
        known = manifest["format"] == _FORMAT
        own = {MANIFEST, *(file["name"] for file in manifest["files"])}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        known = False
    if not known:
        return f"its {MANIFEST} is not one of write_parquet"
    for path in sorted(target.iterdir()):
        if path.name not in own or path.is_symlink() or not path.is_file():
            return f"{path.name} in it was not written by write_parquet"
    return ""


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """A hidden folder beside the target, which is gone in the end."""
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        draft.mkdir()
        yield draft
    except LadduError:
        raise
    except OSError as error:
        raise OutputError(
            f"cannot write {target}: {error.strerror or error}", file=str(target)
        ) from error
    finally:
        end = time.monotonic() + _CLEANING_SECONDS
        while draft.exists():
            shutil.rmtree(draft, ignore_errors=True)
            if time.monotonic() > end:
                break


def _write_all(
    shards: Shards, partitions: Sequence[Partition], names: Sequence[str], execution: Execution
) -> list[int]:
    """Events in each file; the error is that of the first partition which has one."""
    if execution.cluster is not None:
        return _on_cluster(execution.cluster, shards, partitions, names)
    with ThreadPoolExecutor(execution.local_threads, "laddu-sink") as pool:
        futures = [pool.submit(shards.write, *each) for each in zip(partitions, names, strict=True)]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _on_cluster(
    cluster: Any, shards: Shards, partitions: Sequence[Partition], names: Sequence[str]
) -> list[int]:
    # Without a cluster nobody pays for these.
    from laddu_dask.runtime.capacity import require_workers
    from laddu_dask.runtime.cluster_link import connect
    from laddu_dask.runtime.file_reach import reachable
    from laddu_dask.runtime.waiting import wait_for

    client, owned = connect(cluster)
    futures: list[Any] = []
    try:
        require_workers(client.scheduler_info(n_workers=-1)["workers"])
        columns = [shards.work.recipe.programs.columns] * len(partitions)
        partitions, readers = reachable(client, partitions, columns)
        shared = client.submit(_itself, shards, pure=False)
        for number, (partition, name) in enumerate(zip(partitions, names, strict=True)):
            options = {"workers": [*readers[number]]} if number in readers else {}
            futures.append(
                client.submit(_write_one, shared, partition, name, pure=False, **options)
            )
        return [wait_for(client, future, futures, what="writing events") for future in futures]
    finally:
        client.cancel(futures)  # after an error the rest is not wanted
        if owned:
            client.close()


def _itself(shards: Shards) -> Shards:
    return shards


def _write_one(shards: Shards, partition: Partition, name: str) -> int:
    return shards.write(partition, name)


def _check(
    draft: Path, names: Sequence[str], rows: Sequence[int], partitions: Sequence[Partition]
) -> None:
    """Every file is seen from here, with the events that it should have, and there is no other."""
    for path in draft.iterdir():
        if path.name not in names:
            path.unlink(missing_ok=True)  # of a worker that died while it wrote
    for name, written, partition in zip(names, rows, partitions, strict=True):
        path = draft / name
        if not path.is_file():
            raise OutputError(
                f"a worker wrote {path}, which is not there for this process; choose a folder on "
                "a file system that all share",
                file=str(path),
            )
        found = pq.read_metadata(path).num_rows
        if not found == written == partition.events:
            raise OutputError(
                f"{path} has {found} events where {partition.events} were promised; a file of the "
                "source changed while it was in use",
                file=str(path),
            )


def _take_place(draft: Path, target: Path, *, overwrite: bool) -> None:
    """Give the finished folder its name; an older one goes when the new one is there."""
    _refuse(target, overwrite=overwrite)  # again: somebody may have put something there meanwhile
    old = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.old")
    try:
        if os.path.lexists(target):
            os.rename(target, old)
        os.rename(draft, target)
    finally:
        # Whatever ended this, an interrupt too, and wherever: one of the two has the name.
        if os.path.lexists(old):
            if os.path.lexists(target):
                shutil.rmtree(old, ignore_errors=True)
            else:
                os.rename(old, target)
