"""The event values of a model that facts may be about, as a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from laddu_dask.compiler.boundary import columns_below, leaf_rows
from laddu_dask.compiler.facts import event_digests
from laddu_dask.compiler.ir import Graph
from laddu_dask.compiler.program import Program, cut


@dataclass(frozen=True)
class Probe:
    """What to look at in the first events of a data set.

    Attributes
    ----------
    columns
        Event columns that the program reads, in order.
    program
        Event columns -> values.
    digests
        One per value; see `laddu_dask.compiler.facts`.
    """

    columns: tuple[str, ...]
    program: Program
    digests: tuple[bytes, ...]


def probe(values: Iterable[tuple[Graph, Iterable[int]]]) -> Probe:
    """Event values of several graphs, each once."""
    merged = Graph()
    found: dict[bytes, int] = {}
    for graph, wanted in values:
        digests = event_digests(graph, wanted)
        copied = merged.copy(graph, digests)
        for value, digest in digests.items():
            found.setdefault(digest, copied[value])
    columns = columns_below(merged, list(found.values()))
    program = cut(merged, list(found.values()), leaf_rows(merged, columns), {})
    return Probe(columns, program, tuple(found))
