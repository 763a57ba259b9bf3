"""What a Dask worker may use: from the numbers that it reports to the sizes of its pools.

Dask compares two numbers with fractions of a worker's memory limit: the sizes of the results that
it keeps (`target`: above it moves results to disk) and the memory of the process (`spill`: it moves
results to disk; `pause`: it starts no tasks; `terminate`: the nanny kills it). None of that may
happen because of us, so what we hold, what others hold and what nobody accounts for stay together
below the lowest of the fractions that are in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from laddu_dask.memory.sizes import MAX_BYTES, format_bytes


@dataclass(frozen=True)
class WorkerLimits:
    """One worker's numbers, in bytes unless said otherwise; None where unknown or not limited.

    What is being prepared is reserved before it is allocated. So that nothing is counted twice,
    `available`, `taken` and all that is held or free are from the last moment in which nothing was
    in work; the others are from now.

    Attributes
    ----------
    memory_limit
        What Dask grants to the worker.
    fraction
        The lowest of the fractions of the limit at which Dask acts; 1 if it does not act at all.
    total, available
        Host memory under the control-group limits, all of it and what is free.
    rss
        Resident memory of the process.
    managed
        Sizes of the results that Dask keeps in the worker's memory, ours among them.
    spilled
        Bytes that Dask moved to disk.
    taken
        Resident memory that is not for us: unmanaged memory and others' results.
    held
        What leases hold already: bytes of each resource.
    disk_free
        Free bytes where the worker keeps its files.
    devices
        Free bytes of each GPU, by its identity.
    paused
        Whether Dask has stopped giving it tasks.
    """

    memory_limit: int | None = None
    fraction: float = 1.0
    total: int | None = None
    available: int | None = None
    rss: int = 0
    managed: int = 0
    spilled: int = 0
    taken: int = 0
    held: Mapping[str, int] = field(default_factory=dict)
    disk_free: int | None = None
    devices: Mapping[str, int] = field(default_factory=dict)
    paused: bool = False

    @property
    def unmanaged(self) -> int:
        """Resident memory beside Dask's results: the interpreter, libraries, what is in work."""
        return max(self.rss - self.managed, 0)

    @property
    def ceiling(self) -> int | None:
        """Bytes that the process may have without Dask acting; None without a limit."""
        return None if self.memory_limit is None else int(self.fraction * self.memory_limit)

    def capacity(self, neighbours: int = 1) -> dict[str, int]:
        """Sizes of the worker's pools.

        Parameters
        ----------
        neighbours
            Workers on the same machine, itself included, which share what is free there.

        Returns
        -------
        dict
            "host", "disk" and "device:..." with what leases may hold altogether, those included
            that are held now.
        """
        limits = []
        if self.ceiling is not None:
            limits.append(self.ceiling - self.taken)
        if self.available is not None:
            limits.append(self._held("host") + self.available // neighbours)
        pools = {"host": max(min(limits, default=MAX_BYTES), 0)}
        pools["disk"] = self._held("disk") + (self.disk_free or 0) // neighbours
        for device, free in self.devices.items():
            pools[f"device:{device}"] = self._held(f"device:{device}") + free // neighbours
        return pools

    def _held(self, resource: str) -> int:
        return self.held.get(resource, 0)

    def at_rest(self, calm: WorkerLimits) -> WorkerLimits:
        """These numbers, with what is counted when nothing is in work taken from `calm`."""
        return replace(
            self,
            available=calm.available,
            taken=calm.taken,
            held=calm.held,
            disk_free=calm.disk_free,
            devices=calm.devices,
        )

    def describe(self) -> str:
        """The numbers in words, for errors and reports."""
        limit = "no limit" if self.memory_limit is None else format_bytes(self.memory_limit)
        told = (
            f"memory limit {limit}, of which Dask leaves {100 * self.fraction:.0f} %; "
            f"{format_bytes(self.rss)} resident, {format_bytes(self.managed)} of it results, "
            f"{format_bytes(self.unmanaged)} unmanaged"
        )
        if self.spilled:
            told += f"; {format_bytes(self.spilled)} spilled by Dask"
        return told + "; paused by Dask" * self.paused

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> WorkerLimits:
        """Inverse of `to_dict`; what another version may have added is left out."""
        known = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in told.items() if name in known})


def lowest_fraction(*fractions: float | bool | None) -> float:
    """The lowest of Dask's fractions that is in force; `False` and `None` switch one off."""
    return min((float(f) for f in fractions if f is not False and f is not None), default=1.0)
