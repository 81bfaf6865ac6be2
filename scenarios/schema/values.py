"""The error of every scenario that cannot run, and the units that its tables are written in."""

from __future__ import annotations

from testbed.errors import UserError
from topologies.units import parse_duration, parse_size

__all__ = ["ScenarioError", "parse_duration", "parse_size"]


class ScenarioError(UserError):
    """A scenario cannot run. The text is one line with file, key and fix."""
