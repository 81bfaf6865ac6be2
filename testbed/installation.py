"""Finds this copy of the project: a clone, or a package that pip installed from a wheel. Reads file
names only."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = "share/doc/mrcbed"
"""A wheel's README.md and docs/ (setup.py), below the environment's folder."""


def is_clone() -> bool:
    return os.path.isfile(ROOT / "setup.py")  # False where this user may not look; Path raises


def remedy() -> str:
    return "sudo make install" if is_clone() else "pip install --force-reinstall mrcbed-*.whl"


def documents() -> Path:
    if is_clone():
        return ROOT
    files = importlib.metadata.files("mrcbed") or []
    readme = next(
        (file for file in files if file.as_posix().endswith(f"{DOCUMENTS}/README.md")), None
    )
    return Path(str(readme.locate())).resolve().parent if readme else ROOT
