"""Writing a data set as a tree of a ROOT file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

import numpy as np

from laddu_dask.data.dataset import DEFAULT_BATCH_ROWS, Dataset
from laddu_dask.data.paths import PathLike
from laddu_dask.data.root import read_root
from laddu_dask.data.root_file import require_uproot
from laddu_dask.errors import DataError, OutputError

__all__ = ["write_root"]

_WEIGHT = "weight"


def write_root(
    dataset: Dataset,
    path: PathLike,
    columns: Sequence[str] | None = None,
    *,
    tree: str = "kin",
    overwrite: bool = False,
) -> Dataset:
    """Write the events of a data set as a TTree of doubles, from this process.

    Events are read and written block by block, so memory does not grow with their number. The file
    is made under another name in the same folder and renamed when it is complete: when anything
    fails, or the process is killed, nothing is there that looks like the file.

    Parameters
    ----------
    dataset
        The events. Their weights, if they have any, are the branch ``weight``.
    path
        File to make, in a folder that exists.
    columns
        Columns or four-momenta to write; None writes all.
    tree
        Name of the tree.
    overwrite
        Replace a file that exists.

    Returns
    -------
    Dataset
        The events that were written, as ``read_root(path)`` opens them.

    Raises
    ------
    OutputError
        The file exists, or cannot be written.
    DataError
        uproot is missing, the events cannot be read, a column is missing, or one is called
        ``weight`` beside the weights.
    """
    uproot = require_uproot()
    target = os.path.abspath(os.path.expanduser(os.fspath(path)))
    schema = dataset.schema if columns is None else dataset.schema.restricted(columns)
    names = schema.columns
    weights = (_WEIGHT,) if schema.has_weight else ()
    if weights and _WEIGHT in names:
        raise DataError(
            "the events have weights and a column called 'weight'; leave it out by columns=[...]",
            column=_WEIGHT,
        )
    _refuse_existing(target, overwrite)
    try:
        handle, partial = tempfile.mkstemp(
            prefix=f".{os.path.basename(target)}.", suffix=".part", dir=os.path.dirname(target)
        )
        os.close(handle)
    except OSError as error:
        raise _not_written(target, error) from error
    try:
        with uproot.recreate(partial) as file:
            written = file.mktree(tree, dict.fromkeys((*names, *weights), np.dtype(np.float64)))
            for batch in dataset.batches(names, DEFAULT_BATCH_ROWS):
                block = dict(zip(names, batch.values, strict=True))
                written.extend(block | dict.fromkeys(weights, batch.weights))
        _finish(partial, target, overwrite)
    except OutputError:
        raise
    except OSError as error:
        raise _not_written(target, error) from error
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    return read_root(target, tree, weight=_WEIGHT if weights else None)


def _finish(partial: str, target: str, overwrite: bool) -> None:
    """Give the complete file its name, after its bytes are on the disk."""
    with open(partial, "rb+") as file:
        os.fsync(file.fileno())
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(partial, 0o666 & ~mask)  # temporary files are private
    _refuse_existing(target, overwrite)
    os.replace(partial, target)


def _refuse_existing(target: str, overwrite: bool) -> None:
    if os.path.isdir(target) or (os.path.exists(target) and not overwrite):
        cure = "name a file" if os.path.isdir(target) else "overwrite=True replaces it"
        raise OutputError(f"{target} exists; {cure}", file=target)


def _not_written(target: str, error: OSError) -> OutputError:
    return OutputError(f"{target} cannot be written: {error.strerror or error}", file=target)
