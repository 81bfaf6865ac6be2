"""Writes result files whole or not at all, with a one-line error if they cannot be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.errors import FIXES, LIMITS, ClusterDied, UserError, refusal

ROOM = 1 << 16
"""A disk with less free space, in bytes, counts as full: agents write so much at a time [ours]."""


class Unwritable(UserError):
    """Results cannot be written. The message is one line: where, why, what to do."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file that then replaces ``path``. An interruption leaves ``path`` as it was."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def check_writable(directory: Path) -> None:
    if not os.access(directory, os.W_OK | os.X_OK):
        raise Unwritable(f"--out {directory}: nothing can be written there: {FIXES[errno.EROFS]}")


def is_full(directory: Path) -> bool:
    try:
        filesystem = os.statvfs(directory)
    except OSError:
        return False
    return filesystem.f_bavail * filesystem.f_frsize < ROOM


@contextmanager
def written_to(directory: Path) -> Iterator[None]:
    """Raise :class:`Unwritable` if the machine refuses disk space, memory or files, also if an
    agent died for this reason."""
    try:
        yield
    except ClusterDied as error:
        if not is_full(directory):
            raise
        raise Unwritable(_line(directory, errno.ENOSPC)) from error
    except Exception as error:
        number = refusal(error)
        if number is None or _of_another_file(error, directory):
            raise
        raise Unwritable(_line(directory, number)) from error


def _of_another_file(error: Exception, directory: Path) -> bool:
    filename = error.filename if isinstance(error, OSError) else None
    return isinstance(filename, (str, Path)) and directory.resolve() not in (
        Path(filename).resolve(),
        *Path(filename).resolve().parents,
    )


def _line(directory: Path, number: int) -> str:
    advice = f"what was finished is kept, --resume --out {directory} goes on with it"
    problem = "the run cannot go on" if number in LIMITS else "cannot write results"
    return f"{directory}: {problem} ({os.strerror(number)}): {FIXES[number]}; {advice}"
