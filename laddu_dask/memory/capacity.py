"""What the machine has: host memory under its control-group limits, and what this process uses.

Inside a container or a batch job the operating system still reports the whole machine; the limit
that kills is the control group's. Both versions of control groups are read, from the process's own
group up to the root of the mount, since every ancestor may be the tightest. File formats: Linux
`Documentation/admin-guide/cgroup-v1/memory.rst` and `cgroup-v2.rst`, `proc(5)`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from laddu_dask.errors import MemoryBudgetError

_PROC: Final = Path("/proc")


@dataclass(frozen=True)
class HostMemory:
    """Memory of this machine in bytes as this process may use it; `None` where unknown.

    Attributes
    ----------
    total
        The least of the physical memory and of all control-group limits.
    available
        What can still be allocated without swapping or meeting a limit; never above `total`.
    """

    total: int | None
    available: int | None


class _GroupFiles(NamedTuple):
    """Names under which one version of control groups publishes its numbers."""

    limit: str
    usage: str
    reclaimable: str  # page cache the kernel drops before it kills; counted inside the usage


_V1: Final = _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2: Final = _GroupFiles("memory.max", "memory.current", "inactive_file")


def host_memory(proc: Path = _PROC, root: Path = Path("/")) -> HostMemory:
    """Measure the host memory: the least of the operating system's and the control groups' word.

    Parameters
    ----------
    proc, root
        Where the process file system and the tree holding the control-group mounts are found;
        other values serve tests.
    """
    meminfo = _sizes_in_kib(proc / "meminfo")
    totals = [meminfo["MemTotal"]] if "MemTotal" in meminfo else _pages("SC_PHYS_PAGES")
    free = [meminfo["MemAvailable"]] if "MemAvailable" in meminfo else _pages("SC_AVPHYS_PAGES")
    for limit, usage in _group_limits(proc, root):
        totals.append(limit)
        free.append(max(limit - usage, 0))
    total = min(totals, default=None)
    available = min((*free, *totals)) if free else None
    return HostMemory(total, available)


def resident_bytes() -> int:
    """Return the bytes of physical memory that this process holds now.

    Where the system does not publish the current value (outside Linux) this is the peak, an upper
    bound of it.
    """
    status = _sizes_in_kib(_PROC / "self" / "status")
    return status["VmRSS"] if "VmRSS" in status else peak_resident_bytes()


def peak_resident_bytes(*, since_reset: bool = False) -> int:
    """Return the most bytes of physical memory that this process has held so far.

    Parameters
    ----------
    since_reset
        Only since the last `reset_peak` that did something.

    Raises
    ------
    MemoryBudgetError
        On systems that publish neither `/proc` nor `getrusage` (Windows).
    """
    now = _published_peak()
    return now if since_reset else max(now, _peak_before)


_peak_before = 0
"""The most that was seen before the kernel was told to begin anew."""


def reset_peak(clear_refs: Path = _PROC / "self" / "clear_refs") -> bool:
    """Let the kernel's highest value begin anew at the present one; whether it can.

    `peak_resident_bytes()` remembers what it was.
    """
    global _peak_before
    before = _published_peak()
    try:
        clear_refs.write_text("5", encoding="ascii")
    except OSError:
        return False
    _peak_before = max(_peak_before, before)
    return True


def _published_peak() -> int:
    # VmHWM first: getrusage's figure survives exec, so a child begins with its parent's peak.
    status = _sizes_in_kib(_PROC / "self" / "status")
    if "VmHWM" in status:
        return status["VmHWM"]
    try:
        import resource
    except ImportError as error:
        raise MemoryBudgetError(
            "the memory used by this process cannot be read on this system, which has neither "
            "/proc nor getrusage; run on Linux or macOS to measure it",
            resource="host",
            requested=None,
            remaining=None,
        ) from error
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, everyone else KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _pages(name: str) -> list[int]:
    """Return `[bytes]` of a POSIX page count, or `[]` where the system has no such number."""
    names: dict[str, int] = getattr(os, "sysconf_names", {})
    if name not in names or "SC_PAGE_SIZE" not in names:
        return []
    count = os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
    return [count] if count > 0 else []


def _sizes_in_kib(path: Path) -> dict[str, int]:
    """Read a `Name:  123 kB` file into bytes; empty where the file does not exist."""
    sizes = {}
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == "kB":
            sizes[words[0].rstrip(":")] = int(words[1]) * 1024
    return sizes


def _group_limits(proc: Path, root: Path) -> Iterator[tuple[int, int]]:
    """Yield `(limit, bytes in use that cannot be reclaimed)` of every limited group we are in."""
    for group, mount in _group_folders(proc):
        files = _V2 if mount.version2 else _V1
        # A group outside the mounted part (another namespace's) is seen as the mount itself.
        inside = group.is_relative_to(mount.shown) and ".." not in group.parts
        below = group.relative_to(mount.shown) if inside else PurePosixPath()
        for part in (below, *below.parents) if below.parts else (below,):
            folder = root / str(mount.point / part).lstrip("/")
            limit, usage = _text(folder / files.limit), _text(folder / files.usage)
            if limit.isdigit() and usage.isdigit():  # version 2 writes "max" for no limit
                yield int(limit), max(int(usage) - _reclaimable(folder, files.reclaimable), 0)


class _Mount(NamedTuple):
    version2: bool
    shown: PurePosixPath  # which group appears at the mount point
    point: PurePosixPath


def _group_folders(proc: Path) -> Iterator[tuple[PurePosixPath, _Mount]]:
    """Pair this process's memory groups with the mounts that show them."""
    groups: dict[bool, PurePosixPath] = {}
    for line in _text(proc / "self" / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or "memory" in controllers.split(","):
            groups[number == "0"] = PurePosixPath(path)
    for line in _text(proc / "self" / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        version2 = kind == "cgroup2"
        if version2 or (kind == "cgroup" and "memory" in options.split(",")):
            words = before.split(" ")
            if version2 in groups:
                shown, point = PurePosixPath(words[3]), PurePosixPath(words[4])
                yield groups[version2], _Mount(version2, shown, point)


def _reclaimable(folder: Path, name: str) -> int:
    for line in _text(folder / "memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _text(path: Path) -> str:
    """Read a small system file; a missing or forbidden one says nothing, which is not an error."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
