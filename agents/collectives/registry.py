"""Collectives by name: every module of this package that defines a named :class:`Collective` adds
one."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from types import ModuleType

import agents.collectives
from agents.collectives.base import Collective
from agents.collectives.group import CollectiveError

FLOWS = "flows"


@lru_cache(maxsize=1)
def _modules() -> list[ModuleType]:
    return [
        importlib.import_module(f"{agents.collectives.__name__}.{m.name}")
        for m in pkgutil.iter_modules(agents.collectives.__path__)
    ]


def collectives() -> dict[str, type[Collective]]:
    """Imports every module of the package: call it before root is dropped."""
    _modules()
    kinds: dict[str, type[Collective]] = {}
    waiting = Collective.__subclasses__()
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if kind.name:
            kinds[kind.name] = kind
    return dict(sorted(kinds.items()))


def find(name: str) -> type[Collective]:
    """Raises :class:`CollectiveError`, which names all that there are."""
    kinds = collectives()
    if name not in kinds:
        raise CollectiveError(f"no collective {name!r}: there are {', '.join(kinds)} and {FLOWS}")
    return kinds[name]
