"""The one exception that people see: a single line with what is wrong, where, and the fix.
:func:`explain` makes any other exception such a line, too."""

from __future__ import annotations

import errno
import os
import resource

FIXES = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or have the quota raised",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "make it writable, or give another --out",
    errno.EACCES: "make it writable, or give another --out",
    errno.EPERM: "make it writable, or give another --out",
    errno.EIO: "see what the kernel's log says of that disk",
    errno.ENOTDIR: "a part of that path is no folder: name another place",
    errno.EISDIR: "it is a folder: name another place",
    errno.ELOOP: "it is a link that leads to itself: name another place",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close other programs, the whole machine is out of open files",
    errno.ENOMEM: "free memory, or raise the limit (ulimit -v)",
    errno.EAGAIN: (
        "no more processes or threads may start here: raise the limit (ulimit -u, or pids.max of "
        "the cgroup)"
    ),
}
PLACES = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ELOOP,
    errno.ENXIO,
    errno.ENODEV,
    errno.ENOTEMPTY,
    errno.EINVAL,
)
LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
_NO_MEMORY = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")
"""ENOMEM without MemoryError, in the words of Python, its importer and libraries."""
_NO_THREAD = "can't start new thread"
"""EAGAIN of pthread_create(3): no more threads, or no memory for a stack."""


class UserError(Exception):
    """Bad input, or something that the machine lacks. The message is one line that ends in the
    fix."""

    status = 2


class ClusterDied(UserError):
    """A process that the cluster needs has died. One line: which, how, and what to do."""

    status = 1  # neither the input's fault nor the machine's


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


def internal(error: BaseException) -> str:
    return (
        f"internal error (please report): {type(error).__name__}: {first_line(error)} "
        "(MRCBED_DEBUG=1 shows the traceback)"
    )


class Interrupted(KeyboardInterrupt):
    """The user stopped a run. One line: what was kept, and how to go on."""


def refusal(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno in FIXES:
        return error.errno
    if _NO_THREAD in str(error):
        return (
            errno.EAGAIN
            if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
            else errno.ENOMEM
        )
    if isinstance(error, MemoryError) or any(text in str(error) for text in _NO_MEMORY):
        return errno.ENOMEM
    return None


def advised(reason: str) -> str:
    """Add advice to another process's last words, if the machine refused it something."""
    number = (
        errno.EAGAIN
        if _NO_THREAD in reason
        else next((n for n in LIMITS if os.strerror(n) in reason), None)
    )
    return reason if number is None else f"{reason}: {FIXES[number]}"


def explain(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return (str(error) if isinstance(error, Interrupted) else "interrupted"), 130
    if isinstance(error, UserError):
        return str(error), error.status
    if hasattr(error, "exit_status"):  # FabricError, whose room is not imported for --help
        return str(error), error.exit_status
    number = refusal(error)
    if number is not None:
        location = (
            f"{error.filename}: "
            if isinstance(error, OSError) and error.filename is not None
            else ""
        )
        return f"{location}{os.strerror(number)}: {FIXES[number]}", UserError.status
    if isinstance(error, OSError) and error.filename is not None and error.errno in PLACES:
        return f"{error.filename}: {os.strerror(error.errno)}: give another place", UserError.status
    return internal(error), 70
