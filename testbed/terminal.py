"""Consoles: every one of ours is made here, so that text is shown as it is.

A file name, a typed word or an error message may hold brackets or colons, which rich would read as markup or emoji. Style is given by
``style=`` or a :class:`rich.text.Text`, never inside a string.
"""

from __future__ import annotations

from typing import IO

from rich.console import Console


def console(width: int | None = None, *, file: IO[str] | None = None, stderr: bool = False) -> Console:
    """A console on stdout, stderr or ``file``: as wide as the terminal, or ``width`` columns where there is none."""
    made = Console(file=file, stderr=stderr, markup=False, emoji=False, highlight=False)
    if width is not None and not made.is_terminal:
        made.width = width
    return made
