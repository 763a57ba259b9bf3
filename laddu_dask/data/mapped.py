"""Columns under other names, in other units, or constant: a view of another fragment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from laddu_dask.data.checks import checked_batch_rows, checked_cut, digest
from laddu_dask.data.dataset import Dataset
from laddu_dask.data.fragment import Batch, Fragment
from laddu_dask.data.pieces import Consecutive, Piece, read_pieces
from laddu_dask.data.repack import repack
from laddu_dask.data.schema import Schema, p4_columns
from laddu_dask.data.wrapping import SameRows
from laddu_dask.errors import DataError

__all__ = ["ColumnMap", "MappedFragment", "StoredColumn", "checked_map", "mapped", "stored_names"]


@dataclass(frozen=True)
class StoredColumn:
    """A column as a file has it, for readers that take ``columns={ours: theirs}``.

    Parameters
    ----------
    name
        Its name in the file; ``Px_FinalState[0]`` for an element of an array.
    scale
        What it is multiplied by, once and in float64: ``1e-3`` makes GeV of MeV.
    """

    name: str
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.scale) and self.scale != 0.0):
            raise DataError(
                f"the scale of column {self.name!r} is {self.scale}; give a finite number other "
                "than zero",
                column=self.name,
                value=self.scale,
            )


Given: TypeAlias = str | float | StoredColumn
ColumnMap: TypeAlias = Mapping[str, Given | Sequence[Given]]
"""Our names to theirs: a name, a `StoredColumn`, a constant, or four for (E, px, py, pz)."""

_Plan: TypeAlias = tuple[tuple[str, StoredColumn | float], ...]


def checked_map(columns: ColumnMap) -> _Plan:
    """The columns of a map, one by one, four-momenta taken apart.

    Raises
    ------
    DataError
        An empty map, a name used twice or called 'weight', four-momenta without four
        components, or anything but names, stored columns and finite constants.
    """
    if "weight" in columns:
        raise DataError(
            "columns= gives a column for 'weight'; the reader takes the name of the weights of the "
            f"file by itself: weight={columns['weight']!r}",
            column="weight",
        )
    plan: list[tuple[str, StoredColumn | float]] = []
    for ours, theirs in columns.items():
        if isinstance(theirs, (str, StoredColumn)) or not isinstance(theirs, Sequence):
            plan.append((ours, _one(ours, theirs)))
            continue
        if len(theirs) != 4:
            raise DataError(
                f"columns= has {len(theirs)} entries for the four-momentum {ours!r}; "
                "give four, in the order (E, px, py, pz)",
                column=ours,
            )
        names = p4_columns(ours)
        plan += [(name, _one(name, entry)) for name, entry in zip(names, theirs, strict=True)]
    if not any(isinstance(entry, StoredColumn) for _, entry in plan):
        raise DataError("columns= names no column of the files")
    Schema(tuple(name for name, _ in plan))  # refuses a name that occurs twice
    return tuple(plan)


def stored_names(plan: _Plan) -> tuple[str, ...]:
    """The columns of the file that a plan reads, each once."""
    stored = (entry.name for _, entry in plan if isinstance(entry, StoredColumn))
    return tuple(dict.fromkeys(stored))


def mapped(dataset: Dataset, plan: _Plan) -> Dataset:
    """The data set with the columns of a plan instead of its own; weights stay."""
    dataset.require(stored_names(plan), wanted_by="columns=")
    schema = replace(dataset.schema, columns=tuple(name for name, _ in plan))
    parts = tuple(MappedFragment(part, plan) for part in dataset.fragments)
    names = [
        (ours, entry.name, float(entry.scale))
        for ours, entry in plan
        if isinstance(entry, StoredColumn)
    ]
    report = None if dataset.report is None else dataset.report.renamed(names)
    return Dataset(schema, parts, dataset.source, report)


@dataclass(frozen=True)
class MappedFragment(SameRows):
    """A fragment whose columns have other names.

    Parameters
    ----------
    base
        The rows as the file has them; errors speak of its columns.
    plan
        What each column is made of: a column of `base`, or a constant.
    """

    base: Fragment
    plan: _Plan

    @property
    def fingerprint(self) -> str:
        words: list[str] = []
        for name, entry in self.plan:
            if isinstance(entry, StoredColumn):
                words += [name, entry.name, float(entry.scale).hex()]
            else:
                words += [name, "constant", entry.hex()]
        return digest("mapped", self.base.fingerprint, *words)

    def cut(self, start: int, stop: int) -> MappedFragment:
        start, stop = checked_cut(self, start, stop)
        return MappedFragment(self.base.cut(start, stop), self.plan)

    def unweighted(self) -> MappedFragment:
        return MappedFragment(self.base.unweighted(), self.plan)

    def continues(self, previous: Fragment) -> bool:
        """Whether these rows follow those of `previous` in the same source."""
        return (
            isinstance(previous, MappedFragment)
            and previous.plan == self.plan
            and isinstance(self.base, Consecutive)
            and self.base.continues(previous.base)
        )

    def read_run(
        self, run: Sequence[Fragment], columns: Sequence[str], batch_rows: int
    ) -> Iterator[Piece]:
        """See `laddu_dask.data.pieces.Consecutive`."""
        bases = [part.base for part in run if isinstance(part, MappedFragment)]
        return self._pieces(bases, columns, batch_rows)

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        size = checked_batch_rows(batch_rows)
        pieces = self._pieces([self.base], columns, size)
        return repack(
            ((piece.columns, piece.every_weight()) for piece in pieces),
            total=self.rows,
            n_columns=len(columns),
            batch_rows=size,
        )

    def _pieces(
        self, bases: Sequence[Fragment], columns: Sequence[str], batch_rows: int
    ) -> Iterator[Piece]:
        known = dict(self.plan)
        Schema(tuple(known)).require(columns, wanted_by="reading", source=self.label)
        wanted = [(name, known[name]) for name in columns]
        names = stored_names(tuple(wanted))
        for piece in read_pieces(bases, names, batch_rows):
            found = dict(zip(names, piece.columns, strict=True))
            made = [_column(entry, found, piece.rows) for _, entry in wanted]
            yield piece._replace(columns=made)


def _column(
    entry: StoredColumn | float, found: Mapping[str, NDArray[Any]], rows: int
) -> NDArray[Any]:
    if not isinstance(entry, StoredColumn):
        return np.full(rows, entry)
    values = found[entry.name]
    return values if entry.scale == 1.0 else values.astype(np.float64) * float(entry.scale)


def _one(ours: str, given: object) -> StoredColumn | float:
    if isinstance(given, StoredColumn):
        return given
    if isinstance(given, str):
        return StoredColumn(given)
    if isinstance(given, (int, float)) and not isinstance(given, bool) and np.isfinite(given):
        return float(given)
    raise DataError(
        f"columns= gives {given!r} for {ours!r}; give the name of a column of the file, a "
        "StoredColumn(name, scale), a finite constant, or four of these for a four-momentum",
        column=ours,
    )
