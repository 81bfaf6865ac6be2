"""The bound and the seen value of a check, as text for people. Called by scenarios.show.run_tables and scenarios.show.html. Pure."""

from __future__ import annotations

import re
from typing import Any

from testbed.terminal import duration

_BOUND = re.compile(r"^(.*[ (])([\d.e+]+)(\)?)$")
"""Pattern of an expected value: text up to a number at its end or in brackets there, which scenarios.schema.checks adds to a formula."""


def format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def bound_and_seen(check: dict[str, Any]) -> tuple[str, str]:
    """Write (expected, seen) of an entry of ``checks``; times with their unit."""
    expected, seen = str(check["expected"]), check["seen"]
    bound = _BOUND.match(expected)
    if check.get("unit") != "ns" or bound is None or not isinstance(seen, (int, float)):
        return expected, format_value(seen)
    return f"{bound[1]}{duration(float(bound[2]))}{bound[3]}", duration(seen)
