"""Memory: budgets, what the machine has, leases on it, and the planner. Pure Python, no Dask.

A budget (`MemoryBudget`, `MemoryPlan`) becomes bytes on a machine (`host_memory`), bytes are
reserved on pools (`PhysicalMemory`, `LeasePool`, `Lease`), and the planner (`plan_datasets`)
decides from sizes alone how each data set is kept and cut (`Decision`, `MemoryReport`).
"""

from laddu_dask.memory.budget import MemoryBudget, MemoryPlan
from laddu_dask.memory.capacity import (
    HostMemory,
    host_memory,
    peak_resident_bytes,
    resident_bytes,
)
from laddu_dask.memory.decision import Decision, MemoryReport, Storage
from laddu_dask.memory.footprint import Fit, Footprint, fit_chunk, fit_resident
from laddu_dask.memory.high_water import HighWater
from laddu_dask.memory.lease import Lease, LeasePool, PhysicalMemory, PoolReport
from laddu_dask.memory.planner import DatasetRequest, Policy, plan_dataset, plan_datasets
from laddu_dask.memory.process_plan import Measured, ProcessPlan
from laddu_dask.memory.residency import resident_cache_plan
from laddu_dask.memory.room import Hold, LocalRoom, Room, Tier
from laddu_dask.memory.sizes import MAX_BYTES, format_bytes

__all__ = [
    "MAX_BYTES",
    "DatasetRequest",
    "Decision",
    "Fit",
    "Footprint",
    "HighWater",
    "Hold",
    "HostMemory",
    "Lease",
    "LeasePool",
    "LocalRoom",
    "Measured",
    "MemoryBudget",
    "MemoryPlan",
    "MemoryReport",
    "PhysicalMemory",
    "Policy",
    "PoolReport",
    "ProcessPlan",
    "Room",
    "Storage",
    "Tier",
    "fit_chunk",
    "fit_resident",
    "format_bytes",
    "host_memory",
    "peak_resident_bytes",
    "plan_dataset",
    "plan_datasets",
    "resident_bytes",
    "resident_cache_plan",
]
