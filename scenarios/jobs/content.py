"""Reads a trace's file, however it is packed."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

from scenarios.jobs.plan import PlanError
from topologies import files

MOST_FILE = 64 << 20  # bytes, unpacked [ours]
BOM = b"\xef\xbb\xbf"


def content(path: Path, most: int = MOST_FILE) -> bytes:
    """Unpack gzip and drop a byte order mark. Raises :class:`PlanError` for a large file,
    OSError."""
    try:
        data = files.content(path, most)
        if data[:2] == b"\x1f\x8b":
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(most + 1)
    except files.FileError as error:
        raise PlanError(str(error)) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PlanError(f"{path.name}: gzip: {error}") from None
    if len(data) > most:
        raise PlanError(f"{path.name} has more than {most >> 20} MiB")
    return data.removeprefix(BOM)


def is_json(data: bytes) -> bool:
    """Tell JSON from a first message of ten bytes, which begins with a line feed, too; JSON that a
    program writes does not."""
    return data[:1] in (b"{", b"[") or (
        data[:1].isspace() and data[:1] != b"\n" and data.lstrip()[:1] in (b"{", b"[")
    )


def is_text(path: Path) -> bool:
    return Path(path.name.removesuffix(".gz")).suffix not in (".et", ".json") and not is_json(
        content(path)
    )
