"""Prepared partitions: the cached columns of a model, kept or recomputed.

Both kinds give the same chunks of cached columns, so a reduction does not know which it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import EventPrograms, Precision
from laddu_dask.compiler.assumptions import RANGE
from laddu_dask.compiler.precision import has_extreme
from laddu_dask.data import Batch, Fragment
from laddu_dask.data.repack import repack
from laddu_dask.errors import AssumptionError, DataError
from laddu_dask.kernels import column_layout, get_backend, padded
from laddu_dask.kernels.backend import Kernel, Reduction, Rows
from laddu_dask.runtime.partitions import Partition

Array = npt.NDArray[np.float64]
#: Weights that are summed at once.
_PORTION = 1 << 14
_NO_PARAMETERS: Array = np.zeros(0)
#: Numbers in cached columns.
_KINDS: dict[Precision, type] = {"f64": np.float64, "f32": np.float32}


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
    storage
        ``"resident"`` or ``"streaming"``.
    chunk_events
        Most events decoded and prepared at once.
    """

    label: str
    programs: EventPrograms
    backend: str
    storage: str
    chunk_events: int

    def prepare(self, partition: Partition) -> PreparedPartition:
        """A prepared partition of the planned kind."""
        if self.storage == "streaming":
            return StreamingPartition(self, partition)
        count = self.programs.n_cached
        by_vectors = get_backend(self.backend).by_vectors(count)
        columns = column_layout.empty_columns(
            count, partition.events, vectors=by_vectors, dtype=_KINDS[self.programs.precision]
        )
        weights = _Weights(column_layout.capacity(columns))
        done = 0
        for chunk in _prepare_chunks(self, partition):
            column_layout.put(columns, done, chunk.columns, chunk.events)
            weights.add(done, chunk)
            done += chunk.events
        return ResidentPartition(partition.first_event, done, columns, weights.found)


