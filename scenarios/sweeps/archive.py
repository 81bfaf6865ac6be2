"""A block's results on their way: packed into one archive, unpacked beside the results, and renamed into place.

A block may be carried out more than once, since a worker can die after its work and before its answer. It lands once: a rename to a name
that is taken fails, and what came late is dropped. What is in ``raw/`` is therefore always a whole run.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from scenarios.figures.writing import replacing
from testbed.errors import UserError
from testbed.view.declared import ANY, read

BESIDE = ".landing"
"""Folder of a results directory, on the same disk as ``raw/``, for what is not whole yet."""


def pack(directory: Path, keys: Sequence[str]) -> bytes:
    """Return the files of the runs ``keys`` below ``directory``/raw as a compressed archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for key in keys:
            for path in sorted((directory / "raw" / key).rglob("*")):
                if path.is_file():
                    archive.add(path, f"{key}/{path.relative_to(directory / 'raw' / key)}", recursive=False)
    return buffer.getvalue()


def land(data: bytes, directory: Path, keys: Sequence[str], note: Mapping[str, Any] | None = None) -> list[str]:
    """Unpack an archive and put its runs into ``directory``/raw. Return the keys that were there already; those are dropped.

    ``note`` is added to each run's ``run.json``. Raises :class:`UserError` if the archive does not hold exactly the runs ``keys``.
    """
    beside = directory / BESIDE / uuid.uuid4().hex
    try:
        _unpack(data, beside, keys)
        raw = directory / "raw"
        raw.mkdir(exist_ok=True)
        late = []
        for key in keys:
            if note:
                _annotate(beside / key / "run.json", note)
            if not _moved(beside / key, raw / key):
                late.append(key)
        return late
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def clear(directory: Path) -> None:
    """Remove what a head that died has left beside the results."""
    shutil.rmtree(directory / BESIDE, ignore_errors=True)


def _moved(source: Path, target: Path) -> bool:
    """Whether ``source`` could take the name ``target``, which fails if there is such a folder."""
    try:
        os.rename(source, target)
    except OSError:
        if target.is_dir():
            return False
        raise
    return True


def _annotate(path: Path, note: Mapping[str, Any]) -> None:
    record = read(path, ANY)
    with replacing(path) as part:
        part.write_text(json.dumps({**record, **note}), encoding="utf-8")


def _unpack(data: bytes, place: Path, keys: Sequence[str]) -> None:
    """Write the files of an archive below ``place``: plain files in the folders ``keys``, and nothing else."""
    complete = set()
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if not member.isreg() or name.is_absolute() or ".." in name.parts or len(name.parts) < 2 or name.parts[0] not in keys:
                    raise UserError(f"a worker's answer holds {member.name!r}, which is no file of its runs: it is dropped")
                source = archive.extractfile(member)
                assert source is not None
                path = place / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "wb") as file:
                    shutil.copyfileobj(source, file)
                if name.parts[1:] == ("run.json",):
                    complete.add(name.parts[0])
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UserError(f"a worker's answer is no archive ({error}): it is dropped") from None
    if missing := [key for key in keys if key not in complete]:
        raise UserError(f"a worker's answer lacks {missing[0]}: it is dropped")
