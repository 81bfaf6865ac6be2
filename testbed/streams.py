"""Takes care of a command's standard streams, which may be closed, full, a pipe whose reader has
gone, or unable to show some character.

A run whose table nobody reads is still a run: output that cannot be printed changes nothing. Other
people's names, messages and files cannot steer a terminal. Must stay free of heavy imports.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PLAIN = {
    "–": "-",
    "—": "-",
    "…": "...",
    "µ": "u",
    "×": "x",
    "·": ".",
    "≈": "~",
    "≤": "<=",
    "≥": ">=",
    "−": "-",
    "→": "->",
    "█": "#",
    "░": ".",
    "▁": "_",
    "▂": ".",
    "▃": ":",
    "▄": "-",
    "▅": "=",
    "▆": "+",
    "▇": "*",
    "●": "*",
    "■": "#",
    "◂": "<",
    "±": "+-",
    "─": "-",
    "━": "-",
    "│": "|",
    "’": "'",
}
r"""Text for encodings that lack these signs. All others become an escape, like ``\u4e2d``."""
ERRORS = "mrcbed.plain"
MOST_LINE = 1 << 20
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but tab and newline (ISO 6429), Unicode's line separators and marks that turn
the direction of writing (UAX 9), and lone surrogates, which stand for bytes that are no text (PEP
383)."""


def printable(text: str, line: bool = False) -> str:
    r"""Characters that would steer a terminal become an escape, like ``\x1b``. ``line``: newlines
    too."""
    if not _STEERING.search(text) and not (line and "\n" in text):
        return text
    text = _STEERING.sub(lambda found: _escape(found[0]), text)
    return text.replace("\n", r"\n") if line else text


def _escape(char: str) -> str:
    code = ord(char)
    return (
        f"\\x{code - 0xDC00:02x}"
        if 0xDC80 <= code <= 0xDCFF
        else char.encode("unicode_escape").decode()
    )


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(
        PLAIN.get(char) or _escape(char) for char in error.object[error.start : error.end]
    ), error.end


codecs.register_error(ERRORS, _plain)


class _Lossy(io.FileIO):
    """A file descriptor that drops what it cannot write, and says so once. A reader that has gone,
    as of ``| head -1``, is no failure."""

    lost: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        if self.lost is None:
            try:
                return super().write(data) or 0
            except OSError as error:
                self.lost = error
                if error.errno != errno.EPIPE and self.fileno() != 2:
                    line = (
                        f"standard output cannot be written ({error.strerror}): results are in "
                        "their files all the same"
                    )
                    print(f"mrcbed: {line}", file=sys.stderr)
        return memoryview(data).nbytes


class _Text(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        super().write(printable(text))
        return len(text)


class _Verbatim:
    def __init__(self, stream: _Text) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return io.TextIOWrapper.write(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Cutter:
    """Cuts text into lines. The end of a line longer than ``MOST_LINE`` is counted, not kept."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def lines(self, text: str) -> list[str]:
        *ends, rest = text.split("\n")
        found = []
        for part in ends:
            self._add(part)
            found += self.end() or [""]
        self._add(rest)
        return found

    def _add(self, part: str) -> None:
        if part and self._size < MOST_LINE:
            self._parts.append(part[: MOST_LINE - self._size])
        self._size += len(part)

    def end(self) -> list[str]:
        line, more = "".join(self._parts), self._size - MOST_LINE
        self._parts, self._size = [], 0
        return (
            [f"{line} ... and {more:,} characters more, left out"]
            if more > 0
            else [line]
            if line
            else []
        )


def verbatim(stream: TextIO) -> TextIO:
    """Let everything pass: for our own consoles, which make strangers' text safe themselves, and
    for a program that the user runs through us."""
    return cast(TextIO, _Verbatim(stream)) if isinstance(stream, _Text) else stream


def take_standard_streams() -> None:
    """Make all three safe to use. Idempotent. Where one was closed, as services and CI may start
    us, /dev/null takes its number: otherwise the next file opened would be a program's standard
    stream."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, "r", closefd=False)
    elif sys.stdin is sys.__stdin__ and isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # bytes that are no text must not end a prompt
    sys.stderr = _safe(2, sys.stderr, sys.__stderr__)
    sys.stdout = _safe(1, sys.stdout, sys.__stdout__)


def _safe(number: int, stream: Any, at_start: Any) -> TextIO:
    if stream is not None:
        if stream is not at_start:
            return cast(TextIO, stream)
        cast(TextIO, stream).flush()
    raw = _Lossy(number, "w", closefd=False)
    encoding = None if stream is None else stream.encoding
    return _Text(
        io.BufferedWriter(raw), encoding, ERRORS, line_buffering=number == 2 or raw.isatty()
    )


def take_input() -> TextIO:
    """/dev/null takes standard input's number, so that programs started later cannot read from
    it."""
    own = os.fdopen(os.dup(0), "r", encoding=sys.stdin.encoding, errors="replace")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return own


def reader_gone() -> bool:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(raw, _Lossy) and raw.lost is not None
