"""Files of results: whole or not at all, and one clear line when they cannot be written.

Called by whatever writes into a results directory. A disk may be full, or become read-only, at any moment of a run that took hours: what
was finished stays as it is, and the person is told what to do.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.errors import ClusterDied, UserError

FIXES = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or have the quota raised",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "make it writable, or give another --out",
    errno.EACCES: "make it writable, or give another --out",
    errno.EIO: "see what the kernel's log says of that disk",
}
"""What a person can do about each reason for which a file cannot be written."""
ROOM = 1 << 16
"""A disk with less room than this, bytes, is full: agents write so much at a time [ours]."""


class Unwritable(UserError):
    """Results cannot be written. One line: where, why, what to do."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a file to write, which then takes the place of ``path``. Whoever is stopped in the middle leaves ``path`` as it was."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def check_writable(directory: Path) -> None:
    """Before anything is built. Raises :class:`Unwritable`."""
    if not os.access(directory, os.W_OK | os.X_OK):
        raise Unwritable(f"--out {directory}: nothing can be written there: {FIXES[errno.EROFS]}")


def is_full(directory: Path) -> bool:
    """Whether its disk has no room left."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < ROOM


@contextmanager
def written_to(directory: Path) -> Iterator[None]:
    """Whatever writes results into a directory. Raises :class:`Unwritable` if that is what fails, also where an agent died of it."""
    try:
        yield
    except OSError as error:
        if error.errno not in FIXES:
            raise
        raise Unwritable(_line(directory, error.errno)) from error
    except ClusterDied as error:
        if not is_full(directory):
            raise
        raise Unwritable(_line(directory, errno.ENOSPC)) from error


def _line(directory: Path, number: int) -> str:
    goes_on = f"what was finished is kept, --resume --out {directory} goes on with it"
    return f"{directory}: cannot write results ({os.strerror(number)}): {FIXES[number]}; {goes_on}"
