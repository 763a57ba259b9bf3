"""Rows of a tree of a ROOT file, decoded block by block."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laddu_dask.data.checks import (
    checked_batch_rows,
    checked_cut,
    digest,
    event_label,
    refuse_non_finite,
    widen_integers,
)
from laddu_dask.data.footer import FileStamp
from laddu_dask.data.fragment import Batch, Floats
from laddu_dask.data.repack import repack
from laddu_dask.data.root_file import Element, RootTree, open_tree
from laddu_dask.data.schema import Schema
from laddu_dask.errors import DataError

__all__ = ["RootFragment"]


@dataclass
class _Block:
    """What is decoded of a branch: the rows [start, stop)."""

    ends: list[int]
    start: int = 0
    stop: int = 0
    values: NDArray[Any] | None = None


@dataclass(frozen=True)
class RootFragment:
    """Consecutive rows of a tree.

    Parameters
    ----------
    stamp
        The file and its state when it was opened.
    tree
        Name of the tree with its cycle.
    lengths
        Branches of changing length that may be asked for single elements, with the length that
        every event must have.
    first, rows
        The rows [first, first + rows) of the tree are meant.
    offset
        Index in the whole data set of the first row.
    weight
        Column of the weights, or None for unit weights.
    """

    stamp: FileStamp
    tree: str
    lengths: tuple[tuple[str, int], ...]
    first: int
    rows: int
    offset: int
    weight: str | None

    @property
    def label(self) -> str:
        return f"{self.stamp.name}, tree {self.tree}"

    @property
    def file(self) -> str:
        return self.stamp.path

    @property
    def fingerprint(self) -> str:
        stamp = self.stamp
        return digest(
            *("root", stamp.path, stamp.size, stamp.mtime_ns, self.tree),
            *(self.first, self.rows, self.weight),
        )

    def locate(self, row: int) -> int:
        return self.first + row

    def cut(self, start: int, stop: int) -> RootFragment:
        start, stop = checked_cut(self, start, stop)
        return replace(
            self, first=self.first + start, rows=stop - start, offset=self.offset + start
        )

    def unweighted(self) -> RootFragment:
        return replace(self, weight=None)

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        """Decode the rows, holding one block of each branch and about one batch at a time.

        A fragment that begins inside a block decodes that block and drops what comes before.
        """
        size = checked_batch_rows(batch_rows)
        return repack(
            self._pieces(tuple(columns)),
            total=self.rows,
            n_columns=len(columns),
            batch_rows=size,
        )

    def _pieces(self, columns: tuple[str, ...]) -> Iterator[tuple[Sequence[NDArray[Any]], Floats]]:
        weight = () if self.weight is None else (self.weight,)
        needed = tuple(dict.fromkeys((*columns, *weight)))
        with open_tree(self.stamp, self.tree) as tree:
            places = self._places(tree, needed)
            blocks = {
                element.branch: _Block(tree.ends(element.branch)) for element in places.values()
            }
            row, stop = self.first, self.first + self.rows
            while row < stop:
                for branch, block in blocks.items():
                    if row >= block.stop:
                        self._load(tree, branch, block, row)
                end = min([stop, *(block.stop for block in blocks.values())])
                found = {
                    name: self._numbers(name, element, blocks[element.branch], row, end)
                    for name, element in places.items()
                }
                if self.weight is None:
                    weights = np.ones(end - row)
                else:
                    weights = found[self.weight].astype(np.float64)
                    refuse_non_finite(
                        weights, fragment=self, column=self.weight, first=row - self.first
                    )
                yield [found[name] for name in columns], weights
                row = end

    def _places(self, tree: RootTree, needed: tuple[str, ...]) -> dict[str, Element]:
        known = dict(tree.columns)
        for branch, length in self.lengths:
            known |= {f"{branch}[{index}]": Element(branch, index) for index in range(length)}
        Schema(tuple(known), unusable=tuple(tree.refused.items())).require(
            needed, wanted_by="reading", source=self.stamp.path
        )
        return {name: known[name] for name in needed}

    def _load(self, tree: RootTree, branch: str, block: _Block, row: int) -> None:
        """Decode the block of a branch that holds a row."""
        position = bisect_right(block.ends, row)
        block.start = block.ends[position - 1] if position else 0
        block.stop = block.ends[position]
        rows = block.stop - block.start
        length = dict(self.lengths).get(branch)
        try:
            if length is None:
                values = tree.numbers(branch, block.start, block.stop)
            else:
                counts, flat = tree.ragged_numbers(branch, block.start, block.stop)
                wrong = counts != length
                if wrong.any():
                    raise self._uneven(branch, block.start + int(np.argmax(wrong)), counts, length)
                values = flat.reshape(len(counts), length)
        except DataError:
            raise
        except Exception as error:
            # A damaged block ends in whatever its bytes lead to; see `root_file.opened`.
            raise self._undecodable(branch, block, f"{type(error).__name__}: {error}") from error
        if len(values) != rows:
            promised = f"{len(values)} rows where {rows} are promised"
            raise self._undecodable(branch, block, promised)
        block.values = values

    def _numbers(
        self, name: str, element: Element, block: _Block, start: int, stop: int
    ) -> NDArray[Any]:
        """Rows of a column as floats of their own width; integers become float64."""
        assert block.values is not None  # loaded before
        values = block.values[start - block.start : stop - block.start]
        if element.index is not None:
            values = values[:, element.index]
        if values.dtype.kind == "f":
            return values
        try:
            return widen_integers(values)
        except OverflowError as error:
            row = start - self.first + error.args[0]
            value = int(values[error.args[0]])
            raise DataError(
                f"column {name!r} of {self.stamp.path} is the integer {value}, which float64 would "
                f"round, at {event_label(self, row)}; subtract an offset or drop the event",
                file=self.stamp.path,
                column=name,
                event=self.offset + row,
                row=self.locate(row),
                value=value,
            ) from error

    def _uneven(self, branch: str, row: int, counts: NDArray[np.int64], length: int) -> DataError:
        found = int(counts[np.argmax(counts != length)])
        return DataError(
            f"branch {branch!r} of {self.stamp.path} has {found} numbers in row {row} of "
            f"{self.label}, where the first event of the data set has {length}; a column "
            f"{branch}[i] needs the same number in every event. Split the file by their number.",
            file=self.stamp.path,
            column=branch,
            row=row,
            value=found,
        )

    def _undecodable(self, branch: str, block: _Block, what: str) -> DataError:
        return DataError(
            f"{self.stamp.path} cannot be decoded in rows {block.start} to {block.stop} of "
            f"{self.tree}, branch {branch!r}: {what}. The file is damaged; copy or write it again.",
            file=self.stamp.path,
            column=branch,
        )
