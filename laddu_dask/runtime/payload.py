"""What a session evaluates: several passes over partitions, an accumulator per parameter set.

The same object works in this process and, pickled once per worker, on a cluster; there only the
frontier values travel in an evaluation (see `laddu_dask.runtime.wire`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import EventPrograms, Program
from laddu_dask.compiler.precision import BYTES
from laddu_dask.errors import AssumptionError, MemoryBudgetError
from laddu_dask.kernels import Accumulator, get_backend
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.memory import HighWater, Storage
from laddu_dask.memory.room import Room
from laddu_dask.runtime.chunk_preparation import merged_findings
from laddu_dask.runtime.partitions import Partition
from laddu_dask.runtime.preparation import Recipe, contradiction
from laddu_dask.runtime.shrinking import within_memory
from laddu_dask.runtime.tiers import (
    KeptPartition,
    PreparedPartition,
    RejectedPartition,
    ResidentPartition,
    StreamingPartition,
    prepare,
)
from laddu_dask.runtime.worker_info import Kept

logger = logging.getLogger(__name__)

Array = npt.NDArray[np.float64]

#: ``weights``: sum of weights. ``value``: the value row. ``gradient``: value and adjoint rows.
#: ``curvature``: these, and the tangents of the adjoints along a direction.
Mode = Literal["weights", "value", "gradient", "curvature"]

#: Calls a function for each item and gives the results in order: `map`, or that of an executor.
Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]

#: Columns of so many bytes are read by one parameter set after the other before the next ones: they
#: should stay in the cache of a core meanwhile.
BLOCK_BYTES = 1 << 19


@dataclass(frozen=True)
class Task:
    """A partition of a pass, and where it may be kept: the first of `tiers` with room for it."""

    pass_index: int
    partition: Partition
    tiers: tuple[Storage, ...]


@dataclass(frozen=True)
class Prepared:
    """A prepared partition and the pass that it belongs to."""

    pass_index: int
    partition: PreparedPartition

    def __sizeof__(self) -> int:
        """Bytes held by the partition."""
        return object.__sizeof__(self) + self.partition.__sizeof__()


@dataclass(frozen=True)
class ReductionPayload:
    """Recipes and partitions of all passes.

    Attributes
    ----------
    recipes
        One per pass.
    tasks
        The partitions of all passes; a session numbers them by this tuple.
    shrunk
        Passes and first events of partitions for which memory ran out in this process, so that
        they are worked on in smaller chunks.
    used
        Number of a partition -> how it was kept when it was last prepared in this process.
    """

    recipes: tuple[Recipe, ...]
    tasks: tuple[Task, ...]
    shrunk: set[tuple[int, int]] = field(default_factory=set, compare=False)
    used: dict[int, Storage] = field(default_factory=dict, compare=False)
    _reasons: dict[tuple[int, Storage], str] = field(default_factory=dict, compare=False)

    @cached_property
    def high_water(self) -> HighWater:
        """What the data sets took of this process's memory."""
        return HighWater()

    def prepare(self, partition: int, room: Room) -> Prepared:
        """Prepare one partition, and compile what evaluating it will need."""
        task = self.tasks[partition]
        recipe = self.recipes[task.pass_index]
        backend = get_backend(recipe.backend)
        backend.compile(recipe.programs.value, "reduce")
        backend.compile_soon(recipe.programs.gradient, "reduce")
        backend.compile(recipe.programs.prepare, "map")  # not to be measured below

        def attempt(tried: Recipe) -> KeptPartition:
            lacking = partial(self._warn_once, task.pass_index)
            return prepare(tried, task.partition, task.tiers, room, lacking)

        try:
            with self.high_water.watch(recipe.label):
                kept, used = within_memory(recipe, attempt)
            self.used[partition] = kept.tier
            self.high_water.keep(recipe.label, kept, sys.getsizeof(kept))
            if used is not recipe:
                self.shrunk.add((task.pass_index, task.partition.first_event))
            return Prepared(task.pass_index, kept)
        except AssumptionError as error:
            # Ordinary data, another form: told by the evaluation, not by a task that fails.
            return Prepared(task.pass_index, RejectedPartition(error))

    def _warn_once(self, pass_index: int, tier: Storage, error: MemoryBudgetError) -> None:
        """For a data set and tier: its other partitions would say the same."""
        reason = f"no room for it to be {tier}: {error}"
        if self._reasons.setdefault((pass_index, tier), reason) is reason:
            label = self.recipes[pass_index].label
            logger.warning("%s: a part of it is not kept as planned: %s", label, reason)

    def kept(self, numbers: Iterable[int]) -> tuple[Kept, ...]:
        """How these partitions are kept, for those that were prepared in this process."""
        found: dict[tuple[int, Storage, Storage], list[int]] = {}
        for number in numbers:
            if number in self.used:
                task = self.tasks[number]
                key = task.pass_index, task.tiers[0], self.used[number]
                found.setdefault(key, []).append(task.partition.events)
        return tuple(
            Kept(
                *(self.recipes[index].label, planned, used, len(events), sum(events)),
                reason="" if planned == used else self._reasons[index, planned],
            )
            for (index, planned, used), events in sorted(found.items())
        )

    def evaluate(
        self,
        mode: Mode,
        frontiers: Sequence[Array],
        prepared: Sequence[Prepared],
        each: Each,
        cancelled: Callable[[], bool] | None = None,
    ) -> list[list[Accumulator]]:
        """The sums of every prepared partition, in order; see `reduce_partition`.

        `frontiers` has the frontier values of each pass, shape (sets, values). Once `cancelled()`
        is true partitions that have not begun are left out, from the first of them on.
        """

        def work(item: Prepared) -> list[Accumulator] | AssumptionError | None:
            if cancelled is not None and cancelled():
                return None
            recipe = self.recipes[item.pass_index]
            partition, rows = item.partition, frontiers[item.pass_index]
            chunked = partition.recipe if isinstance(partition, StreamingPartition) else recipe

            def attempt(tried: Recipe) -> list[Accumulator]:
                if isinstance(partition, StreamingPartition):
                    partition.recipe = tried
                return reduce_partition(recipe, partition, mode, rows)

            # Resident events take nothing more, and their passes are short.
            resident = isinstance(partition, ResidentPartition)
            try:
                with nullcontext() if resident else self.high_water.watch(recipe.label):
                    sums, used = within_memory(chunked, attempt)
            except AssumptionError as error:
                return error
            if used is not chunked:
                self.shrunk.add((item.pass_index, partition.first_event))
            return sums

        found: list[list[Accumulator]] = []
        contradicted: list[AssumptionError] = []
        for sums in each(work, prepared):
            if sums is None:
                break
            if isinstance(sums, AssumptionError):
                contradicted.append(sums)
            else:
                found.append(sums)
        if contradicted:
            raise _together(contradicted)
        return found


