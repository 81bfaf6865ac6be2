"""Text is shown as it is: no console of ours reads markup, and no other console is made."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.table import Table

from testbed import terminal
from testbed.cli.run import ProgressBar

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "[red] [/nosuch] \\[x] [link=y] :bomb: [bold]"


def test_a_console_shows_brackets_and_colons_as_they_are() -> None:
    out = io.StringIO()
    console = terminal.console(100, file=out)
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    console.print(HOSTILE, style="red")
    console.print(table)
    assert out.getvalue().count(HOSTILE) == 4 and console.width == 100


def test_progress_shows_them_too() -> None:
    progress = ProgressBar()
    progress.live = True
    progress.report(HOSTILE, 0.5)
    out = io.StringIO()
    terminal.console(140, file=out).print(progress.bar.get_renderable())
    assert HOSTILE in out.getvalue()


def test_every_console_is_made_there_and_no_string_holds_markup() -> None:
    for folder in ("topologies", "agents", "testbed", "scenarios"):
        for path in (ROOT / folder).rglob("*.py"):
            source = path.read_text()
            if path != Path(terminal.__file__):
                assert not re.search(r"\bConsole\(|rich\.markup|\[/(\w+)?\][\"'\\]", source), path
