"""The endpoint: sans-IO transport engines, and around them raw-socket I/O, the host process, verbs and collectives.

Importing this package decides whether the engines below it run compiled (mypyc's extension modules, where present) or from
source: MRCBED_INTERPRETED=1 asks for source, and extensions older than any source are never used, since they would
run what the source no longer says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

ENGINES = ("agents.mrc", "agents.roce", "agents.device", "agents.packet_io", "agents.receive_ring", "agents.delay_line")
"""What setup.py compiles: the engines, and the loop between them and the sockets."""


class _SourceOnly(MetaPathFinder):
    """Finds the engines' modules as source and does not see extension modules."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is not None and fullname.startswith(ENGINES):
            for folder in path:
                spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname)
                if spec is not None:
                    return spec
        return None


def _stale() -> bool:
    """True when an engine's extension is older than its source (or has no source)."""
    for name in ENGINES:
        place = Path(__path__[0], name.split(".")[1])
        built = list(place.rglob("*.so")) + list(place.parent.glob(f"{place.name}.*.so"))
        sources = list(place.rglob("*.py")) + list(place.parent.glob(f"{place.name}.py"))
        if built and min(map(_written, built)) < max(map(_written, sources), default=0):
            return True
    return False


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns


if os.environ.get("MRCBED_INTERPRETED", "") not in ("", "0"):
    sys.meta_path.insert(0, _SourceOnly())
elif _stale():
    print("mrcbed: the compiled engine is older than its source, running interpreted; `make install` compiles it anew", file=sys.stderr)
    os.environ["MRCBED_INTERPRETED"] = "stale"  # the processes we start need not say it again
    sys.meta_path.insert(0, _SourceOnly())
