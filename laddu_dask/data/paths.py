"""From what a user calls "the data" to the list of files that hold it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

from laddu_dask.errors import DataError

__all__ = ["PathLike", "find_files", "short_names"]

PathLike = str | os.PathLike[str]

_LISTED = 5


def find_files(source: PathLike | Iterable[PathLike], kind: str = "Parquet") -> tuple[str, ...]:
    """Absolute paths of the files that `source` means.

    Parameters
    ----------
    source
        A file; a directory, meaning every ``*.parquet`` below it; a glob pattern (``**`` crosses
        directories); or a list of these. Directories and globs come out sorted, a list keeps its
        order. As in a shell, names that begin with a dot are found only when written out.
    kind
        What the files are called; in lower case, how their names end in a directory.

    Raises
    ------
    DataError
        If something does not exist, a pattern or directory holds no file, or one file is meant
        twice (also through a link), since its events would count twice.
    """
    entries = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not entries:
        raise DataError(f"the list of files is empty; name at least one {kind} file")
    files = [path for entry in entries for path in _files_of(os.fspath(entry), kind)]
    seen: dict[str, str] = {}
    for path in files:
        real = os.path.realpath(path)
        if real in seen:
            other = seen[real]
            alias = f" (as {other})" if other != path else ""
            raise DataError(
                f"{path} is listed twice{alias}; its events would be counted twice. "
                "List every file once.",
                file=path,
            )
        seen[real] = path
    return tuple(files)


def short_names(files: tuple[str, ...]) -> tuple[str, ...]:
    """What to call each file in messages: its bare name if no other has it, else its path."""
    counts: dict[str, int] = {}
    for path in files:
        name = os.path.basename(path)
        counts[name] = counts.get(name, 0) + 1
    return tuple(
        os.path.basename(path) if counts[os.path.basename(path)] == 1 else path for path in files
    )


def _files_of(entry: str, kind: str) -> list[str]:
    ending = f"*.{kind.lower()}"
    path = os.path.abspath(os.path.expanduser(entry))
    # A name that exists is taken literally first: run[1].parquet is also a valid pattern.
    if os.path.isdir(path):
        pattern = os.path.join(glob.escape(path), "**", ending)
        # Some writers make a directory called x.parquet; the pattern finds the files inside, too.
        files = sorted(name for name in glob.glob(pattern, recursive=True) if os.path.isfile(name))
        if not files:
            raise DataError(f"the directory {path} holds no {ending} file", file=path)
        return files
    if os.path.exists(path):
        return [path]
    if not glob.has_magic(path):
        raise DataError(
            f"there is no file or directory {path}" + _neighbours(path, kind), file=path
        )
    matches = sorted(glob.glob(path, recursive=True))
    if not matches:
        raise DataError(f"no file matches the pattern {path}", file=path)
    for match in matches:
        if os.path.isdir(match):
            raise DataError(
                f"the pattern {path} also matches the directory {match}; add /{ending} (or "
                f"/**/{ending} for all levels) to the pattern",
                file=match,
            )
    return matches


def _neighbours(path: str, kind: str) -> str:
    """The files of a kind beside a missing one, or how much of its path exists."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return f"; {folder} does not exist either"
    found = sorted(glob.glob(os.path.join(glob.escape(folder), f"*.{kind.lower()}")))
    if not found:
        return f"; its directory holds no {kind} file"
    shown = ", ".join(os.path.basename(name) for name in found[:_LISTED])
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return f"; its directory holds {shown}{more}"
