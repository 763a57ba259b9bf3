"""Requests and records as bytes: what travels between the client and the workers of a cluster."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np
import numpy.typing as npt

from laddu_dask.kernels import Accumulator
from laddu_dask.memory import HighWater, Room
from laddu_dask.runtime.payload import Mode, Prepared, ReductionPayload
from laddu_dask.runtime.tiers import ResidentPartition
from laddu_dask.runtime.worker_info import Kept, WorkerInfo

if TYPE_CHECKING:
    from laddu_dask.runtime.cluster import ClusterSession

Array = npt.NDArray[np.float64]

_MODES: tuple[Mode, ...] = get_args(Mode)


def encode_request(mode: Mode, frontiers: Sequence[Array]) -> bytes:
    """A request as bytes: mode, then for each pass one row of frontier values per parameter set."""
    parts = [struct.pack("<qq", _MODES.index(mode), len(frontiers))]
    for rows in frontiers:
        parts.append(struct.pack("<qq", *rows.shape))
        parts.append(np.ascontiguousarray(rows, dtype="<f8").tobytes())
    return b"".join(parts)


def decode_request(request: bytes) -> tuple[Mode, list[Array]]:
    """Inverse of `encode_request`: shape (sets, frontier values) for each pass."""
    code, count = struct.unpack_from("<qq", request, 0)
    position, frontiers = 16, []
    for _ in range(count):
        sets, length = struct.unpack_from("<qq", request, position)
        position += 16
        values = np.frombuffer(request, dtype="<f8", count=sets * length, offset=position)
        frontiers.append(values.astype(np.float64).reshape(sets, length))
        position += 8 * sets * length
    return _MODES[code], frontiers


def encode_record(sums: Sequence[Accumulator]) -> bytes:
    """The sums of a partition, an accumulator per parameter set, as bytes."""
    return b"".join(total.to_bytes() for total in sums)


def decode_record(record: bytes) -> list[Accumulator]:
    """Inverse of `encode_record`."""
    found, position = [], 0
    while position < len(record):
        (size,) = struct.unpack_from("<q", record, position)
        stop = position + Accumulator.record_bytes(size)
        found.append(Accumulator.from_bytes(record[position:stop]))
        position = stop
    return found


@dataclass(frozen=True)
class RemotePayload:
    """A reduction as workers see it; see `laddu_dask.runtime.worker_plugin.SessionPayload`."""

    payload: ReductionPayload

    @property
    def shrunk(self) -> Collection[object]:
        """Partitions for which memory ran out; see `ReductionPayload`."""
        return self.payload.shrunk

    @property
    def high_water(self) -> HighWater:
        """What the data sets took of this process's memory."""
        return self.payload.high_water

    def kept(self, numbers: Iterable[int]) -> tuple[Kept, ...]:
        """How partitions are kept; see `ReductionPayload`."""
        return self.payload.kept(numbers)

    def prepare(self, partition: int, room: Room) -> Prepared:
        """Prepare one partition."""
        return self.payload.prepare(partition, room)

    def evaluate(
        self,
        request: bytes,
        prepared: Sequence[Prepared],
        pool: Executor,
        cancelled: Callable[[], bool],
    ) -> list[bytes]:
        """One record per prepared partition, in order."""
        mode, frontiers = decode_request(request)
        sums = self.payload.evaluate(mode, frontiers, prepared, pool.map, cancelled)
        return [encode_record(each) for each in sums]

    def in_memory(self, prepared: Sequence[Prepared]) -> bool:
        """Whether evaluating them waits for no disk and no other process."""
        return all(isinstance(item.partition, ResidentPartition) for item in prepared)


class RemoteSession:
    """A session on a cluster for which the client has to find bytes."""

    def __init__(self, session: ClusterSession) -> None:
        self._session = session

    def evaluate(
        self, mode: Mode, frontiers: Sequence[Array], effort: float
    ) -> list[list[Accumulator]]:
        """See `laddu_dask.runtime.local.Session`."""
        records = self._session.evaluate(encode_request(mode, frontiers), effort)
        return [decode_record(record) for _, record in sorted(records.items())]

    def worker_info(self) -> tuple[WorkerInfo, ...]:
        """Memory and threads of every worker."""
        return self._session.worker_info()

    def close(self) -> None:
        """Release everything."""
        self._session.close()
