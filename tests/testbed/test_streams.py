"""What a terminal may have of strangers' text, and output in an encoding that lacks some of our
signs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mrcbed import cli
from testbed.streams import MOST_LINE, Cutter, printable

HOSTILE = "a\x1b]0;title\x07b\r\x9b31m\u202ec\u2066\udcff\x7f"
SHOWN = r"a\x1b]0;title\x07b\r\x9b31m\u202ec\u2066\xff\x7f"
IN_TURN = """
import contextlib, sys, mrcbed.start
from mrcbed import cli
from testbed.streams import take_standard_streams
from tests.scenarios.small import undrawn
take_standard_streams()
statuses = []
for words in eval(sys.argv[1]):
    with undrawn() if words[0] in ("run", "compare") else contextlib.nullcontext():
        statuses.append(cli.execute(words))
print("=", statuses, sep="")
"""
NAME = r"{a} %s [red] $x_{1}\\nosuch$ 中|<b>\u202e"
SCENARIO = f"""format = 3
fabric = "tiny"
[workload]
kind = "ring-allreduce"
message_bytes = "16KiB"
steps = 2
[[transport]]
kind = "mrc"
[[fault]]
name = "{NAME}"
kind = "loss"
on = "p0-t0-0:p0-t1-0"
probability = 0.1
step = 1
[[expect]]
name = "holds {NAME}"
check = "mrc.wrong == 0"
[[expect]]
name = "fails {NAME}"
check = "mrc.steps == 9"
"""


def printed(program: str, encoding: str) -> bytes:
    code = (
        "import sys; from testbed.streams import take_standard_streams, verbatim; "
        f"take_standard_streams(); {program}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    return done.stdout + done.stderr


def test_what_steers_a_terminal_is_shown_as_an_escape() -> None:
    assert printable(HOSTILE) == SHOWN
    assert (
        printable("tab\tline\nöß–中😀") == "tab\tline\nöß–中😀"
        and printable("two\nlines", line=True) == r"two\nlines"
    )


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_standard_streams_print_text_alone(stream: str) -> None:
    assert printed(f"print({HOSTILE!r}, file=sys.{stream})", "utf-8") == f"{SHOWN}\n".encode()
    assert printed(f"print('\\x1b[1m', file=verbatim(sys.{stream}))", "utf-8") == b"\x1b[1m\n"


@pytest.mark.parametrize(
    ("encoding", "shown"), [("latin-1", b"\xb5s - x \\u4e2d"), ("ascii:strict", b"us - x \\u4e2d")]
)
def test_what_an_encoding_lacks_is_replaced(encoding: str, shown: bytes) -> None:
    assert printed("print('µs – x 中')", encoding) == shown + b"\n"


def called(*commands: tuple[str | Path, ...], **environment: str) -> tuple[list[int], bytes, bytes]:
    """What commands end with, print and complain of: in one process, whose streams are those of the
    command line."""
    words = [[str(word) for word in command] for command in commands]
    end = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, ascii(words)], capture_output=True, env=end, check=True
    )
    said, _, statuses = done.stdout.rpartition(b"=")
    return eval(statuses), said, done.stderr


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The file of :data:`SCENARIO`, with its results beside it in ``out``; and all that commands
    about them said."""
    directory = tmp_path_factory.mktemp("names")
    path, out = directory / "kind.toml", directory / "out"
    path.write_text(SCENARIO)
    statuses, printed, complaints = called(
        ("run", path, "--all", "--world", "simulated", "--out", out), ("check", path),
        *[("results", *words, out) for words in (("top", "--once"), ("plot",), ("report",))],
    )  # fmt: skip
    said = printed.decode() + complaints.decode()
    assert statuses == [1, 0, 0, 0, 0], said
    return path, said


@pytest.mark.dear("six commands, two of them with figures, in a process with its own locale")
def test_commands_keep_their_status_in_any_encoding(
    shown: tuple[Path, str], tmp_path: Path
) -> None:
    """Files are UTF-8 also where the locale is not."""
    path, out = shown[0], shown[0].parent / "out"
    statuses, said, complaints = called(
        ("run", path, "--world", "simulated", "--out", tmp_path / "other"),
        ("check", "demo"),
        ("results", "top", "--once", out),
        ("results", "compare", out, tmp_path / "other", "--out", tmp_path / "both"),
        ("results", "report", out),
        ("fabric", "fluid", "--nics", "1024", "--draws", "2"),
        PYTHONIOENCODING="ascii",
        LC_ALL="C",
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
    )
    assert statuses == [1, 0, 0, 0, 0, 0] and b"internal" not in complaints, (said, complaints)
    assert said.isascii() and b"Verdict: " in said


def test_names_of_files_faults_and_checks_reach_the_terminal_as_text(
    shown: tuple[Path, str], tmp_path: Path
) -> None:
    """Also those that str.format(), rich or Matplotlib would read as their own."""
    path = tmp_path / "evil\x1b[2J\n\u202e.toml"
    missing = subprocess.run(
        [sys.executable, "-m", "mrcbed", "check", path], capture_output=True, text=True, check=False
    )
    assert (missing.returncode, missing.stdout, missing.stderr.count("\n")) == (2, "", 1)
    assert r"evil\x1b[2J\n\u202e.toml" in missing.stderr
    said, name = shown[1], r"{a} %s [red] $x_{1}\nosuch$ 中|<b>\u202e"
    assert not set("\x1b\u202e") & set(said) and "Glyph" not in said
    assert f"ok     holds {name}" in said and f"FAILED fails {name}" in said


def test_a_name_with_control_characters_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kind.toml"
    path.write_text(SCENARIO.replace("中", r"\u001b[31m"))
    assert cli.execute(["check", str(path)]) == 2
    assert capsys.readouterr().err.endswith(
        " must be one line of text without control characters, of at most 200 letters\n"
    )


def test_lines_are_cut_from_pieces_and_long_ones_cut_short() -> None:
    cutter = Cutter()
    assert (
        cutter.lines("a\nb") == ["a"] and cutter.lines("c\n\n") == ["bc", ""] and cutter.end() == []
    )
    assert cutter.lines("x" * MOST_LINE) == [] and cutter.lines("\n") == ["x" * MOST_LINE]
    for _ in range(3):
        assert cutter.lines("y" * MOST_LINE) == []
    assert sys.getsizeof("".join(cutter._parts)) < MOST_LINE + 100
    assert cutter.lines("y\nz") == [
        "y" * MOST_LINE + f" ... and {2 * MOST_LINE + 1:,} characters more, left out"
    ]
    assert cutter.end() == ["z"] and cutter.end() == []
