"""Reads TOML files that a user names. Nothing in a file may take more than a moment, or more than
one line to refuse."""

from __future__ import annotations

import os
import re
import select
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

from topologies.structs import Refused, join

_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_BYTES = 1 << 20
WRITER_S = 5.0
MAX_DEPTH = 16
MAX_WHOLE = 2**63 - 1
"""TOML's whole numbers have 64 bits, signed (TOML 1.0)."""
STDIN = "-"
STANDARD_INPUT = Path("/dev/stdin")
FORMAT = 3
"""Since format 3 times and rates are those of the real network."""


def find_file(name: str, shipped: Path, beside: Path | None = None) -> Path | None:
    """Find the shipped file called ``name``, or else the user's: ``beside`` another file first,
    then from the working directory. None if there is no such file."""
    if name == STDIN:
        return STANDARD_INPUT
    named = shipped / f"{name}.toml"
    if os.sep not in name and os.path.isfile(named):
        return named
    if beside is not None and os.path.exists(beside / name):
        return beside / name
    return Path(name) if name.endswith(".toml") or os.sep in name or os.path.exists(name) else None


def read_toml(path: Path) -> tuple[str, dict[str, object]]:
    """Return (text, what it says) of a file, a pipe, or standard input. Raises ValueError, one line
    that begins after the file's name."""
    try:
        if path == STANDARD_INPUT:
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                os.set_blocking(file.fileno(), True)
                if (
                    not stat.S_ISREG(os.fstat(file.fileno()).st_mode)
                    and not select.select([file], [], [], WRITER_S)[0]
                ):
                    raise ValueError(
                        f"is a pipe into which nothing comes for {WRITER_S:g} s: give a file"
                    )
                raw = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise ValueError("is a directory: give a file in it") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise ValueError(f"is larger than {MAX_BYTES >> 20} MiB: give another file")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
        return text, parse_toml(text)
    except ValueError as error:
        raise ValueError(f"is not valid TOML: {error}") from None


def take_format(data: dict[str, object]) -> None:
    written = data.pop("format", None)
    if written is None:
        raise ValueError(
            f"has no format = {FORMAT}: write its rates and times as the real network's, and add "
            "that line"
        )
    if written is True or written != FORMAT:
        raise ValueError(f"has format = {written!r}, this version reads {FORMAT}")


def parse_toml(text: str) -> dict[str, object]:
    """Raises ValueError, also on what is nested too deep and on numbers beyond 64 bits."""
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"tables and lists lie in each other more than {MAX_DEPTH} deep") from None
    check_values(data)
    return data


def check_values(data: dict[str, object]) -> None:
    """Raises :class:`topologies.structs.Refused` for what is nested too deep and for numbers beyond
    64 bits."""
    level: list[tuple[str, Any]] = [("", data)]
    for _ in range(MAX_DEPTH):
        inner: list[tuple[str, Any]] = []
        for path, at in level:
            for key, item in (
                at.items()
                if isinstance(at, dict)
                else ((f"[{i}]", item) for i, item in enumerate(at))
            ):
                if isinstance(item, (dict, list)):
                    inner.append((join(path, key), item))
                elif isinstance(item, int) and not -MAX_WHOLE - 1 <= item <= MAX_WHOLE:
                    raise Refused(join(path, key), ": a whole number has more than 64 bits")
                elif isinstance(item, str) and _SURROGATE.search(item):
                    raise Refused(join(path, key), ": text has half of a surrogate pair")
        if not inner:
            return
        level = inner
    raise Refused(
        level[0][0][:60], f": tables and lists lie in each other more than {MAX_DEPTH} deep"
    )
