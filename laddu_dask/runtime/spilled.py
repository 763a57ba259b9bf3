"""Prepared events on the disk of the process that works on them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from laddu_dask.errors import ExecutionError
from laddu_dask.forks import renewed
from laddu_dask.kernels import Accumulator, Backend, get_backend
from laddu_dask.kernels.backend import Kernel, Reduction
from laddu_dask.memory import Storage
from laddu_dask.memory.room import Hold
from laddu_dask.runtime.chunk_preparation import NUMBERS
from laddu_dask.runtime.partitions import Partition
from laddu_dask.runtime.preparation import Chunk, Recipe, bound, prepare_chunks
from laddu_dask.runtime.spill_file import DamagedFileError, SpillFile, write_chunks
from laddu_dask.runtime.spill_folder import spill_folder

logger = logging.getLogger(__name__)

#: A disk that damages a file so many times in a row is given up.
_ATTEMPTS = 3


class SpilledPartition:
    """Cached columns in a file of this process, which is written again should it be damaged.

    Parameters
    ----------
    recipe, partition
        What is prepared.
    folder
        Where the file is made.
    hold
        The room on disk, given back with the partition.
    """

    tier: ClassVar[Storage] = "spilled"

    def __init__(
        self, recipe: Recipe, partition: Partition, folder: Path, hold: Hold | None = None
    ) -> None:
        self.recipe, self.partition = recipe, partition
        self.first_event, self.events = partition.first_event, partition.events
        self._folder = folder
        self._hold = hold
        self._file: SpillFile | None = None
        self._lock = renewed(self, "_lock", threading.Lock)

    def __reduce__(self) -> tuple[Callable[..., SpilledPartition], tuple[Recipe, Partition]]:
        """The file stays: where the partition comes to, it is prepared when it is first needed."""
        return _moved, (self.recipe, self.partition)

    def write(self, instead_of: SpillFile | None = None) -> SpillFile:
        """The file; made now if there is none, or none but the damaged one.

        Raises
        ------
        MemoryBudgetError
            The disk is full.
        """
        with self._lock:
            if self._file is None or self._file is instead_of:
                self._file = None  # frees its room first
                programs = self.recipe.programs
                self._file = write_chunks(
                    prepare_chunks(self.recipe, self.partition),
                    self._folder,
                    NUMBERS[programs.precision],
                    vectors=get_backend(self.recipe.backend).by_vectors(programs.n_cached),
                )
            return self._file

    def chunks(self, *, whole: bool = True) -> Iterator[Chunk]:
        """The chunks, mapped one after the other; `whole`: not only the weights will be read."""
        file, done = self.write(), 0
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                for chunk in file.chunks(done, whole=whole):
                    yield chunk
                    done += 1
                return
            except DamagedFileError as error:
                where = f"{self.recipe.label}, events {self.first_event} and following"
                if attempt == _ATTEMPTS:
                    raise ExecutionError(
                        f"{where}: prepared events written to {self._folder} were damaged "
                        f"{attempt} times ({error}); set TMPDIR to a folder on another disk, or "
                        "choose storage='streaming'",
                        option="storage",
                    ) from error
                logger.warning("%s: the file is damaged and made again: %s", where, error)
                file = self.write(instead_of=file)

    def reductions(self, use: str, kernel: Callable[[], Kernel]) -> Iterator[Reduction]:
        """The chunks bound to a kernel, one after the other."""
        ready = kernel()
        return (bound(ready, chunk) for chunk in self.chunks())

    def weight_sum(self, backend: Backend) -> Accumulator:
        """The exact sum of the weights."""
        total = Accumulator(1)
        for chunk in self.chunks(whole=False):
            if isinstance(chunk.weights, float):
                total.add_ones(chunk.events)
            else:
                backend.add_numbers(chunk.weights[: chunk.events], chunk.first_event, total)
        return total

    @property
    def disk_bytes(self) -> int:
        """Size of the file, 0 as long as there is none."""
        file = self._file
        return 0 if file is None else file.bytes


def _moved(recipe: Recipe, partition: Partition) -> SpilledPartition:
    return SpilledPartition(recipe, partition, spill_folder())
