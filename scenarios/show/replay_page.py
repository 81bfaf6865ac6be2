"""Makes ``replay.html`` in the look of the figures: each transport has the colour and marker that plots give it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scenarios.show.plots.style import colour_and_marker
from testbed.view.inline import write_replay

SIGNS = dict(zip("o s ^ v < > D d * P X h H p".split(), "● ■ ▲ ▼ ◀ ▶ ◆ ♦ ★ ✚ ✖ ⬢ ⬣ ⬟".split(), strict=True))
"""Matplotlib's markers as text."""


def look(transport: str) -> tuple[str, str]:
    colour, marker = colour_and_marker(transport)
    return colour, SIGNS[marker]


def replay(directory: Path, keys: Sequence[str] = (), out: Path | None = None) -> Path:
    """Write ``replay.html`` of a results directory and return its path. Raises :class:`testbed.errors.UserError`."""
    return write_replay(directory, keys, look, out)