class _Weights:
    """Weights of a partition; most often all are one, and then nothing is kept."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.found: Array | float = 1.0

    def add(self, done: int, chunk: Chunk) -> None:
        """Weights of a chunk behind `done` events."""
        own = chunk.weights if isinstance(chunk.weights, float) else chunk.weights[: chunk.events]
        if isinstance(self.found, float):
            if np.all(own == 1.0):
                return
            room: Array = column_layout.aligned_empty((self._width,))
            room[:done], room[done:] = 1.0, 0.0
            self.found = room
        self.found[done : done + chunk.events] = own


class ResidentPartition:
    """Cached columns in memory."""

    def __init__(
        self, first_event: int, events: int, columns: Rows, weights: Array | float
    ) -> None:
        self.first_event, self.events = first_event, events
        self._columns, self._weights = columns, weights
        self._bound: dict[str, list[Reduction]] = {}

    def __reduce__(self) -> tuple[type[ResidentPartition], tuple[object, ...]]:
        """Machine code stays where it is."""
        return ResidentPartition, (self.first_event, self.events, self._columns, self._weights)

    def chunks(self) -> Iterable[Chunk]:
        """Everything at once; a resident chunk costs nothing more."""
        if not self.events:
            return ()
        return (Chunk(self.first_event, self.events, self._columns, self._weights),)

    def reductions(self, use: str, kernel: Callable[[], Kernel]) -> Sequence[Reduction]:
        """The chunks bound to the kernel of a use, which is asked for once."""
        if use not in self._bound:
            self._bound[use] = [_bound(kernel(), chunk) for chunk in self.chunks()]
        return self._bound[use]

    def weights(self) -> Iterator[Array]:
        """Weights of the events, in portions: what sums them makes arrays of the same length."""
        for start in range(0, self.events, _PORTION):
            stop = min(start + _PORTION, self.events)
            if isinstance(self._weights, float):
                yield np.ones(stop - start)
            else:
                yield self._weights[start:stop]

    def __sizeof__(self) -> int:
        """Bytes held; Dask accounts for the partition by it."""
        kept = 0 if isinstance(self._weights, float) else self._weights.nbytes
        return object.__sizeof__(self) + int(self._columns.nbytes + kept)


class StreamingPartition:
    """A recipe that is followed again in every pass."""

    def __init__(self, recipe: Recipe, partition: Partition) -> None:
        self.recipe, self.partition = recipe, partition
        self.first_event = partition.first_event

    def chunks(self) -> Iterator[Chunk]:
        """Read and prepare, one chunk after the other."""
        return _prepare_chunks(self.recipe, self.partition)

    def reductions(self, use: str, kernel: Callable[[], Kernel]) -> Iterator[Reduction]:
        """The chunks bound to a kernel, one after the other."""
        ready = kernel()
        return (_bound(ready, chunk) for chunk in self.chunks())

    def weights(self) -> Iterator[Array]:
        """Weights of the events; no other column is read."""
        for fragment in self.partition.fragments:
            for batch in _batches(self.recipe, fragment, ()):
                yield batch.weights


class RejectedPartition:
    """Events that contradict what the programs take for granted; every use says so."""

    first_event = 0

    def __init__(self, error: AssumptionError) -> None:
        self.error = error

    def reductions(self, use: str, kernel: Callable[[], Kernel]) -> Iterator[Reduction]:
        """Raise the contradiction."""
        raise self.error

    def weights(self) -> Iterator[Array]:
        """Raise the contradiction."""
        raise self.error


def _bound(kernel: Kernel, chunk: Chunk) -> Reduction:
    return kernel.bind(chunk.columns, chunk.events, chunk.first_event, chunk.weights)


PreparedPartition = ResidentPartition | StreamingPartition | RejectedPartition


def _prepare_chunks(recipe: Recipe, partition: Partition) -> Iterator[Chunk]:
    """Chunks of `chunk_events`, the last one shorter; fragments do not show in them.

    After events that contradict an assumption none comes any more, but all are checked: what is
    found then does not depend on the chunks.
    """
    programs = recipe.programs
    kernel = get_backend(recipe.backend).compile(programs.prepare, "map")
    pieces = (
        (list(batch.values), batch.weights) for batch in _read(recipe, partition, programs.columns)
    )
    batches = repack(
        pieces,
        total=partition.events,
        n_columns=len(programs.columns),
        batch_rows=recipe.chunk_events,
    )
    findings: dict[str, str] = {}
    for batch in batches:
        events = batch.weights.shape[0]
        width = padded(events)
        source = column_layout.aligned_empty((len(programs.columns), width))
        source[:, :events] = batch.values
        source[:, events:] = source[:, events - 1 : events]
        prepared = programs.prepare.n_outputs
        columns = column_layout.aligned_empty((prepared, width))
        kernel.map(source, _NO_PARAMETERS, columns)
        findings = merged_findings(findings, _findings(programs, columns))
        if findings:
            continue
        weights = column_layout.aligned_empty((width,))
        weights[:events] = batch.weights
        weights[events:] = 0.0
        first = partition.first_event + batch.start
        yield Chunk(first, events, _kept(programs, columns), weights)
    if findings:
        raise contradiction(recipe.label, findings)


def _kept(programs: EventPrograms, rows: Array) -> Rows:
    """The cached columns among the rows, rounded to the precision of the kernels.

    They are doubles until then: roots of differences and sines of large numbers would suffer. What
    is too large for a float becomes infinite, and the event is reported like any infinite one.
    """
    with np.errstate(over="ignore"):
        kept: Rows = rows[: programs.n_cached].astype(_KINDS[programs.precision], copy=False)
    return kept


def _read(recipe: Recipe, partition: Partition, columns: Sequence[str]) -> Iterator[Batch]:
    """Read fragment by fragment, and check that each has the rows that it promised."""
    for fragment in partition.fragments:
        rows = 0
        for batch in _batches(recipe, fragment, columns):
            rows += batch.weights.shape[0]
            yield batch
        if rows != fragment.rows:
            raise DataError(
                f"{recipe.label}: {fragment.label} gave {rows} events where its description "
                f"promised {fragment.rows}; it changed while it was in use, open it again",
                file=fragment.file,
                label=recipe.label,
            )


def _batches(recipe: Recipe, fragment: Fragment, columns: Sequence[str]) -> Iterator[Batch]:
    """Read a fragment; an error says for which data set of which term it was read."""
    try:
        yield from fragment.read(columns, recipe.chunk_events)
    except DataError as error:
        raise DataError(
            f"{recipe.label}: {error}", **{**error.context, "label": recipe.label}
        ) from error


def _findings(programs: EventPrograms, rows: Array) -> dict[str, str]:
    """What event values leave of the assumptions that they contradict, by digest."""
    findings: dict[str, str] = {}
    for check in programs.checks:
        found = check.findings(rows, programs.precision)
        if found is not None:
            findings[check.digest.hex()] = found
    if any(has_extreme(rows[row], programs.precision) for row in programs.ranged):
        findings[RANGE.hex()] = "open"
    return findings


def merged_findings(one: Mapping[str, str], two: Mapping[str, str]) -> dict[str, str]:
    """What is found by two sets of events together; nothing is left of what they differ about."""
    differing = {digest: "open" for digest in one.keys() & two.keys() if one[digest] != two[digest]}
    return {**one, **two, **differing}


def contradiction(label: str, findings: Mapping[str, str]) -> AssumptionError:
    """Tells the runtime to compile another form."""
    return AssumptionError(
        f"{label}: events contradict {len(findings)} assumptions of the compiled form",
        label=label,
        findings=dict(findings),
    )
