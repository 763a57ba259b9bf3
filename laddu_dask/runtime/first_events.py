"""Facts that the first events of a data set suggest; all events check them while preparing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from laddu_dask.compiler import Assumptions, Facts, Probe, propose
from laddu_dask.data import Dataset, Fragment
from laddu_dask.data.pieces import read_pieces
from laddu_dask.errors import DataError
from laddu_dask.kernels import get_backend, padded
from laddu_dask.kernels.accumulator import TILE

Array = npt.NDArray[np.float64]

#: Events that are looked at. A fact of a few events is rarely one of all.
SAMPLE = 512
#: Data sets with fewer events have no facts: their columns cost nothing.
FEWEST = TILE


def first_events(dataset: Dataset, columns: Sequence[str]) -> dict[str, Array] | None:
    """Columns of the first events; None if there are too few, or this process cannot read them.

    The workers may be able to; and if they are not, they know better how to say so.
    """
    if dataset.n_events < FEWEST:
        return None
    first, count = list[Fragment](), 0
    for fragment in dataset.fragments:
        first.append(fragment.cut(0, min(SAMPLE - count, fragment.rows)))
        count += first[-1].rows
        if count == SAMPLE:
            break
    try:
        pieces = [
            np.array(piece.columns, dtype=float) for piece in read_pieces(first, columns, SAMPLE)
        ]
    except DataError:
        return None
    rows = [np.concatenate(row) for row in zip(*pieces, strict=True)]
    return dict(zip(columns, rows, strict=True))


def with_facts(
    assumptions: Assumptions,
    probe: Callable[[Assumptions], Probe],
    events: dict[str, Array],
    backend: str,
) -> Assumptions:
    """Assumptions with what the events suggest about the values that a probe names.

    Facts that are put in may uncover further values, so this goes on until there is none.
    """
    known: dict[bytes, Array] = {}
    assumptions = replace(assumptions, facts=Facts())
    while True:
        subject = probe(assumptions)
        if known.keys() >= set(subject.digests):
            return assumptions
        rows = _values(subject, events, "interpreter")
        if propose(subject.digests, rows):
            # There are some: now by the operations that will check them, to the last bit.
            rows = _values(subject, events, backend)
        known.update(zip(subject.digests, rows, strict=True))
        facts = propose(list(known), list(known.values()))
        assumptions = replace(assumptions, facts=facts)


def _values(subject: Probe, events: dict[str, Array], backend: str) -> Array:
    count = len(next(iter(events.values()), ()))
    width = padded(count)
    source = np.empty((len(subject.columns), width))
    for row, name in zip(source, subject.columns, strict=True):
        row[:count], row[count:] = events[name], events[name][-1]
    out = np.empty((len(subject.digests), width))
    get_backend(backend).compile(subject.program, "map").map(source, np.zeros(0), out)
    return out[:, :count]