def _together(errors: Sequence[AssumptionError]) -> AssumptionError:
    """All that the first data set's partitions found: one other form instead of one for each."""
    label = errors[0].label
    findings: dict[str, str] = {}
    for error in errors:
        if error.label == label:
            findings = merged_findings(findings, error.findings)
    return contradiction(label, findings)


def reduce_partition(
    recipe: Recipe, partition: PreparedPartition, mode: Mode, frontiers: Array
) -> list[Accumulator]:
    """The sums of one partition: an accumulator per row of `frontiers`.

    The events are read once for all of them.
    """
    backend = get_backend(recipe.backend)
    if mode == "weights":
        return [partition.weight_sum(backend)]
    program = _program(recipe.programs, mode)
    sums = [Accumulator(program.n_outputs) for _ in frontiers]
    for reduction in partition.reductions(mode, lambda: backend.compile(program, "reduce")):
        events = reduction.events
        block = events if len(sums) == 1 else _block_events(recipe.programs)
        for start in range(0, events, block):
            stop = min(start + block, events)
            for frontier, total in zip(frontiers, sums, strict=True):
                reduction(frontier, total, start, stop)
        del reduction  # and its events, before the next ones are prepared
    return sums


def _program(programs: EventPrograms, mode: Mode) -> Program:
    if mode == "curvature":
        return programs.curvature.events
    return programs.value if mode == "value" else programs.gradient


def _block_events(programs: EventPrograms) -> int:
    """Whole tiles whose columns and weights fit `BLOCK_BYTES`, at least one."""
    size = BYTES[programs.precision] * programs.n_cached + BYTES["f64"]
    return TILE * max(BLOCK_BYTES // (size * TILE), 1)
