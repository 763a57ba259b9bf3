"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from laddu_dask.errors import OutputError

# What file systems without hard links say when asked for one.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def refuse_existing(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return `path`, or raise when a file must not be written there.

    Raises
    ------
    OutputError
        When it exists and `overwrite` is False, when it is anything else than a file (a folder, a
        device, a pipe, a socket, a link to nowhere), or when its folder is missing.
    """
    _destination(path, overwrite=overwrite)
    return Path(path)


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Create a folder with those above it, unless it exists, and see that files can be made there.

    Raises
    ------
    OutputError
        When that is impossible.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write into the folder {folder}: {_reason(error)}; choose another one where "
            "you may create files",
            file=str(folder),
        ) from error
    return folder


def write_whole(path: str | os.PathLike[str], content: bytes, *, overwrite: bool = False) -> Path:
    """Write `content` to `path` so that no reader ever sees half of it.

    The bytes go to a hidden file in the same folder, are forced to disk, and take the name in one
    step. A link is followed: it stays, and the file that it points to is written.

    Raises
    ------
    OutputError
        As `refuse_existing`, also when the file comes into being meanwhile, or when the system
        refuses to write; nothing is left behind.
    """
    write_together({Path(path): content}, overwrite=overwrite)
    return Path(path)


def write_together(files: Mapping[Path, bytes], *, overwrite: bool = False) -> None:
    """Write several files, each whole, all of them or none.

    Names are given only when all contents are on disk. Should the system refuse a name even then,
    those given before are taken back; a file that was there before stays replaced.

    Raises
    ------
    OutputError
        As `write_whole`.
    """
    drafts: list[tuple[Path, Path, Path]] = []
    new: list[Path] = []
    try:
        for path, content in files.items():
            target = _destination(path, overwrite=overwrite)
            draft = target.with_name(f".laddu-{uuid.uuid4().hex}.part")
            drafts.append((path, target, draft))
            with _named_in_errors(path), draft.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        for path, target, draft in drafts:
            existed = target.exists()
            with _named_in_errors(path):
                _give_name(draft, target, overwrite=overwrite)
            if not existed:
                new.append(target)
    except BaseException:
        for target in new:
            with contextlib.suppress(OSError):
                target.unlink()
        raise
    finally:
        for _, _, draft in drafts:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


def _give_name(draft: Path, target: Path, *, overwrite: bool) -> None:
    """Let a finished draft become `target`; without `overwrite` only if there is none."""
    if overwrite:
        os.replace(draft, target)
        return
    try:
        # Unlike renaming, linking fails where something exists, in one step.
        os.link(draft, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # The next best: whoever creates the empty file owns the name.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.replace(draft, target)


@contextlib.contextmanager
def _named_in_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system into `OutputError` with the path that the user gave."""
    try:
        yield
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        raise OutputError(f"cannot write {path}: {_reason(error)}", file=str(path)) from error


def _destination(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """The file that writing to `path` creates or replaces: links are followed."""
    given = Path(path)
    try:
        target = Path(os.path.realpath(given))
        status = _status(given)
        folder = _status(target.parent)
    except (OSError, ValueError) as error:
        raise OutputError(f"cannot write {given}: {_reason(error)}", file=str(given)) from error
    if status is None and os.path.islink(given):
        raise OutputError(
            f"cannot write {given}: it is a link to {target}, which does not exist; remove the "
            "link or name the file itself",
            file=str(given),
        )
    if status is not None and not stat.S_ISREG(status.st_mode):
        kind = next((text for test, text in _KINDS if test(status.st_mode)), "not a file")
        raise OutputError(
            f"cannot write {given}: it is {kind}; choose the name of a file", file=str(given)
        )
    if folder is None or not stat.S_ISDIR(folder.st_mode):
        what = "does not exist; create it first" if folder is None else "is not a folder"
        raise OutputError(
            f"cannot write {given}: the folder {given.parent} {what}", file=str(given)
        )
    if status is not None and not overwrite:
        raise _exists(given)
    return target


def _status(path: Path) -> os.stat_result | None:
    """What `path` leads to; None when there is nothing."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _exists(path: Path) -> OutputError:
    return OutputError(
        f"{path} exists and is left as it is; choose another name or pass overwrite=True",
        file=str(path),
    )


def _reason(error: OSError | ValueError) -> str:
    """What went wrong, without the path of a draft that means nothing to the user."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
