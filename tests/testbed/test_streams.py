"""What a terminal may have of strangers' text, and output in an encoding that lacks some of our signs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.streams import MOST_LINE, Cutter, printable

HOSTILE = "a\x1b]0;title\x07b\r\x9b31m\u202ec\u2066\udcff\x7f"
SHOWN = r"a\x1b]0;title\x07b\r\x9b31m\u202ec\u2066\xff\x7f"
MRCBED = (sys.executable, "-m", "testbed.cli")
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
    code = f"import sys; from testbed.streams import take_standard_streams, verbatim; take_standard_streams(); {program}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": encoding})
    return done.stdout + done.stderr


def test_what_steers_a_terminal_is_shown_as_an_escape() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("tab\tline\nöß–中😀") == "tab\tline\nöß–中😀" and printable("two\nlines", line=True) == r"two\nlines"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_standard_streams_print_text_alone(stream: str) -> None:
    assert printed(f"print({HOSTILE!r}, file=sys.{stream})", "utf-8") == f"{SHOWN}\n".encode()
    assert printed(f"print('\\x1b[1m', file=verbatim(sys.{stream}))", "utf-8") == b"\x1b[1m\n"


@pytest.mark.parametrize(("encoding", "shown"), [("latin-1", b"\xb5s - x \\u4e2d"), ("ascii:strict", b"us - x \\u4e2d")])
def test_what_an_encoding_lacks_is_replaced(encoding: str, shown: bytes) -> None:
    assert printed("print('µs – x 中')", encoding) == shown + b"\n"


def test_commands_keep_their_status_in_any_encoding(tmp_path: Path) -> None:
    def mrcbed(encoding: str, *words: str | Path) -> bytes:
        locale = {"PYTHONIOENCODING": encoding, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        done = subprocess.run([*MRCBED, *map(str, words)], capture_output=True, env={**os.environ, **locale}, check=False)
        assert done.returncode == 0 and b"internal" not in done.stderr, (words, done.stdout, done.stderr)
        done.stdout.decode(encoding)
        return done.stdout

    one, other = tmp_path / "one", tmp_path / "other"
    for out in (one, other):
        assert b"Verdict: ok" in mrcbed("latin-1", "run", "smoke", "--world", "simulated", "--set", "workload.steps=8", "--out", out)
    mrcbed("ascii", "check", "demo")
    mrcbed("ascii", "top", "--once", one)
    mrcbed("ascii", "compare", one, other, "--out", tmp_path / "both")
    mrcbed("ascii", "report", one)
    mrcbed("ascii", "fluid", "--nics", "1024", "--draws", "2")


def test_names_of_files_faults_and_checks_reach_the_terminal_as_text(tmp_path: Path) -> None:
    """Also those that str.format(), rich or Matplotlib would read as their own."""

    def mrcbed(*words: str | Path) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([*MRCBED, *words], capture_output=True, text=True, check=False)
        assert not set("\x1b\u202e") & set(done.stdout + done.stderr), (words, done.stdout, done.stderr)
        return done

    path = tmp_path / "evil\x1b[2J\n\u202e.toml"
    missing = mrcbed("check", path)
    assert missing.returncode == 2 and missing.stderr.count("\n") == 1 and r"evil\x1b[2J\n\u202e.toml" in missing.stderr
    path = tmp_path / "kind.toml"
    path.write_text(SCENARIO.replace("中", r"\u001b[31m"))
    assert mrcbed("check", path).stderr.endswith(" must be one line of text without control characters, of at most 200 letters\n")
    path.write_text(SCENARIO)
    done = mrcbed("run", path, "--world", "simulated", "--out", tmp_path / "out")
    shown = r"{a} %s [red] $x_{1}\nosuch$ 中|<b>\u202e"
    assert "Glyph" not in done.stderr
    assert done.returncode == 1 and f"ok     holds {shown}" in done.stdout and f"FAILED fails {shown}" in done.stdout, done.stderr
    for words in (("check", path), ("top", "--once", tmp_path / "out"), ("report", tmp_path / "out"), ("plot", tmp_path / "out")):
        assert mrcbed(*words).returncode == 0, words


def test_lines_are_cut_from_pieces_and_long_ones_cut_short() -> None:
    cutter = Cutter()
    assert cutter.lines("a\nb") == ["a"] and cutter.lines("c\n\n") == ["bc", ""] and cutter.end() == []
    assert cutter.lines("x" * MOST_LINE) == [] and cutter.lines("\n") == ["x" * MOST_LINE]
    for _ in range(3):
        assert cutter.lines("y" * MOST_LINE) == []
    assert sys.getsizeof("".join(cutter._parts)) < MOST_LINE + 100
    assert cutter.lines("y\nz") == ["y" * MOST_LINE + f" ... and {2 * MOST_LINE + 1:,} characters more, left out"]
    assert cutter.end() == ["z"] and cutter.end() == []
