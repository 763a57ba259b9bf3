"""Event-wise results as lazy Dask arrays: a block per partition, computed where somebody asks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy.typing as npt
from dask import array as da
from dask.delayed import delayed

from laddu_dask.data import Dataset
from laddu_dask.runtime.eventwise import Work
from laddu_dask.runtime.partitions import Partition
from laddu_dask.runtime.values import Finish


class Output(NamedTuple):
    """One of the arrays.

    Attributes
    ----------
    before, after
        Its shape in front of the axis of events, and behind it.
    dtype
        Its type.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    dtype: type


def lazy_arrays(
    work: Work,
    dataset: Dataset,
    partitions: Sequence[Partition],
    finish: Finish,
    outputs: Sequence[Output],
) -> tuple[da.Array, ...]:
    """Lazy arrays of a pass over the events; all of them share its tasks.

    Parameters
    ----------
    work
        What is evaluated.
    dataset, partitions
        The events, and how they are cut.
    finish
        What is made of the rows; picklable.
    outputs
        Shapes and types of what it gives.

    Notes
    -----
    Keys are functions of events, programs and parameters, so a scheduler that still holds a block
    does not compute it again.
    """
    token = _token(work, dataset, finish)
    shared = delayed(work, name=f"laddu-work-{token}", traverse=False)
    evaluate = delayed(_evaluate, pure=False, nout=len(outputs), traverse=False)
    of_partition = [
        evaluate(
            shared,
            partition,
            finish,
            dask_key_name=f"laddu-values-{token}-{len(partitions)}-{number}",
        )
        for number, partition in enumerate(partitions)
    ]
    arrays = []
    for k, output in enumerate(outputs):
        pieces = [
            da.from_delayed(
                parts[k], (*output.before, partition.events, *output.after), dtype=output.dtype
            )
            for parts, partition in zip(of_partition, partitions, strict=True)
        ]
        arrays.append(da.concatenate(pieces, axis=len(output.before)))
    return tuple(arrays)


def _evaluate(work: Work, partition: Partition, finish: Finish) -> tuple[npt.NDArray[Any], ...]:
    return finish(work.rows(partition), partition.first_event)


def _token(work: Work, dataset: Dataset, finish: Finish) -> str:
    state = hashlib.blake2b(digest_size=16)
    recipe = work.recipe
    parts = (dataset.fingerprint, recipe.programs.digest, recipe.backend, work.gradient, finish)
    state.update(repr(parts).encode())
    for frontier in work.frontiers:
        state.update(frontier.tobytes())
    return state.hexdigest()
