"""What a session evaluates: several passes over partitions, an accumulator per parameter set.

The same object works in this process and, pickled once per worker, on a cluster; only the request
with the frontier values travels in an evaluation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import EventPrograms, Program
from laddu_dask.compiler.precision import BYTES
from laddu_dask.errors import AssumptionError
from laddu_dask.kernels import Accumulator, get_backend
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.runtime.partitions import Partition
from laddu_dask.runtime.preparation import (
    PreparedPartition,
    Recipe,
    RejectedPartition,
    contradiction,
    merged_findings,
)

Array = npt.NDArray[np.float64]

#: ``weights``: sum of weights. ``value``: the value row. ``gradient``: value and adjoint rows.
#: ``curvature``: these, and the tangents of the adjoints along a direction.
Mode = Literal["weights", "value", "gradient", "curvature"]
_MODES: tuple[Mode, ...] = ("weights", "value", "gradient", "curvature")

#: Columns of so many bytes are read by one parameter set after the other before the next ones: they
#: should stay in the cache of a core meanwhile.
BLOCK_BYTES = 1 << 19


def encode_request(mode: Mode, frontiers: Sequence[Array]) -> bytes:
    """A request as bytes: mode, then for each pass one row of frontier values per parameter set.

    A single row stands for one set.
    """
    parts = [struct.pack("<qq", _MODES.index(mode), len(frontiers))]
    for frontier in frontiers:
        rows = np.atleast_2d(np.ascontiguousarray(frontier, dtype="<f8"))
        parts.append(struct.pack("<qq", *rows.shape))
        parts.append(rows.tobytes())
    return b"".join(parts)


def decode_request(request: bytes) -> tuple[Mode, list[Array]]:
    """Inverse of `encode_request`: shape (sets, frontier values) for each pass."""
    code, count = struct.unpack_from("<qq", request, 0)
    position, frontiers = 16, []
    for _ in range(count):
        sets, length = struct.unpack_from("<qq", request, position)
        position += 16
        values = np.frombuffer(request, dtype="<f8", count=sets * length, offset=position)
        frontiers.append(values.astype(np.float64).reshape(sets, length))
        position += 8 * sets * length
    return _MODES[code], frontiers


def decode_record(record: bytes) -> list[Accumulator]:
    """One accumulator per parameter set of a partition's record."""
    found, position = [], 0
    while position < len(record):
        (size,) = struct.unpack_from("<q", record, position)
        stop = position + Accumulator.record_bytes(size)
        found.append(Accumulator.from_bytes(record[position:stop]))
        position = stop
    return found


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
        Pass index and partition of each task; a session numbers partitions by this tuple.
    """

    recipes: tuple[Recipe, ...]
    tasks: tuple[tuple[int, Partition], ...]

    def prepare(self, partition: int) -> Prepared:
        """Prepare one partition, and compile what evaluating it will need."""
        pass_index, events = self.tasks[partition]
        recipe = self.recipes[pass_index]
        backend = get_backend(recipe.backend)
        backend.compile(recipe.programs.value, "reduce")
        backend.compile_soon(recipe.programs.gradient, "reduce")
        try:
            return Prepared(pass_index, recipe.prepare(events))
        except AssumptionError as error:
            # Ordinary data, another form: told by the evaluation, not by a task that fails.
            return Prepared(pass_index, RejectedPartition(error))

    def evaluate(
        self,
        request: bytes,
        prepared: Sequence[Prepared],
        pool: Executor,
        cancelled: Callable[[], bool],
    ) -> list[bytes]:
        """One record per prepared partition, in order; see `decode_record`.

        Partitions run side by side in `pool`; once `cancelled()` is true those that have not begun
        are left out, from the first of them on.
        """
        mode, frontiers = decode_request(request)

        def work(item: Prepared) -> bytes | AssumptionError | None:
            if cancelled():
                return None
            recipe = self.recipes[item.pass_index]
            try:
                return reduce_partition(recipe, item.partition, mode, frontiers[item.pass_index])
            except AssumptionError as error:
                return error

        records: list[bytes] = []
        contradicted: list[AssumptionError] = []
        for record in pool.map(work, prepared):
            if record is None:
                break
            if isinstance(record, AssumptionError):
                contradicted.append(record)
            else:
                records.append(record)
        if contradicted:
            raise _together(contradicted)
        return records


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
) -> bytes:
    """Reduce one partition to a record: one accumulator per row of `frontiers`.

    The events are read once for all of them.
    """
    if mode == "weights":
        accumulator = Accumulator(1)
        first = partition.first_event
        for weights in partition.weights():
            accumulator.add_rows(weights[np.newaxis, :], first)
            first += weights.shape[0]
        return accumulator.to_bytes()
    program = _program(recipe.programs, mode)
    kernel = get_backend(recipe.backend).compile(program, "reduce")
    sums = [Accumulator(program.n_outputs) for _ in frontiers]
    for chunk in partition.chunks():
        block = chunk.events if len(sums) == 1 else _block_events(recipe.programs)
        for start in range(0, chunk.events, block):
            stop = min(start + block, chunk.events)
            for frontier, accumulator in zip(frontiers, sums, strict=True):
                kernel.reduce(
                    chunk.columns,
                    stop,
                    frontier,
                    accumulator,
                    chunk.first_event,
                    start,
                    chunk.weights,
                )
    return b"".join(accumulator.to_bytes() for accumulator in sums)


def _program(programs: EventPrograms, mode: Mode) -> Program:
    if mode == "curvature":
        return programs.curvature.events
    return programs.value if mode == "value" else programs.gradient


def _block_events(programs: EventPrograms) -> int:
    """Whole tiles whose columns and weights fit `BLOCK_BYTES`, at least one."""
    size = BYTES[programs.precision] * programs.n_cached + BYTES["f64"]
    return TILE * max(BLOCK_BYTES // (size * TILE), 1)
