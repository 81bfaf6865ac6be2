"""Gives files that a command writes under sudo to the user who called sudo.

Whoever writes at a place that a person named calls :func:`written` first, outside the sandbox. The
command line calls :func:`give_back` when a command ends.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from testbed.errors import UserError, first_line, refusal
from testbed.machine.sandbox import caller_uid, group_of

Place = TypeVar("Place", str, Path)
_places: list[tuple[list[Path], set[str]]] = []


def written(place: Place, whole: bool = False) -> Place:
    """Note that a place is about to be written, and return it. At the end root's files there go to
    the user who called sudo, as do folders made on the way. Files that were root's before stay so,
    unless the place is ``whole`` the command's own."""
    if os.geteuid() == 0 and caller_uid():
        roots = list(dict.fromkeys((Path(place).absolute(), Path(os.path.realpath(place)))))
        above = {str(path) for root in roots for path in root.parents}
        _places.append(
            (roots, {name for name, _, _ in _of_root(roots) if not whole or name in above})
        )
    return place


@contextmanager
def writing(place: Path, suffix: str = "") -> Iterator[Path]:
    place = place if place.suffix else place.parent / f"{place.name}{suffix}"
    try:
        written(place).parent.mkdir(parents=True, exist_ok=True)
        yield place
    except ValueError as error:
        raise UserError(f"{place}: {first_line(error)}: name it x{suffix}") from None
    except OSError as error:
        if refusal(error) is not None or Path(error.filename or "") not in (place, *place.parents):
            raise
        raise UserError(
            f"{place}: it cannot be written ({error.strerror}): name another place"
        ) from None


def made(folder: Path, whole: bool = False) -> Path:
    try:
        written(folder, whole).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder}: it cannot be made ({error.strerror}): name another place"
        ) from None
    return folder


@contextmanager
def handed_over(place: Path) -> Iterator[Path]:
    """Yield a folder that only root may enter. The user who called sudo moves its contents to
    ``place`` at the end, with their own rights: in a folder of theirs, links could lead root's hand
    anywhere. Without sudo it is ``place`` itself."""
    user = caller_uid()
    if os.geteuid() != 0 or not user:
        yield place
        return
    folder, to = tempfile.mkdtemp(prefix="mrcbed-"), place.absolute()
    made = Path(folder) / place.name
    try:
        yield made
    finally:
        if made.is_dir():
            give_back()
            os.chown(folder, user, group_of(user))
            command = (
                "sh",
                "-c",
                'test -d "$1" || mkdir -- "$1"; mv -- "$0"/* "$1"',
                place.name,
                str(to),
            )
            done = subprocess.run(
                command,
                cwd=folder,
                user=user,
                group=group_of(user),
                extra_groups=[],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                print(f"Moved to {place}", flush=True)
            elif to.parent.is_dir():  # else who called is gone, with their folder
                raise UserError(
                    f"{place}: {done.stderr.strip()}: results stay in {made}: go where you may "
                    "write"
                )
        shutil.rmtree(folder, ignore_errors=True)


def give_back() -> None:
    user = caller_uid()
    while _places:
        roots, before = _places.pop()
        for name, short, folder in _of_root(roots) if user else ():
            if name not in before:
                # a file system without owners, or one that has become read-only
                with suppress(OSError):
                    os.chown(
                        short, user or 0, group_of(user or 0), dir_fd=folder, follow_symlinks=False
                    )


def _of_root(roots: list[Path]) -> Iterator[tuple[str, str, int | None]]:
    """Yield (path, name, descriptor of its folder) of root's files in these places, in the folders
    above and all below. Follows no link, and skips files that have another name: who may write
    there meanwhile gains nothing else."""
    for root in roots:
        for above in (root, *root.parents):
            if _is_roots(str(above), None):
                yield str(above), str(above), None
        with suppress(OSError):  # no folder
            for folder, folders, files, fd in os.fwalk(root):
                for name in (*folders, *files):
                    if _is_roots(name, fd):
                        yield os.path.join(folder, name), name, fd


def _is_roots(name: str, folder: int | None) -> bool:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:  # it is not there, or has just gone
        return False
    return found.st_uid == 0 and (found.st_nlink == 1 or stat.S_ISDIR(found.st_mode))
