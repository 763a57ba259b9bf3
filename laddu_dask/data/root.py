"""Opening ROOT files as one data set, by their headers alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from laddu_dask.data.agreement import describe, first_schema, refuse_mismatch
from laddu_dask.data.column_report import report_columns
from laddu_dask.data.dataset import Dataset
from laddu_dask.data.mapped import ColumnMap, checked_map, mapped, stored_names
from laddu_dask.data.paths import PathLike, find_files, short_names
from laddu_dask.data.root_file import read_header
from laddu_dask.data.root_fragment import RootFragment

__all__ = ["read_root"]

_HEADER_THREADS = 8
_FRAGMENT_ROWS = 1 << 16
"""Rows of a fragment at least: baskets may be so short that one for each would cost time."""


def read_root(
    source: PathLike | Iterable[PathLike],
    tree: str | None = None,
    columns: Sequence[str] | ColumnMap | None = None,
    weight: str | None = "weight",
) -> Dataset:
    """Open trees of ROOT files as one data set, without reading any events.

    TTrees and RNTuples are read by uproot, which ``pip install 'laddu-dask[root]'`` installs.
    Branches of float32, float64 and integers are columns; integers that float64 would round are
    refused when they are read. A branch of arrays of one length, ``x[3]``, gives the columns
    ``x[0]``, ``x[1]``, ``x[2]``. Booleans, text, objects, and arrays whose length may change are
    no columns; only if ``columns`` names an element, ``x[1]``, is such an array read, and then
    every event must have as many numbers as the first.

    Parameters
    ----------
    source
        File, directory (every ``*.root`` below it), glob pattern, or a list of these. Directories
        and globs are sorted; a list keeps its order.
    tree
        Name of the tree in every file, ``folder/kin`` or with a cycle ``kin;2``; without a cycle
        the newest is read. None if each file has only one.
    columns
        Columns or four-momenta (`<name>_e`, `_px`, `_py`, `_pz`) to offer; None offers all.
        Columns left out may differ from file to file. Or a map of our names to those of the
        files; see `ColumnMap` and `StoredColumn`.
    weight
        Column of event weights. The default name may be missing, then every event has the weight
        one; any other name must exist. None gives the weight one to every event.

    Returns
    -------
    Dataset
        Fragments end where the baskets (clusters) of all branches end.

    Raises
    ------
    DataError
        uproot is missing, nothing found, a file that is not ROOT or is damaged, no such tree or
        several, files that disagree about a column, a missing column, or one that is no number.
    """
    if isinstance(columns, Mapping):
        plan = checked_map(columns)
        return mapped(read_root(source, tree, stored_names(plan), weight), plan)
    files = find_files(source, "ROOT")
    wanted = frozenset(_arrays((*(columns or ()), *((weight,) if weight else ()))))
    names = short_names(files)
    with ThreadPoolExecutor(min(_HEADER_THREADS, len(files))) as pool:
        jobs = [
            pool.submit(read_header, path, name, tree, wanted)
            for path, name in zip(files, names, strict=True)
        ]
        headers = [job.result() for job in jobs]
    offers = [(header.stamp.path, header.types) for header in headers]
    schema = first_schema(offers[0], columns, weight)
    described = describe(source, files)
    refuse_mismatch(
        offers, schema, weight, everything=columns is None, source=described, reader="read_root"
    )
    lengths = headers[0].lengths
    fragments: list[RootFragment] = []
    offset = 0
    for header in headers:
        for first, stop in _ranges(header.ends):
            rows = stop - first
            fragments.append(
                RootFragment(header.stamp, header.tree, lengths, first, rows, offset, schema.weight)
            )
            offset += rows
    report = report_columns([header.stored for header in headers], offers[0][1], schema)
    return Dataset(schema, tuple(fragments), described, report)


def _arrays(columns: Iterable[str]) -> Iterator[str]:
    """Branches of which single elements are named."""
    for name in columns:
        branch, bracket, index = name.rpartition("[")
        if bracket and index.endswith("]") and index[:-1].isdigit():
            yield branch


def _ranges(ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Rows of each fragment: whole blocks, of so many rows that opening the file is little."""
    first = 0
    for end in ends:
        if end - first >= _FRAGMENT_ROWS or (end == ends[-1] and end > first):
            yield first, end
            first = end
