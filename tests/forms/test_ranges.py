"""What would wrap in C raises in source that keeps its ranges, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.forms.ranges import ROOT, OutOfRange, guard, keep, native_places

SOURCE = """
from typing import Final
from mypy_extensions import i64, u8

LATE: Final[i64] = 1 << 61

class Clock:
    def __init__(self) -> None:
        self.at: i64 = 0
        self.bits = 0

def doubled(x: i64) -> i64:
    return x * 2

def shifted(n: i64) -> i64:
    one: i64 = 1
    return one << n

def later(clock: Clock, by: i64) -> None:
    clock.at += by

def assigned(clock: Clock, x: int) -> None:
    clock.at = x

def low(x: i64) -> u8:
    return u8(x)

def negated(x: i64) -> i64:
    return -x

def grown(clock: Clock, n: int) -> int:
    clock.bits = 1 << n
    return clock.bits * clock.bits
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sample")
    path = folder / "sample.py"
    path.write_text(SOURCE)
    names: dict[str, Any] = {"__keep__": keep, "__name__": "sample"}
    exec(guard(SOURCE, str(path), native_places([path], folder)[path]), names)
    return names


@pytest.mark.parametrize(
    "call",
    [
        "doubled(LATE * 2)",
        "doubled(1 << 62)",
        "doubled(-(1 << 62) - 1)",
        "shifted(63)",
        "shifted(64)",
        "later(c, LATE); later(c, 3 * LATE)",
        "assigned(c, 1 << 63)",
        "low(256)",
        "low(-1)",
        "negated(-(1 << 63))",
    ],
)
def test_what_would_wrap_raises(module: dict[str, Any], call: str) -> None:
    names = {**module, "c": module["Clock"]()}
    with pytest.raises(OutOfRange, match="has no place in (64|8) bits"):
        exec(call, names)


@pytest.mark.parametrize(
    "call",
    [
        "doubled(LATE)",
        "doubled(-(1 << 62))",
        "shifted(62)",
        "later(c, LATE); later(c, LATE)",
        "assigned(c, (1 << 63) - 1)",
        "low(255)",
        "negated((1 << 63) - 1)",
        "grown(c, 400)",
    ],
)
def test_what_fits_and_what_python_lets_grow_does_not(module: dict[str, Any], call: str) -> None:
    exec(call, {**module, "c": module["Clock"]()})


PLANTED = """
import os
from pathlib import Path
from tests.forms import agree, ranges
place = Path("agents/mrc/framing.py").resolve()
read = ranges._Loader.get_data
def planted(self, path):
    data = read(self, path)
    if Path(path).resolve() != place:
        return data
    assert data.count(b"return now >> self.shift & 0xFFFF") == 1
    return data.replace(b"return now >> self.shift & 0xFFFF", b"return now << self.shift & 0xFFFF")  # the same place and type
agree.STORIES = 50
ranges.ROOMS = ("agents.mrc.", "agents.packets.")  # the rest is for `make agree`
with ranges.kept():  # once for both: what is native takes mypy longest
    if child := os.fork():
        os.waitpid(child, 0)
        print("as it is", flush=True)
    else:
        ranges._Loader.get_data = planted
    agree.stories("mrc", 300, 1)
"""  # noqa: E501


@pytest.mark.dear("mypy reads the whole engine, in a process of its own")
def test_a_wrap_planted_into_the_engine_is_found_and_nothing_else() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PLANTED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    planted, sound = ran.stdout.split("as it is\n")
    assert "has no place in 64 bits" in planted and ran.returncode == 0, ran.stderr[-2000:]
    assert int(sound.split()[-2]) >= 300, "it played to the end"
