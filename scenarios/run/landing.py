"""Brings a block's runs from another machine: in one archive, unpacked beside the results, and
renamed into place.

A block may be carried out more than once, but a run lands once: a rename to a taken name fails. So
``raw/`` has only whole runs.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from testbed.errors import UserError

BESIDE = ".landing"  # on the same disk as ``raw/``, for what is not whole yet


def pack(directory: Path, keys: Sequence[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for key in keys:
            archive.add(directory / "raw" / key, key)
    return buffer.getvalue()


def land(data: bytes, directory: Path, keys: Sequence[str]) -> list[str]:
    """Put the runs ``keys`` into ``directory``/raw. Return those that were there already, which
    stay.

    Raises :class:`UserError` if the archive does not hold them whole.
    """
    beside = directory / BESIDE / uuid.uuid4().hex
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if (
                    not (member.isreg() or member.isdir())
                    or name.parts[:1] not in [(key,) for key in keys]
                    or ".." in name.parts
                ):
                    raise UserError(
                        f"a worker's answer holds {member.name!r}, which is no file of its runs: "
                        "it is dropped"
                    )
                (beside / name if member.isdir() else (beside / name).parent).mkdir(
                    parents=True, exist_ok=True
                )
                if (content := archive.extractfile(member)) is not None:
                    with open(beside / name, "wb") as file:
                        shutil.copyfileobj(content, file)
        if missing := [key for key in keys if not (beside / key / "run.json").is_file()]:
            raise UserError(f"a worker's answer lacks {missing[0]}: it is dropped")
        (directory / "raw").mkdir(exist_ok=True)
        return [key for key in keys if not _moved(beside / key, directory / "raw" / key)]
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UserError(f"a worker's answer is no archive ({error}): it is dropped") from None
    finally:
        clear(directory)


def clear(directory: Path) -> None:
    """Remove what is not whole, also of a killed process."""
    shutil.rmtree(directory / BESIDE, ignore_errors=True)


def _moved(source: Path, target: Path) -> bool:
    try:
        os.rename(source, target)
    except OSError:
        if target.is_dir():
            return False
        raise
    return True
