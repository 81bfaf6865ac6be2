"""Finds the library that ``make verbs`` builds."""

from __future__ import annotations

from pathlib import Path

from testbed.errors import UserError

LIBRARY = Path(__file__).with_name("libmrcbed-verbs.so")


def library() -> Path:
    """Return the library's path. Raises :class:`UserError` if it is not built."""
    if not LIBRARY.is_file():
        raise UserError(f"{LIBRARY.name} is not built: make verbs")
    return LIBRARY
