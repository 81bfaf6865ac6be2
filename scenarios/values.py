"""How values are read out of a scenario's dictionaries: units, and errors of one line that name file and dotted key.

Called by scenarios.schema and scenarios.workloads. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any

from testbed.errors import UserError

_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}


class ScenarioError(UserError):
    """A scenario that cannot run: one line with file, key and fix."""


def parse_duration(value: Any) -> int:
    """``"0.5s"``, ``"20ms"`` or a number of seconds, as ns. Raises ValueError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        ns = value * 10**9
    else:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|min)?", str(value).strip())
        if not match:
            raise ValueError("is not a time: write it like '0.5s' or as a number of seconds")
        ns = float(match[1]) * _TIMES[match[2] or "s"]
    if not 0 <= ns < 1e14:
        raise ValueError("is not a time between 0 and a day")
    return round(ns)


def parse_size(value: Any) -> int:
    """``"4MiB"`` or a number of bytes, as bytes. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", str(value).strip())
    if isinstance(value, bool) or not match or match[2].upper() not in _SIZES:
        raise ValueError("is not a size: write it like '4MiB' or as a number of bytes")
    return round(float(match[1]) * _SIZES[match[2].upper()])


class Values:
    """Takes dictionaries apart; every error names the file and the dotted key."""

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, key: str, message: str) -> ScenarioError:
        return ScenarioError(f"{self.file}: {key} {message}")

    def table(self, data: Any, where: str, known: Sequence[str], required: Sequence[str] = ()) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise self.fail(where, "must be a table")
        dot = f"{where}." if where else ""
        for key in data:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
                raise self.fail(dot + key, f"is not a key: did you mean {near!r}?")
        for key in required:
            if key not in data:
                raise self.fail(dot + key, "is missing")
        return data

    def list_of(self, data: dict[str, Any], key: str, where: str = "") -> list[Any]:
        value = data.get(key, [])
        if not isinstance(value, list):
            raise self.fail(f"{where}{key}", f"must be written as [[{where}{key}]]")
        return value

    def whole(self, data: dict[str, Any], key: str, where: str, default: int, low: int, high: int) -> int:
        value = data.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.fail(f"{where}.{key}", f"= {value!r} must be a whole number in {low}..{high}")
        return value

    def switch(self, data: dict[str, Any], key: str, where: str, default: bool) -> bool:
        value = data.get(key, default)
        if not isinstance(value, bool):
            raise self.fail(f"{where}.{key}", f"= {value!r} must be true or false")
        return value

    def one_of(self, value: Any, allowed: Sequence[str], where: str) -> str:
        if value not in allowed:
            raise self.fail(where, f"= {value!r}: there are {', '.join(allowed)}")
        return str(value)

    def parsed(self, parse: Callable[[Any], int], value: Any, where: str) -> int:
        try:
            return parse(value)
        except ValueError as error:
            raise self.fail(where, f"= {value!r} {error}") from None
