"""Makes ``replay.html`` with the plots' colours and markers."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import LOOKS, kind_look, look_of
from testbed.results.reading import ResultsError
from testbed.view.inline import write_replay

SIGNS = dict(
    zip("o s ^ v < > D d * P X h H p".split(), "● ■ ▲ ▼ ◀ ▶ ◆ ♦ ★ ✚ ✖ ⬢ ⬣ ⬟".split(), strict=True)
)


def look(transport: str) -> tuple[str, str]:
    """An unknown name gets some colour and sign by its letters."""
    colour, marker = kind_look(
        transport, transport.partition("-")[0], zlib.crc32(transport.encode()) % LOOKS
    )
    return colour, SIGNS[marker]


def replay(directory: Path, keys: Sequence[str] = (), out: Path | None = None) -> Path:
    """Raises :class:`testbed.errors.UserError`."""
    stored = Stored(directory)

    def look_in_plots(transport: str) -> tuple[str, str]:
        try:
            colour, marker = look_of(stored, transport)
        except (ResultsError, LookupError):
            # what has no results: a run that did not end, or ``mrcbed up``
            return look(transport)
        return colour, SIGNS[marker]

    return write_replay(directory, keys, look_in_plots, out)
