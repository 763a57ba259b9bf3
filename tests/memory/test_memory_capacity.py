"""What the machine has, under control groups of both versions, and what this process uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from laddu_dask.memory import HostMemory, capacity, host_memory, peak_resident_bytes, resident_bytes

GIB = 2**30


def machine(folder: Path, files: dict[str, str]) -> HostMemory:
    """Lay out a false `/proc` and `/sys` and measure it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return host_memory(proc=folder / "proc", root=folder)


MEMINFO = {"proc/meminfo": f"MemTotal: {8 * 2**20} kB\nMemFree: 1 kB\nMemAvailable: {2**22} kB\n"}
V1 = {
    "proc/self/cgroup": "4:cpu,memory:/job/step\n1:cpuset:/\n0::/elsewhere\n",
    "proc/self/mountinfo": (
        "30 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "35 30 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,cpu,memory\n"
    ),
}
V2 = {
    "proc/self/cgroup": "0::/job/step\n",
    "proc/self/mountinfo": "35 30 0:32 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n",
}


def test_without_control_groups_the_system_decides(tmp_path: Path) -> None:
    """ME-08."""
    assert machine(tmp_path, MEMINFO) == HostMemory(8 * GIB, 4 * GIB)


def test_version_1_limit(tmp_path: Path) -> None:
    """ME-08: an ancestor's limit binds; reclaimable cache counts as available."""
    job = "sys/fs/cgroup/memory/job"
    found = machine(
        tmp_path,
        MEMINFO
        | V1
        | {
            f"{job}/step/memory.limit_in_bytes": "9223372036854771712\n",
            f"{job}/step/memory.usage_in_bytes": f"{GIB}\n",
            f"{job}/memory.limit_in_bytes": f"{3 * GIB}\n",
            f"{job}/memory.usage_in_bytes": f"{2 * GIB}\n",
            f"{job}/memory.stat": f"inactive_file 7\ntotal_inactive_file {GIB // 2}\n",
        },
    )
    assert found == HostMemory(3 * GIB, 3 * GIB // 2)


def test_version_2_limit(tmp_path: Path) -> None:
    """ME-08: the group's own limit, "max" above it."""
    found = machine(
        tmp_path,
        MEMINFO
        | V2
        | {
            "sys/fs/cgroup/job/step/memory.max": f"{2 * GIB}\n",
            "sys/fs/cgroup/job/step/memory.current": f"{GIB}\n",
            "sys/fs/cgroup/job/step/memory.stat": f"file 1\ninactive_file {GIB // 4}\n",
            "sys/fs/cgroup/job/memory.max": "max\n",
            "sys/fs/cgroup/job/memory.current": f"{GIB}\n",
        },
    )
    assert found == HostMemory(2 * GIB, 5 * GIB // 4)


@pytest.mark.parametrize("group", ["/docker/abc/inner", "/../other", "/unrelated"])
def test_container_sees_its_group_at_the_mount_point(tmp_path: Path, group: str) -> None:
    """ME-08: the mount shows only a part of the tree, or we are outside of it."""
    mounts = "35 30 0:32 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
    found = machine(
        tmp_path,
        MEMINFO
        | {
            "proc/self/cgroup": f"0::{group}\n",
            "proc/self/mountinfo": mounts,
            "sys/fs/cgroup/memory.max": f"{GIB}\n",
            "sys/fs/cgroup/memory.current": f"{2 * GIB}\n",
        },
    )
    assert found == HostMemory(GIB, 0)


def test_available_never_exceeds_total(tmp_path: Path) -> None:
    """ME-07."""
    text = "MemTotal: 10 kB\nMemAvailable: 20 kB\n"
    assert machine(tmp_path, {"proc/meminfo": text}) == HostMemory(10240, 10240)


def test_portable_fallback(tmp_path: Path) -> None:
    """ME-08: without /proc the POSIX page counts serve."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = host_memory(proc=tmp_path, root=tmp_path)
    assert found.total == total
    assert found.available is not None
    assert 0 < found.available <= total


def test_nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ME-01: a system without page counts gives unknowns, not zeros."""
    monkeypatch.setattr(os, "sysconf_names", {})
    assert host_memory(proc=tmp_path, root=tmp_path) == HostMemory(None, None)


def test_this_machine() -> None:
    """ME-08: never more than the operating system has."""
    found = host_memory()
    assert found.total is not None
    assert found.available is not None
    assert 0 < found.available <= found.total <= psutil.virtual_memory().total


def test_resident_bytes_follow_an_allocation() -> None:
    """MD-05: current and peak bytes of a process that takes 64 MiB and returns them."""
    code = (
        "from laddu_dask.memory import peak_resident_bytes, resident_bytes\n"
        "before = resident_bytes(); block = bytearray(2**26); block[::4096] = b'x' * 2**14\n"
        "during = resident_bytes(); del block\n"
        "print(before, during, resident_bytes(), peak_resident_bytes())\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, during, after, peak = map(int, run.stdout.split())
    slack = 2**21  # kernel counters lag by a few pages per thread
    assert during - before >= 2**26 - slack
    assert peak >= during - slack
    assert after <= during - 2**26 + slack


def test_resident_bytes_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MD-05: elsewhere the peak of getrusage bounds both numbers."""
    now = resident_bytes()
    monkeypatch.setattr(capacity, "_PROC", tmp_path)
    assert peak_resident_bytes() >= now - 2**21
    assert resident_bytes() == peak_resident_bytes()
