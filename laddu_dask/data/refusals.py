"""What to do when the system refuses to open or read a file that need not be damaged."""

from __future__ import annotations

import errno
import resource

__all__ = ["OUT_OF_FILES", "cure_of_refusal", "open_files_cure"]

OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
"""Errors that say that a process, or the whole system, has too many open files."""

_CURES = {
    errno.EIO: (
        "The disk or the network file system failed to give its bytes; try again, look for errors "
        "in the log of the system, or copy the file to another disk."
    ),
    errno.ESTALE: "The network file system lost it; mount it again and open the data set again.",
    errno.ENOMEM: "Memory is exhausted; keep less by Execution(memory=...), or use fewer threads.",
}
_FORBIDDEN = (
    "This user may not read it; change the permissions of the file and of the folders above it "
    "(chmod, chown), on every machine that reads it."
)
_CURES |= dict.fromkeys((errno.EACCES, errno.EPERM), _FORBIDDEN)


def cure_of_refusal(error: BaseException) -> str | None:
    """What to do about an error that has the number of one of the system.

    None for any other: Arrow gives what it finds wrong inside a file no number.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        return None
    if number in OUT_OF_FILES:
        return f"The file is not at fault: {open_files_cure(number)}."
    return _CURES.get(number, "The system refused to read it; the file need not be damaged.")


def open_files_cure(number: int) -> str:
    """What to do about one of `OUT_OF_FILES`, without a full stop."""
    if number == errno.ENFILE:
        return "the whole system has too many open files; close other programs"
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"this process may have {soft} open files; raise the limit (`ulimit -n`) where it is "
        "started, or use fewer partitions"
    )
