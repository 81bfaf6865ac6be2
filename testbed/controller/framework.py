"""Finds the controller framework: Ryu, or os-ken, its maintained fork, where Ryu is not installed.
Their modules have the same names.

``MRCBED_CONTROLLER=os_ken`` chooses os-ken where both are installed, for tests.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any

from testbed.errors import UserError

FRAMEWORKS = {"ryu": "RyuApp", "os_ken": "OSKenApp"}


def chosen() -> str:
    """Return the framework's name. Raises :class:`UserError` if neither is installed."""
    asked = os.environ.get("MRCBED_CONTROLLER", "")
    if asked and asked not in FRAMEWORKS:
        raise UserError(f"MRCBED_CONTROLLER={asked}: it may be {' or '.join(FRAMEWORKS)}")
    for name in [asked] if asked else FRAMEWORKS:
        if importlib.util.find_spec(name):
            return name
    missing = f"{asked} is not" if asked else "neither Ryu nor os-ken is"
    raise UserError(f"controller: {missing} installed: sudo make install, or pip install os-ken")


def module(name: str) -> Any:
    return importlib.import_module(f"{chosen()}.{name}")
