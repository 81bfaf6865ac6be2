"""Two measurements on one machine: the second is refused and told who the first is; whoever dies
lets go."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.machine.exclusive import Measuring, measuring, refuse_if_measuring
from tests.suite.contained import unique

NAME = unique("mrcbed")
HOLD = """
import sys
from pathlib import Path
from testbed.machine.exclusive import measuring
with measuring(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path: the notice has 107 bytes."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture
def holder(place: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that measures."""
    words = [sys.executable, "-c", HOLD, str(place), NAME]
    root, pipe = Path(__file__).resolve().parents[3], subprocess.PIPE
    with subprocess.Popen(words, cwd=root, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_second_is_refused_and_told_who_the_first_is(
    holder: subprocess.Popen[str], place: Path
) -> None:
    for ask in (
        lambda: refuse_if_measuring(NAME),
        lambda: measuring(place / "other", NAME).__enter__(),
    ):
        with pytest.raises(Measuring) as told:
            ask()
        line = str(told.value)
        assert (
            f"(process {holder.pid}, results in {place.resolve()})" in line
            and "\n" not in line
            and told.value.status == 2
        )


def test_whoever_is_killed_lets_go(holder: subprocess.Popen[str], place: Path) -> None:
    holder.kill()
    holder.wait()
    refuse_if_measuring(NAME)
    with measuring(place, NAME):
        pass


def test_it_is_held_for_as_long_as_the_run_lasts_and_no_longer(place: Path) -> None:
    with pytest.raises(ZeroDivisionError), measuring(place, NAME):
        with pytest.raises(Measuring):
            refuse_if_measuring(NAME)
        1 / 0  # noqa: B018
    refuse_if_measuring(NAME)


def test_a_long_name_of_a_directory_is_cut(place: Path) -> None:
    with measuring(place / ("d" * 200), NAME), pytest.raises(Measuring, match=r"d\.\.\.\)"):
        refuse_if_measuring(NAME)


def test_another_name_is_another_matter(place: Path) -> None:
    with measuring(place, NAME), measuring(place, NAME + "-other"):
        refuse_if_measuring(NAME[:-1])
