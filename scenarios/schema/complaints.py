"""Lists all that is wrong with a file: readers stop at the first mistake, a person who mends a file
wants to see the next, too.

A refused key is taken out, and the file is read again.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any, TypeVar

from scenarios.schema.key_search import find
from scenarios.schema.scenario import Scenario, read_scenario_file, scenario_of
from scenarios.schema.sweep import override
from scenarios.schema.values import ScenarioError
from topologies import Fabric, FabricError
from topologies.fabrics import fabric_of, read_fabric_file
from topologies.structs import Refused
from topologies.toml_files import parse_toml

MOST = 20  # for one file [ours]
T = TypeVar("T")


def check_scenario(name_or_file: str, **changes: Any) -> tuple[Scenario | None, list[str]]:
    """Return (scenario or None, what is wrong). ``changes``: of
    :func:`scenarios.schema.scenario.load_scenario`. Raises
    :class:`ScenarioError` for a file that cannot be read, and :class:`FabricError`."""
    path, text, data = read_scenario_file(name_or_file)
    try:
        return scenario_of(path, text, copy.deepcopy(data), **changes), []
    except (ScenarioError, FabricError) as error:
        first = str(error)
    try:  # changes are made once, or what is taken out would come back
        for item in changes.pop("overrides", ()):
            override(data, item)
    except ScenarioError:
        return None, [first]
    _, lines = _all(data, lambda tables: scenario_of(path, text, tables, **changes))
    return None, lines or [first]


def check_fabric(name_or_file: str) -> tuple[Fabric | None, list[str]]:
    """Return (fabric or None, what is wrong). Raises :class:`FabricError` for a file that cannot be
    read."""
    return _all(read_fabric_file(name_or_file), fabric_of)


def _all(
    data: dict[str, object], read: Callable[[dict[str, object]], T]
) -> tuple[T | None, list[str]]:
    lines: list[str] = []
    removed: list[str] = []  # keys as they are in the file
    for _ in range(3 * MOST):  # a mistake may take a key, its table and a stand-in
        try:
            result = read(copy.deepcopy(data))
        except (ScenarioError, FabricError) as error:
            refused = error.__cause__ if isinstance(error.__cause__, Refused) else None
            key = _in_file(refused.key, removed) if refused is not None else ""
            if refused is not None and any(
                key == gone or gone.startswith((f"{key}[", f"{key}.")) for gone in removed
            ):
                # it is missing because it was taken out
                if not _stand_in(data, refused.key, removed):
                    return None, lines
                continue
            lines.append(
                str(error).replace(refused.key, key, 1)
                if refused is not None and key
                else str(error)
            )
            if refused is None or len(lines) == MOST:
                return None, lines
            if _take_out(data, refused.key):
                removed.append(key)
            elif not _stand_in(data, refused.key, removed):
                return None, lines
        else:
            return (None if lines else result), lines
    return None, lines


def _stand_in(data: dict[str, object], key: str, removed: list[str]) -> bool:
    """Drop a list's entry that lacks a key, or fill in the table of keys' example."""
    entry = key[: key.rfind("]") + 1]
    if entry:
        place = _in_file(entry, removed)
        removed.append(place)
        return _take_out(data, entry)
    example = next((found.example for found in find(key)[0] if found.example), "")
    at: Any = data
    *parents, last = key.split(".")
    for parent in parents:
        at = at[parent]
    if not example or last in at:
        return False
    at[last] = parse_toml(f"x = {example}")["x"]
    return True


def _in_file(key: str, removed: list[str]) -> str:
    parts = re.split(r"(\[\d+\])", key)
    path = ""
    for part in parts:
        if re.fullmatch(r"\[\d+\]", part):
            number = int(part[1:-1])
            gone = sorted(
                int(m[1])
                for whole in removed
                if (m := re.fullmatch(rf"{re.escape(path)}\[(\d+)\]", whole))
            )
            for index in gone:
                number += index <= number
            part = f"[{number}]"
        path += part
    return path


def _take_out(data: dict[str, object], key: str) -> bool:
    """Return False if the key is not there."""
    parts: list[str | int] = [
        int(number) if number else name
        for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", key)
    ]
    at: Any = data
    try:
        for part in parts[:-1]:
            at = at[part]
        del at[parts[-1]]
    except (KeyError, IndexError, TypeError):
        return False
    return True
