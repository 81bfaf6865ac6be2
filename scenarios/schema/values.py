"""How values are read out of a scenario's dictionaries: units, and errors of one line that name file and dotted key.

Called by scenarios.schema.scenario and scenarios.schema.workloads. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from testbed.errors import UserError
from testbed.units import parse_duration, parse_size


class ScenarioError(UserError):
    """A scenario that cannot run: one line with file, key and fix."""


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


__all__ = ["ScenarioError", "Values", "parse_duration", "parse_size"]
