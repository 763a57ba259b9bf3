"""What a session evaluates: several passes over partitions, one accumulator per partition.

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

from laddu_dask.errors import AssumptionError
from laddu_dask.kernels import Accumulator, get_backend
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
Mode = Literal["weights", "value", "gradient"]
_MODES: tuple[Mode, ...] = ("weights", "value", "gradient")


def encode_request(mode: Mode, frontiers: Sequence[Array]) -> bytes:
    """A request as bytes: mode, then the frontier values of each pass."""
    parts = [struct.pack("<qq", _MODES.index(mode), len(frontiers))]
    for frontier in frontiers:
        parts.append(struct.pack("<q", len(frontier)))
        parts.append(np.ascontiguousarray(frontier, dtype="<f8").tobytes())
    return b"".join(parts)


def decode_request(request: bytes) -> tuple[Mode, list[Array]]:
    """Inverse of `encode_request`."""
    code, count = struct.unpack_from("<qq", request, 0)
    position, frontiers = 16, []
    for _ in range(count):
        (length,) = struct.unpack_from("<q", request, position)
        position += 8
        values = np.frombuffer(request, dtype="<f8", count=length, offset=position)
        frontiers.append(values.astype(np.float64))
        position += 8 * length
    return _MODES[code], frontiers


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
        for program in (recipe.programs.value, recipe.programs.gradient):
            backend.compile(program, "reduce")
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
        """One accumulator record per prepared partition, in order.

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
    recipe: Recipe, partition: PreparedPartition, mode: Mode, frontier: Array
) -> bytes:
    """Reduce one partition to an accumulator record."""
    if mode == "weights":
        accumulator = Accumulator(1)
        first = partition.first_event
        for weights in partition.weights():
            accumulator.add_rows(weights[np.newaxis, :], first)
            first += weights.shape[0]
        return accumulator.to_bytes()
    program = recipe.programs.value if mode == "value" else recipe.programs.gradient
    kernel = get_backend(recipe.backend).compile(program, "reduce")
    accumulator = Accumulator(program.n_outputs)
    for chunk in partition.chunks():
        kernel.reduce(
            chunk.columns,
            chunk.events,
            frontier,
            accumulator,
            chunk.first_event,
            weights=chunk.weights,
        )
    return accumulator.to_bytes()
