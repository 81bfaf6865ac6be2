"""Standard input, output and error of a command, which may be closed, full, or a pipe whose reader has gone.

Called by the command line and the sandbox before they do anything. What cannot be printed changes nothing of what a command does, nor of
its exit status: a run whose table nobody read is still a run. Must stay free of heavy imports.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Lossy(io.FileIO):
    """A file descriptor that drops what it cannot write, and says so once. A reader that has gone, as of ``| head -1``, is no failure."""

    lost: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        if self.lost is None:
            try:
                return super().write(data) or 0
            except OSError as error:
                self.lost = error
                if error.errno != errno.EPIPE and self.fileno() != 2:
                    line = f"standard output cannot be written ({error.strerror}): results are in their files all the same"
                    print(f"mrcbed: {line}", file=sys.stderr)
        return memoryview(data).nbytes


def take_standard_streams() -> None:
    """Make all three safe to use. A second call changes nothing.

    Where one was closed, as services and CI may start us, /dev/null takes its number: otherwise the next file opened gets it, and
    whoever starts a program hands it on or closes it as the program's own.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stderr = _lossy(sys.stderr, 2)
    sys.stdout = _lossy(sys.stdout, 1)


def _lossy(stream: Any, fd: int) -> TextIO:
    """``stream`` itself if it is one of these already, or somebody else's (a test's)."""
    if stream is not None:
        if stream not in (sys.__stdout__, sys.__stderr__):
            return cast(TextIO, stream)
        stream.flush()
    raw = _Lossy(fd, "w", closefd=False)
    terminal = raw.isatty()
    encoding = None if stream is None else stream.encoding
    errors = "backslashreplace" if fd == 2 else None if stream is None else stream.errors
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=terminal or fd == 2, write_through=fd == 2)


def reader_gone() -> bool:
    """Whether nobody reads standard output any more: a command that prints without end should end then."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(raw, _Lossy) and raw.lost is not None
