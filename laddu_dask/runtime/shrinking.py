"""Work that ran out of memory is done once more in chunks of half the size.

A plan counts what it knows of; other users of a machine, or of a process, it does not know. That
memory ran out says nothing about the model, and chunks change no bit of a result.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from laddu_dask.errors import DataError, LadduError, MemoryBudgetError
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.memory import format_bytes, host_memory, resident_bytes
from laddu_dask.runtime.preparation import Recipe

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


def within_memory(recipe: Recipe, work: Callable[[Recipe], Result]) -> tuple[Result, Recipe]:
    """Do some work in the chunks of a recipe, or in chunks of half the size.

    Returns
    -------
    tuple
        What `work` returned, and the recipe that it was done with.

    Raises
    ------
    MemoryBudgetError
        Half the size was too much as well.
    """
    try:
        return work(recipe), recipe
    except (MemoryError, DataError) as error:
        if not ran_out(error):
            raise
        smaller = halved(recipe)
        logger.warning(
            "%s: memory ran out (%s); chunks of %d events are tried instead of %d",
            *(recipe.label, _said(error), smaller.chunk_events, recipe.chunk_events),
        )
    try:
        return work(smaller), smaller
    except (MemoryError, DataError) as error:
        if not ran_out(error):
            raise
        raise out_of_memory(smaller, error) from error


def ran_out(error: BaseException) -> bool:
    """Whether memory ran out, be it below a library that calls it otherwise."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return True
        if isinstance(cause, OSError) and cause.errno == errno.ENOMEM:
            return True
        cause = cause.__cause__
    return False


def halved(recipe: Recipe) -> Recipe:
    """The recipe with chunks of half the size, of whole tiles and of one at least."""
    tiles = max(recipe.chunk_events // TILE // 2, 1)
    return replace(recipe, chunk_events=tiles * TILE)


def out_of_memory(recipe: Recipe, error: BaseException) -> LadduError:
    """What to say when a process has no memory for the smallest piece of work."""
    total = host_memory().total
    of = "" if total is None else f" of {format_bytes(total)}"
    return MemoryBudgetError(
        f"{recipe.label}: memory ran out ({_said(error)}) in chunks of {recipe.chunk_events} "
        f"events; the process has {format_bytes(resident_bytes())}{of} resident. Give a smaller "
        "budget with Execution(memory=...), so that less is kept, storage='streaming', or a "
        "machine with more memory",
        resource="host",
        label=recipe.label,
    )


def _said(error: BaseException) -> str:
    return str(error).split("\n")[0] or type(error).__name__
