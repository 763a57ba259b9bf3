"""Consecutive rows of one source: the unit from which partitions are cut.

A fragment is a description, not data: small, picklable, and read where it lands. Every source
(arrays, Parquet) offers its rows as fragments; everything downstream knows only this protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from laddu_dask.data.footer import FileStamp

__all__ = ["Batch", "Floats", "Fragment"]

Floats = NDArray[np.float64]


class Batch(NamedTuple):
    """Some consecutive rows, decoded.

    Parameters
    ----------
    start
        Row, inside what was read, of the first row here.
    values
        float64, shape (n_columns, n), C-contiguous, columns in the order that was asked for.
    weights
        float64, shape (n,), all finite; ones when the source has no weights.
    """

    start: int
    values: Floats
    weights: Floats


class Fragment(Protocol):
    """Picklable description of consecutive rows of one source.

    Attributes
    ----------
    rows
        Number of rows, known without reading any. Zero is legal.
    offset
        Index in the whole data set of the first row.
    label
        What a person calls this source: ``run2.parquet, row group 3`` or ``the arrays``.
    file
        Absolute path, or None if the rows do not come from a file.
    stamp
        The file with its state when it was opened, or None.
    fingerprint
        Identity of the content; equal fingerprints read equal rows.
    """

    @property
    def rows(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def label(self) -> str: ...
    @property
    def file(self) -> str | None: ...
    @property
    def stamp(self) -> FileStamp | None: ...
    @property
    def fingerprint(self) -> str: ...

    def locate(self, row: int) -> int:
        """Row of the file (or of the arrays, or of the piece) that the `row`-th row here is.

        For error messages: a selection has to read its source to know.
        """
        ...

    def cut(self, start: int, stop: int) -> Fragment:
        """The rows [start, stop) of this fragment; DataError outside 0 <= start <= stop <= rows."""
        ...

    def unweighted(self) -> Fragment:
        """The same rows, each of weight one."""
        ...

    def read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        """Read all rows in order, `batch_rows` at a time; only the last batch may be shorter.

        Every call reads again and yields the same bits. Rows decoded before an error are
        delivered before it is raised. DataError if the source cannot be read, a needed value is
        not a number, or a weight is not finite.
        """
        ...
