"""From events to the cached columns of a model, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import EventPrograms, Precision
from laddu_dask.compiler.assumptions import RANGE
from laddu_dask.compiler.precision import BYTES, has_extreme
from laddu_dask.data import Batch, Fragment
from laddu_dask.data.repack import repack
from laddu_dask.errors import AssumptionError, DataError
from laddu_dask.kernels import column_layout, get_backend, padded
from laddu_dask.kernels.backend import Kernel, Reduction, Rows
from laddu_dask.runtime.partitions import Partition

Array = npt.NDArray[np.float64]
_NO_PARAMETERS: Array = np.zeros(0)
#: Numbers in cached columns.
NUMBERS: dict[Precision, type] = {"f64": np.float64, "f32": np.float32}


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
    """

    label: str
    programs: EventPrograms
    backend: str
    chunk_events: int
    weighted: bool = True

    def kept_bytes(self, events: int) -> int:
        """Bytes that so many prepared events take."""
        columns = BYTES[self.programs.precision] * self.programs.n_cached
        return events * (columns + BYTES["f64"] * self.weighted)


def bound(kernel: Kernel, chunk: Chunk) -> Reduction:
    """A chunk with the kernel that sums over it."""
    return kernel.bind(chunk.columns, chunk.events, chunk.first_event, chunk.weights)


def prepare_chunks(recipe: Recipe, partition: Partition) -> Iterator[Chunk]:
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
        kept: Rows = rows[: programs.n_cached].astype(NUMBERS[programs.precision], copy=False)
    return kept


def _read(recipe: Recipe, partition: Partition, columns: Sequence[str]) -> Iterator[Batch]:
    """Read fragment by fragment, and check that each has the rows that it promised."""
    for fragment in partition.fragments:
        rows = 0
        for batch in read_batches(recipe, fragment, columns):
            rows += batch.weights.shape[0]
            yield batch
        if rows != fragment.rows:
            raise DataError(
                f"{recipe.label}: {fragment.label} gave {rows} events where its description "
                f"promised {fragment.rows}; it changed while it was in use, open it again",
                file=fragment.file,
                label=recipe.label,
            )


def read_batches(recipe: Recipe, fragment: Fragment, columns: Sequence[str]) -> Iterator[Batch]:
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
