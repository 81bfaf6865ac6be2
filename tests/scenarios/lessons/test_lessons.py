"""A student's way through the lessons: every command of every page runs, in time, and says what the page says that it says."""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.lessons.course import LESSONS
from tests.docs.check import ROOT
from tests.scenarios.lessons.pages import PAGES, Typed, fits, typed

CPU_SECONDS = 120
"""Of a whole lesson, all its commands together."""
FROM_TABLES = {
    1: {"c": r"^ mrc +16 × permutation +\S+ +\S+ +(\S+)%", "d": r"^ roce-1p +16 × permutation +\S+ +\S+ +(\S+)%"},
    2: {"a": r"^ mrc +1 +\S+ .* (\d+) µs \(\d+\)", "b": r"^ mrc +1 +(\S+)×", "c": r"^ roce +12/12 +\S+ +(\S+)"},
    3: {
        "a": r"^ mrc +7 × incast +\S+ +(\S+)%",
        "d": r"^ mrc +(\d+) +\d+ +\d+ +\d+ +\d+ +\d+ +\d+ +–",
        "e": r"^ mrc +victim .* (\S+)% *$",
        "f": r"^ roce +victim .* (\S+)% *$",
    },
    4: {"c": r"within 20 RTTs of the loss of carrier: .* seen (\S+)$"},
}
"""Where the tables of ``mrcbed run`` have an answer: what a student reads there must be right."""
IN_TABLES = {(2, "c"): 1e-3}
"""Factors of units, where table and question differ."""


def terminal(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a page's command as a student does in a folder, without root if possible."""
    program, *arguments = shlex.split(command)
    assert program == "mrcbed", command
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    line = [sys.executable, "-m", "testbed.cli", *arguments]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)


def follow(item: Typed, folder: Path) -> str:
    """Do what the page says. Returns what a run printed; asserts that replies are those of the page."""
    if item.python:
        line, environment = [sys.executable, "-c", item.text], os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0 and done.stdout, done.stderr
        return ""
    done = terminal(item.text, folder)
    if item.text.startswith("mrcbed run"):
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    assert fits(item.replies, done.stdout + done.stderr), f"{item.text}\n{done.stdout}{done.stderr}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_lesson_from_its_page(page: Path, tmp_path: Path) -> None:
    number = int(page.name[0])
    lesson = LESSONS[number]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    tables = "".join(follow(item, tmp_path) for item in typed(page))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"lesson {number}: {spent:.0f} s of CPU time")
    assert spent < CPU_SECONDS

    shown = dict(line.split("  ", 1) for line in terminal(f"mrcbed lesson {number} --show", tmp_path).stdout.splitlines())
    assert list(shown) == list(lesson.by_key)
    right = terminal(shlex.join(["mrcbed", "lesson", str(number), *(f"{key}={value}" for key, value in shown.items())]), tmp_path)
    assert right.returncode == 0 and "Well done." in right.stdout, right.stdout
    for key, pattern in FROM_TABLES.get(number, {}).items():
        found = re.search(pattern, tables, re.MULTILINE)
        assert found, (key, tables)
        read = float(found[1].replace(",", "")) * IN_TABLES.get((number, key), 1)
        assert terminal(f"mrcbed lesson {number} {key}={read:g}", tmp_path).returncode == 0, (key, read, shown)
        assert terminal(f"mrcbed lesson {number} {key}={read * 1.5 + 3:g}", tmp_path).returncode == 1, key


def test_every_lesson_has_its_page_and_every_page_its_commands() -> None:
    assert [f"docs/lessons/{page.name}" for page in PAGES] == [lesson.page for lesson in LESSONS.values()]
    for page, lesson in zip(PAGES, LESSONS.values(), strict=True):
        assert page.read_text().startswith(f"# Lesson {lesson.number}: {lesson.title}\n")
        commands = [item.text for item in typed(page)]
        assert [planned.command for planned in lesson.runs] == [c for c in commands if c.startswith("mrcbed run")]
        prose = " ".join(page.read_text().split())  # the terminal breaks lines, and the page shows it
        assert all(f" {question.key} {question.text} " in prose for question in lesson.questions)
