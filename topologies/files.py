"""Reads files that may not be what they should: other people's, and damaged results. Nothing in a
file may make a reader wait, fill memory, or need more than one line to refuse."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

T = TypeVar("T")
_MISSING = "Object missing required field `"

MOST_JSON = 512 << 20
"""The largest JSON file that mrcbed writes is a run's record, 320 MB of a tree over 4,096 hosts
[ours]."""
MOST_DEPTH = 64
MOST_VALUES = 40_000_000
"""Each value takes 60 bytes or more of memory, and the record of a tree over 4,096 hosts has half
as many [ours]."""


class FileError(ValueError):
    """The text is one line, which names the file."""

    exit_status = 2


def opened(path: Path) -> BinaryIO:
    try:
        # a FIFO that nobody writes to shall not hold us up
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ELOOP, errno.ENOTDIR):
            raise
        raise FileError(f"{path} is no regular file ({error.strerror}): give a file") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileError(f"{path} is no regular file: give a file")
    return open(descriptor, "rb")


def content(path: Path, most: int) -> bytes:
    """Raises :class:`FileError` for no regular file and for more than ``most`` bytes, OSError."""
    with opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise FileError(
            f"{path} is larger than {most >> 20} MiB: it is damaged, or another file than was meant"
        )
    return data


def parse_json(data: bytes | str, path: Path) -> Any:
    """No NaN, and no half of a surrogate pair. Raises :class:`FileError`, also for more than
    :data:`MOST_VALUES` values or
    :data:`MOST_DEPTH` levels."""
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if sum(map(data.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise FileError(f"damaged: {path} has more than {MOST_VALUES:,} values")
    try:
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise FileError(f"damaged: {path} is not JSON ({error})") from None
    check_depth(value, path)
    return value


def check_depth(value: Any, path: Path) -> None:
    """Recursive code would fail beyond :data:`MOST_DEPTH` levels. Raises :class:`FileError`."""
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [
            item
            for at in level
            if isinstance(at, (dict, list))
            for item in (at.values() if isinstance(at, dict) else at)
        ]
        if not level:
            return
    raise FileError(
        f"damaged: {path} has tables and lists more than {MOST_DEPTH} deep in each other"
    )


def typed(value: Any, kind: type[T], path: Path) -> T:
    """``kind``: any type that msgspec checks. Raises :class:`FileError`, *damaged: KEY in FILE*."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise damaged(error, path) from None


def damaged(error: msgspec.ValidationError, path: Path) -> FileError:
    what, _, key = str(error).replace(" - at `key` in ", " - at ").partition(" - at `$")
    if what.startswith(_MISSING):
        what, key = "it is missing", f"{key.rstrip('`')}.{what.removeprefix(_MISSING)}"
    return FileError(
        f"damaged: {key.rstrip('`').lstrip('.') or 'all'} in {path}: {what[:1].lower()}{what[1:]}"
    )


def read_json(path: Path, kind: type[T], most: int = MOST_JSON) -> T:
    return typed(parse_json(content(path, most), path), kind, path)
