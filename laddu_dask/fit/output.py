"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from laddu_dask.errors import OutputError


def refuse_existing(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return `path`, or raise when a file must not be written there.

    Raises
    ------
    OutputError
        When it exists and `overwrite` is False, when it is a folder, or when its folder is missing.
    """
    target = Path(path)
    if target.is_dir():
        raise OutputError(f"cannot write {target}: it is a folder", file=str(target))
    if not target.parent.is_dir():
        raise OutputError(
            f"cannot write {target}: the folder {target.parent} does not exist; create it first",
            file=str(target),
        )
    if target.exists() and not overwrite:
        raise OutputError(
            f"{target} exists and is left as it is; choose another name or pass overwrite=True",
            file=str(target),
        )
    return target


def write_whole(path: str | os.PathLike[str], content: bytes, *, overwrite: bool = False) -> Path:
    """Write `content` to `path` so that no reader ever sees half of it.

    The bytes go to a hidden file in the same folder, are forced to disk, and take the name in one
    step.

    Raises
    ------
    OutputError
        As `refuse_existing`, or when the system refuses to write; nothing is left behind.
    """
    target = refuse_existing(path, overwrite=overwrite)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise OutputError(f"cannot write {target}: {error}", file=str(target)) from error
    return target
