"""Reads files that may not be what they should: other people's, and results that were damaged on the way.

A regular file, of bounded size, whose JSON is of bounded depth and has the types that its reader declares. Nothing that lies there may make
a reader wait, fill memory, or need more than one line to refuse.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

MOST_JSON = 256 << 20
"""Bytes of a JSON file [ours]; the largest that mrcbed writes is a run's record, 44 MB for 64 hosts."""
MOST_DEPTH = 64
"""Of JSON's tables and lists within each other [ours]."""


class FileError(ValueError):
    """A file cannot be read, or does not hold what it should. One line, which names the file."""

    exit_status = 2


def content(path: Path, most: int) -> bytes:
    """The bytes of a regular file. Raises :class:`FileError` for anything else and for more than ``most`` bytes, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO that nobody writes to shall not hold us up
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileError(f"{path} is no regular file: give a file")
    with open(descriptor, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise FileError(f"{path} is larger than {most >> 20} MiB: it is damaged, or another file than was meant")
    return data


def parse_json(data: bytes | str, path: Path) -> Any:
    """What JSON says. Raises :class:`FileError` for what is none, or is nested more than :data:`MOST_DEPTH` deep."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError, too
        raise FileError(f"damaged: {path} is not JSON ({error})") from None
    check_depth(value, path)
    return value


def check_depth(value: Any, path: Path) -> None:
    """Raises :class:`FileError` for tables and lists more than :data:`MOST_DEPTH` deep: what goes through them recursively would fail."""
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [item for at in level if isinstance(at, (dict, list)) for item in (at.values() if isinstance(at, dict) else at)]
        if not level:
            return
    raise FileError(f"damaged: {path} has tables and lists more than {MOST_DEPTH} deep in each other")


def typed(value: Any, kind: type[T], path: Path) -> T:
    """``value`` as ``kind`` (a msgspec.Struct or any type that msgspec checks). Raises :class:`FileError`, *damaged: KEY in FILE*."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, key = str(error).partition(" - at `$")
        raise FileError(f"damaged: {key.rstrip('`').lstrip('.') or 'all'} in {path}: {what[:1].lower()}{what[1:]}") from None


def read_json(path: Path, kind: type[T], most: int = MOST_JSON) -> T:
    """A JSON file as ``kind``. Raises :class:`FileError`, OSError."""
    return typed(parse_json(content(path, most), path), kind, path)
