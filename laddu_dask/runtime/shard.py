"""Event-wise results of one partition as a Parquet file, written where they were computed."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from laddu_dask.errors import ExpressionError, OutputError
from laddu_dask.runtime.eventwise import Work
from laddu_dask.runtime.partitions import Partition
from laddu_dask.runtime.queries import Quantity, Split

WEIGHT = "weight"

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shards:
    """What becomes of every partition; picklable.

    Attributes
    ----------
    work
        What is evaluated.
    split
        The quantities in its rows.
    columns
        Names in the file: of every element of every quantity, of real and imaginary parts.
    weighted
        Whether the weights of the events are written too.
    folder
        Where; it exists, for whoever writes.
    """

    work: Work
    split: Split
    columns: tuple[str, ...]
    weighted: bool
    folder: str

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of a file."""
        return (*self.columns, WEIGHT) if self.weighted else self.columns

    def write(self, partition: Partition, name: str) -> int:
        """Write the file of a partition, whole or not at all; a second attempt replaces the first.

        Returns
        -------
        int
            Number of events in it.

        Raises
        ------
        OutputError
            The folder is not there, or the system refuses.
        LadduError
            As the evaluation of events does.
        """
        folder = Path(self.folder)
        if not folder.is_dir():
            raise OutputError(
                f"the folder {folder} is not there on {os.uname().nodename}; events are written "
                "where they are computed, so choose a folder that all workers share",
                file=str(folder),
            )
        draft = folder / f".{name}.{uuid.uuid4().hex}"
        try:
            rows = self._write(partition, draft)
            os.replace(draft, folder / name)
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise OutputError(
                f"cannot write {folder / name}: {error.strerror or error}", file=str(folder / name)
            ) from error
        finally:
            draft.unlink(missing_ok=True)
        return rows

    def _write(self, partition: Partition, path: Path) -> int:
        schema = pa.schema([(name, pa.float64()) for name in self.names])
        rows = 0
        with path.open("xb") as stream:
            with pq.ParquetWriter(stream, schema, write_page_checksum=True) as writer:
                for block in self.work.blocks(partition):
                    columns = self._columns(block.rows, block.offset)
                    if self.weighted:
                        columns.append(block.weights)
                    writer.write_table(pa.table([*map(pa.array, columns)], schema=schema))
                    rows += len(block.weights)
            stream.flush()
            os.fsync(stream.fileno())
        return rows

    def _columns(self, rows: Array, first_event: int) -> list[Array]:
        columns: list[Array] = []
        for values in self.split(rows, first_event):
            for element in values.reshape(-1, values.shape[-1]):
                parts = (element.real, element.imag) if np.iscomplexobj(element) else (element,)
                columns += [np.ascontiguousarray(part) for part in parts]
        return columns


def column_names(names: list[str], quantities: tuple[Quantity, ...]) -> tuple[str, ...]:
    """A name for every column: ``amplitude_re``, ``amplitude_im``; ``q_0_1`` of a matrix ``q``.

    Raises
    ------
    ExpressionError
        A name is empty or has a slash, two columns have the same name, or one has that of the
        weight.
    """
    for name in names:
        if not isinstance(name, str) or not name or "/" in name:
            raise ExpressionError(
                f"{name!r} cannot be the name of a column; give the quantity a name without a "
                "slash, of one letter at least",
                operation="write_parquet",
            )
    found: list[str] = []
    for name, quantity in zip(names, quantities, strict=True):
        for index in np.ndindex(*quantity.shape):
            element = "_".join([name, *map(str, index)])
            found += [element] if quantity.real else [f"{element}_re", f"{element}_im"]
    twice = sorted({name for name in (*found, WEIGHT) if (*found, WEIGHT).count(name) > 1})
    if twice:
        raise ExpressionError(
            f"the column {twice[0]!r} would be written twice (the weights of events are "
            f"{WEIGHT!r}); give the quantities other names",
            operation="write_parquet",
        )
    return tuple(found)
