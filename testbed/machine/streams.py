"""Standard input, output and error of a command, which may be closed, full, or a pipe whose reader has gone.

Called by the command line and the sandbox before they do anything. Output that cannot be printed changes neither what a command does nor
its exit status: a run whose table nobody reads is still a run. Must stay free of heavy imports.
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
                if error.errno != errno.EPIPE:
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
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    sys.stdout = _lossy(sys.stdout)


def _lossy(stream: Any) -> TextIO:
    """Standard output as it should be; ``stream`` itself if it is that already, or somebody else's (a test's)."""
    if stream is not None:
        if stream is not sys.__stdout__:
            return cast(TextIO, stream)
        cast(TextIO, stream).flush()
    raw = _Lossy(1, "w", closefd=False)
    encoding, errors = (None, None) if stream is None else (stream.encoding, stream.errors)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=raw.isatty())


def reader_gone() -> bool:
    """Whether nobody reads standard output any more: a command that prints without end should end then."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(raw, _Lossy) and raw.lost is not None
