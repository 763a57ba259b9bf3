"""Where prepared events are spilled to, and how much room is there."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

#: File systems that lie in memory: what is "spilled" to them is as resident as before.
_IN_MEMORY = ("tmpfs", "ramfs")
_MOUNTS = Path("/proc/self/mounts")


def spill_folder() -> Path:
    """The local directory of the Dask worker that this is, else the folder for temporary files."""
    if "distributed" in sys.modules:
        from distributed import get_worker

        try:
            return Path(get_worker().local_directory)
        except ValueError:
            pass  # not in a worker
    return Path(tempfile.gettempdir())


def disk_room(folder: Path) -> int:
    """Free bytes on the disk of a folder; 0 where it lies in memory."""
    return 0 if lies_in_memory(folder) else shutil.disk_usage(folder).free


def lies_in_memory(folder: Path) -> bool:
    """Whether files in a folder are kept in memory."""
    return _file_system(folder) in _IN_MEMORY


def _file_system(folder: Path) -> str:
    """Type of the file system that a folder lies on; empty where that is unknown."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    here = os.path.realpath(folder)
    longest, kind = "", ""
    for line in mounts:
        _, place, found, *_ = line.split(" ")
        root = place.replace("\\040", " ").rstrip("/")
        if (here == root or here.startswith(root + "/")) and len(root) >= len(longest):
            longest, kind = root, found
    return kind
