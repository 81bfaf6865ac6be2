"""The bound and the seen value of a check, as text for people. Called by scenarios.show.report and scenarios.show.html. Pure."""

from __future__ import annotations

import re
from typing import Any

from testbed.terminal import duration

_TIME = re.compile(r"^([<>=!]+ (?:[\d.]+ \* )?[\w.]+_ns) \(([\d.e+]+)\)$")
"""A bound that is a time: a figure in ns, perhaps with a factor, and its value in brackets, which scenarios.schema.checks adds."""


def format_value(value: Any) -> str:
    """A value of any kind as text."""
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def bound_and_seen(check: dict[str, Any]) -> tuple[str, str]:
    """(expected, seen) of an entry of ``checks``, as text; times with their unit."""
    expected, seen = str(check["expected"]), check["seen"]
    bound = _TIME.match(expected)
    if bound is None or not isinstance(seen, (int, float)):
        return expected, format_value(seen)
    return f"{bound[1]} ({duration(float(bound[2]))})", duration(seen)
