"""Which workers can read which files: numbers and names in, placements out.

Files may lie on disks of single machines. Then a partition is prepared where its files are. Tiles
are not divided, so one in which a file ends belongs to a partition that needs two files, and these
may have no reader in common: the few rows of the smaller part are read where they lie and travel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from laddu_dask.data import Fragment
from laddu_dask.errors import DataError
from laddu_dask.kernels.accumulator import TILE
from laddu_dask.runtime.partitions import Partition

#: Most rows of a partition that travel: those of a tile in which a file ends.
MOST_ROWS = TILE
_TOLD = 3


@dataclass(frozen=True)
class Reach:
    """What workers said about files.

    Attributes
    ----------
    workers
        Addresses of all that were asked.
    problems
        For each file that some cannot read: worker -> what is wrong with it there.
    """

    workers: frozenset[str]
    problems: Mapping[str, Mapping[str, str]]

    def readers(self, files: Iterable[str | None]) -> frozenset[str]:
        """The workers that can read all of some files."""
        unable = {w for file in files for w in self.problems.get(file or "", ())}
        return self.workers - unable

    def refuse_unreadable(self) -> None:
        """DataError for the first file that no worker can read."""
        for file, problems in self.problems.items():
            if problems.keys() >= self.workers:
                told = [f"{worker}: {problems[worker]}" for worker in sorted(problems)[:_TOLD]]
                more = len(problems) - len(told)
                raise DataError(
                    f"none of the {len(problems)} workers can read {file}, which was there for "
                    f"the client when the data set was opened ({'; '.join(told)}"
                    + (f"; and {more} more" if more else "")
                    + "). Workers open files themselves, under the paths that the client used: put "
                    "the files where all of them are mounted alike, or start workers there.",
                    file=file,
                    workers=tuple(sorted(problems)),
                )


@dataclass(frozen=True)
class Placement:
    """Where a partition can be prepared.

    Attributes
    ----------
    readers
        Workers that can read what does not travel; None when every worker can read everything.
    travelling
        Positions of the fragments whose rows have to be brought there.
    """

    readers: frozenset[str] | None
    travelling: tuple[int, ...] = ()


def place(partition: Partition, reach: Reach) -> Placement:
    """Where a partition is prepared.

    Raises
    ------
    DataError
        Its files have no reader in common, and too many rows would have to travel.
    """
    stamps = [fragment.stamp for fragment in partition.fragments]
    files = dict.fromkeys(stamp.path for stamp in stamps if stamp is not None)
    concerned = [file for file in files if file in reach.problems]
    if not concerned:
        return Placement(None)
    if common := reach.readers(concerned):
        return Placement(common)
    rows: dict[str, int] = dict.fromkeys(files, 0)
    for fragment, stamp in zip(partition.fragments, stamps, strict=True):
        if stamp is not None:
            rows[stamp.path] += fragment.rows
    kept = _most_rows(rows, reach)
    readers = reach.readers(kept)
    away = tuple(
        position for position, stamp in enumerate(stamps) if stamp and stamp.path not in kept
    )
    moved = sum(partition.fragments[position].rows for position in away)
    if moved > MOST_ROWS:
        other = next(file for file in files if file not in kept)
        raise DataError(
            f"the events from {partition.first_event} to "
            f"{partition.first_event + partition.events} lie in {len(files)} files that no worker "
            f"can read all of: {_named(reach, kept[0])} and {_named(reach, other)}. Cut between "
            "files, with Execution(partitioning='file_groups') and without partitions=, or let "
            "workers share a file system.",
            file=other,
        )
    return Placement(readers, away)


def apart(partition: Partition, reach: Reach) -> Iterator[tuple[Partition, frozenset[str] | None]]:
    """A partition in pieces, in order, each of which has readers; None where all can read it.

    For values event by event, which know no tiles: nothing has to travel.
    """

    def readers(fragment: Fragment) -> frozenset[str] | None:
        file = None if fragment.stamp is None else fragment.stamp.path
        return reach.readers([file]) if file in reach.problems else None

    first = partition.first_event
    for able, fragments in groupby(partition.fragments, readers):
        piece = Partition(first, tuple(fragments))
        yield piece, able
        first += piece.events


def _most_rows(rows: Mapping[str, int], reach: Reach) -> list[str]:
    """The files that one worker can read with the most rows; of equal workers the first by name."""

    def seen(worker: str) -> list[str]:
        return [file for file in rows if worker not in reach.problems.get(file, ())]

    best = max(sorted(reach.workers), key=lambda worker: sum(rows[f] for f in seen(worker)))
    return seen(best)


def _named(reach: Reach, file: str) -> str:
    readers = sorted(reach.readers([file]))
    more = f" and {len(readers) - _TOLD} more" if len(readers) > _TOLD else ""
    return f"{file} (read by {', '.join(readers[:_TOLD])}{more})"


def wishes(placements: Sequence[Placement]) -> dict[int, Collection[str]]:
    """Partition -> workers, for those partitions that not every worker can prepare."""
    return {
        number: placement.readers
        for number, placement in enumerate(placements)
        if placement.readers is not None
    }
