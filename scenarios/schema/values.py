"""The error of every scenario that cannot run."""

from __future__ import annotations

from testbed.errors import UserError


class ScenarioError(UserError):
    """A scenario cannot run. The text is one line with file, key and fix."""
