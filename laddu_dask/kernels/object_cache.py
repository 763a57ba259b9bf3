"""Machine code on disk, so that a model is compiled once per machine and not once per process.

Entries are files named by the digest of what they were made from. Writers never see each other:
each writes a file of its own and renames it, and whoever comes last has written the same. A file
that was truncated or changed is not loaded but made again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from laddu_dask.errors import ExecutionError

logger = logging.getLogger(__name__)

#: Folder of the cache; empty: nothing is kept on disk.
FOLDER_VARIABLE = "LADDU_DASK_CACHE_DIR"
#: Most bytes and entries to keep; the least recently used go first.
BYTES_VARIABLE = "LADDU_DASK_CACHE_BYTES"
ENTRIES_VARIABLE = "LADDU_DASK_CACHE_ENTRIES"
DEFAULT_BYTES = 256 * 2**20
DEFAULT_ENTRIES = 10_000

_SUFFIX = ".kernel"
_MAGIC = b"laddu-dask kernel 1\n"
_DIGEST_BYTES = 32


@dataclass
class ObjectCache:
    """Object code by key.

    Attributes
    ----------
    folder
        Where the entries are; None keeps nothing.
    most_bytes, most_entries
        Limits.
    hits, misses, rejected, evicted
        What happened in this process; `rejected` counts damaged entries.
    """

    folder: Path | None
    most_bytes: int = DEFAULT_BYTES
    most_entries: int = DEFAULT_ENTRIES
    hits: int = 0
    misses: int = 0
    rejected: int = 0
    evicted: int = 0
    _bytes: int | None = field(default=None, repr=False)
    _count: int = field(default=0, repr=False)

    def get(self, key: str) -> bytes | None:
        """The code, or None if there is none that can be trusted."""
        path = self._path(key)
        if path is None:
            return None
        try:
            content = path.read_bytes()
        except OSError:
            self.misses += 1
            return None
        head = len(_MAGIC) + _DIGEST_BYTES
        code = content[head:]
        if content[:head] != _MAGIC + _digest(key, code):
            self.rejected += 1
            logger.warning("kernel cache: %s is damaged and will be made again", path)
            return None
        self.hits += 1
        with contextlib.suppress(OSError):
            os.utime(path)
        return code

    def put(self, key: str, code: bytes) -> None:
        """Keep code; what cannot be written is not kept."""
        path = self._path(key)
        if path is None:
            return
        content = _MAGIC + _digest(key, code) + code
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(path.parent):  # somebody was faster to make it
                raise PermissionError("it can be written by others")
            _write_whole(path, content)
            self._limit(path, len(content))
        except OSError as error:
            logger.warning("kernel cache: nothing more is kept in %s: %s", path.parent, error)
            self.folder = None

    def _path(self, key: str) -> Path | None:
        folder = self.folder  # another thread may give it up
        if folder is None:
            return None
        return folder / (hashlib.blake2b(key.encode(), digest_size=20).hexdigest() + _SUFFIX)

    def _limit(self, newest: Path, size: int) -> None:
        """Remove what was used least recently, down to three quarters of the limits."""
        if self._bytes is not None:
            self._bytes, self._count = self._bytes + size, self._count + 1
            if self._bytes <= self.most_bytes and self._count <= self.most_entries:
                return
        entries = []
        for path in newest.parent.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(OSError):  # another process may have removed it
                status = path.stat()
                entries.append((path == newest, status.st_mtime_ns, status.st_size, path))
        entries.sort(reverse=True)
        total = kept = 0
        over = (
            len(entries) > self.most_entries or sum(entry[2] for entry in entries) > self.most_bytes
        )
        share = 0.75 if over else 1.0
        for _, _, size_, path in entries:
            full = kept and (
                kept + 1 > share * self.most_entries or total + size_ > share * self.most_bytes
            )
            if full:
                with contextlib.suppress(OSError):
                    path.unlink()
                    self.evicted += 1
            else:
                total, kept = total + size_, kept + 1
        self._bytes, self._count = total, kept


def _digest(key: str, code: bytes) -> bytes:
    """Of key and code: a file under a wrong name is as bad as a wrong file."""
    state = hashlib.blake2b(key.encode(), digest_size=_DIGEST_BYTES)
    state.update(code)
    return state.digest()


def _write_whole(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise ExecutionError(
            f"{variable}={text!r} is not a positive integer; correct or unset it", option=variable
        )
    return int(text)


def _is_private(folder: Path) -> bool:
    """Whether nobody else can put code there that this process would run."""
    try:
        status = folder.stat()
    except OSError:
        return True  # it will be made
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid == os.geteuid() and not status.st_mode & others


def _default_folder() -> Path | None:
    text = os.environ.get(FOLDER_VARIABLE)
    if text is not None:
        # Absolute, since a process may change its folder and end up where others can write.
        return Path(text).expanduser().absolute() if text else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(base).absolute() if base else Path.home() / ".cache"
        return root / "laddu-dask" / "kernels"
    except RuntimeError:  # a user without a home
        return None


@functools.cache
def default_cache() -> ObjectCache:
    """The cache that the environment asks for.

    Raises
    ------
    ExecutionError
        A limit in the environment is not a positive integer.
    """
    folder = _default_folder()
    if folder is not None and not _is_private(folder):
        logger.warning(
            "kernel cache: %s can be written by others, so code in it is not trusted; "
            "chmod go-w it, or set %s",
            folder,
            FOLDER_VARIABLE,
        )
        folder = None
    return ObjectCache(
        folder,
        _number(BYTES_VARIABLE, DEFAULT_BYTES),
        _number(ENTRIES_VARIABLE, DEFAULT_ENTRIES),
    )
