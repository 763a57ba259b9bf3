"""From events to the cached columns of a model, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import EventPrograms
from laddu_dask.compiler.precision import BYTES
from laddu_dask.errors import AssumptionError
from laddu_dask.kernels import get_backend
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.kernels.backend import Kernel, Reduction, Rows
from laddu_dask.runtime.array_pool import ArrayPool
from laddu_dask.runtime.chunk_preparation import ChunkPreparation, Place, merged_findings
from laddu_dask.runtime.partitions import Partition
from laddu_dask.runtime.read_ahead import items_of
from laddu_dask.runtime.source_chunks import Source

Array = npt.NDArray[np.float64]


class Chunk(NamedTuple):
    """Prepared events.

    Attributes
    ----------
    first_event
        Global index of the first event.
    events
        Number of events.
    columns
        Cached columns, shape (n_cached, padded events), or by vectors (see
        `laddu_dask.kernels.column_layout`); float32 in single precision.
    weights
        Weights, shape (padded events,), zero in the padding; or 1.0 for events that count the same.
    """

    first_event: int
    events: int
    columns: Rows
    weights: Array | float


@dataclass(frozen=True)
class Recipe:
    """How to prepare the partitions of one data set for one model.

    Attributes
    ----------
    label
        Names the data set in errors, for example ``signal/data``.
    programs
        The event programs.
    backend
        Name of the backend.
    chunk_events
        Most events decoded and prepared at once.
    weighted
        Whether the events have weights.
    pool
        Memory for chunks; recipes that are followed in turn may share it.
    """

    label: str
    programs: EventPrograms
    backend: str
    chunk_events: int
    weighted: bool = True
    pool: ArrayPool = field(default_factory=ArrayPool, compare=False, repr=False)

    def events_within(self, size: int) -> int:
        """Whole tiles of prepared events that take at most so many bytes, at least one."""
        return TILE * max(size // max(self.kept_bytes(TILE), 1), 1)

    def kept_bytes(self, events: int) -> int:
        """Bytes that so many prepared events take."""
        columns = BYTES[self.programs.precision] * self.programs.n_cached
        return events * (columns + BYTES["f64"] * self.weighted)


def bound(kernel: Kernel, chunk: Chunk) -> Reduction:
    """A chunk with the kernel that sums over it."""
    return kernel.bind(chunk.columns, chunk.events, chunk.first_event, chunk.weights)


def prepare_chunks(
    recipe: Recipe,
    partition: Partition,
    *,
    into: Place | None = None,
    part_bytes: int | None = None,
) -> Iterator[Chunk]:
    """Chunks of `chunk_events`, the last one shorter; fragments do not show in them.

    The next one is read ahead. After events that contradict an assumption none comes any more, but
    all are checked: what is found then does not depend on the chunks.

    Parameters
    ----------
    recipe, partition
        What is prepared.
    into
        Receives the columns and weights of all chunks, and is what they refer to; without it each
        has its own.
    part_bytes
        Chunks with more bytes are prepared in parts, for those who use an event at once: it is
        still in the cache of a core.
    """
    programs = recipe.programs
    part = None if part_bytes is None else recipe.events_within(part_bytes)
    prepare = ChunkPreparation(
        programs, get_backend(recipe.backend), recipe.label, recipe.pool, into, part
    )
    source = source_of(recipe, partition, programs.columns)
    findings: dict[str, str] = {}
    with items_of(source.chunks, ahead=source.takes_time) as read:
        for chunk in chain.from_iterable(map(prepare, read)):
            findings = merged_findings(findings, chunk.findings)
            if not findings:
                first = partition.first_event + chunk.start
                yield Chunk(first, chunk.events, chunk.columns, chunk.weights)
            if chunk.failure is not None:
                raise chunk.failure
            del chunk  # before the next one is made
    recipe.pool.trim()
    if findings:
        raise contradiction(recipe.label, findings)


def source_of(recipe: Recipe, partition: Partition, columns: Sequence[str]) -> Source:
    """Some columns of a partition, in chunks as they are read."""
    return Source(partition.fragments, columns, recipe.chunk_events, recipe.label)


def contradiction(label: str, findings: Mapping[str, str]) -> AssumptionError:
    """Tells the runtime to compile another form."""
    return AssumptionError(
        f"{label}: events contradict {len(findings)} assumptions of the compiled form",
        label=label,
        findings=dict(findings),
    )
