"""Text is shown as it is: no console of ours reads markup, and no other console is made."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.text import Text

from mrcbed.cli.common import ProgressBar
from testbed import terminal

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "[red] [/nosuch] \\[x] [link=y] :bomb: [bold]"


def test_a_console_shows_brackets_and_colons_as_they_are() -> None:
    out = io.StringIO()
    console = terminal.console(100, file=out)
    console.print(HOSTILE, style="red")
    console.print(terminal.table([HOSTILE], [[HOSTILE]], title=HOSTILE))
    assert out.getvalue().count(HOSTILE) == 4 and console.width == 100


def test_strangers_text_does_not_steer_the_terminal() -> None:
    """Styles are of the console's own making; what came with the text is shown."""
    out = io.StringIO()
    console = terminal.console(120, file=out)
    console.print(hostile := "a\x1b[31mb\u202e", style="red")
    console.print(Text(hostile, "red"), Text.assemble((hostile, "bold"), "c"))
    console.print(
        terminal.table(
            [hostile, "n"], [[hostile, "1"], [Text(hostile), "2"]], title=hostile, caption=hostile
        )
    )
    console.print(terminal.fields([hostile], [hostile]))
    assert out.getvalue().count(r"a\x1b[31mb\u202e") == 10 and not set("\x1b\u202e") & set(
        out.getvalue()
    )


@pytest.mark.parametrize(("width", "parts"), [(27, 3), (28, 2), (41, 2), (42, 1)])
def test_a_table_that_is_too_wide_goes_on_below(width: int, parts: int) -> None:
    """A line is as wide as its cells and two blanks each: 7 + 6 tell rows apart, then 5, 9, 6 and 9
    follow."""
    heads = ["name", "seed", "n", "bits/s", "CPU", "verdict"]
    rows = [
        ["alpha", "1001", "100", "1234.56", "12 %", "failed"],
        None,
        ["alpha", "1002", "200", "6543.21", "21 %", "ok"],
    ]
    out = io.StringIO()
    terminal.console(width, file=out).print(
        terminal.table(heads, rows, title="Title", caption="Caption", words=["verdict"])
    )
    text = out.getvalue()
    lines = text.splitlines()
    assert (
        lines[0] == "Title"
        and lines[-1] == "Caption"
        and all(len(line) <= width for line in lines)
        and "…" not in text
    )
    assert all(
        text.count(cell) == 1
        for cell in ("1234.56", "6543.21", "failed", "12 %", "bits/s", "verdict")
    )
    for seed in ("1001", "1002"):
        assert len([line for line in lines if line.split()[:2] == ["alpha", seed]]) == parts


def test_keys_do_not_fill_a_narrow_console() -> None:
    """The first two columns tell the rows apart, but leave less than half of 30 characters: only
    the first is repeated."""
    out = io.StringIO()
    rows = [["alpha", "interleaved ranks", "1234.5678"], ["alpha", "packed ranks", "8765.4321"]]
    terminal.console(30, file=out).print(terminal.table(["name", "placement", "bits/s"], rows))
    assert (
        out.getvalue().count("alpha") == 4
        and out.getvalue().count("packed") == 1
        and "8765.4321" in out.getvalue()
    )


def test_fields_wrap_beside_their_heads() -> None:
    out = io.StringIO()
    terminal.console(20, file=out).print(
        terminal.fields(["means", "unit", "write"], ["a word and another one", "", "[a]\nb = 1"])
    )
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "means  a word and",
        "       another one",
        "write  [a]",
        "       b = 1",
    ]


def test_progress_shows_them_too() -> None:
    progress = ProgressBar()
    progress.live = True
    progress.report(HOSTILE, 0.5)
    out = io.StringIO()
    terminal.console(140, file=out).print(progress.bar.get_renderable())
    assert HOSTILE in out.getvalue()


def test_without_a_terminal_no_stage_is_said_twice(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar() as progress:
        for stage in (
            "mrc (1 of 2)",
            "starting agents",
            "mrc (1 of 2)",
            "mrc (2 of 2)",
            "starting agents",
        ):
            progress(stage, 0.5)
    assert capsys.readouterr().err.split("\n") == [
        "mrc (1 of 2)",
        "starting agents",
        "mrc (2 of 2)",
        "",
    ]


def test_every_console_is_made_there_and_no_string_holds_markup() -> None:
    for folder in ("topologies", "agents", "testbed", "scenarios", "mrcbed"):
        for path in (ROOT / folder).rglob("*.py"):
            source = path.read_text()
            if path != Path(terminal.__file__):
                assert not re.search(r"\bConsole\(|rich\.markup|\[/(\w+)?\][\"'\\]", source), path
