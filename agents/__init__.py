"""The endpoint: sans-IO transport engines, and around them raw-socket I/O, the host process, verbs
and collectives.

Importing this package decides whether the engines below it run compiled (mypyc's extension modules)
or from source: MRCBED_INTERPRETED=1 asks for source. Extensions older than any source are not used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

COMPILED = ("agents.", "testbed.simulated.", "testbed.bench.")


class _SourceOnly:
    """Finds the modules below as source and sees no extension modules. (A base of importlib.abc
    would cost each agent 30 ms.)"""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None and fullname.startswith(COMPILED):
            for folder in path:
                spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname)
                if spec is not None:
                    return spec
        return None


def _stale() -> bool:
    """An extension older than any source (or whose source has gone) is stale. Only in a clone: what
    pip installed has the times of its installation."""
    root = Path(__path__[0]).parent
    if not (root / "setup.py").exists():
        return False
    built = [
        path
        for room in COMPILED
        for path in root.joinpath(*room.rstrip(".").split(".")).rglob("*.so")
    ]
    sources = [path.with_name(path.name.split(".")[0] + ".py") for path in built]
    if not all(map(Path.exists, sources)):
        return True
    return bool(built) and min(map(_newest_write, built)) < max(map(_newest_write, sources))


def _newest_write(path: Path) -> int:
    return path.stat().st_mtime_ns


if os.environ.get("MRCBED_INTERPRETED", "") not in ("", "0"):
    sys.meta_path.insert(0, _SourceOnly())
elif _stale():
    print(
        "mrcbed: the compiled engine is older than its source, running interpreted; `make "
        "install` compiles it anew",
        file=sys.stderr,
    )
    os.environ["MRCBED_INTERPRETED"] = "stale"  # the processes we start need not say it again
    sys.meta_path.insert(0, _SourceOnly())
