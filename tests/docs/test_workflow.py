"""The workflow for public repositories: valid, pinned, and asking for nothing that the Makefile
lacks. Only its runner can pass it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from docs.tools.check import ROOT

JOBS: dict[str, dict[str, Any]] = yaml.safe_load(
    (ROOT / ".github/workflows/tests.yml").read_text()
)["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]


def test_actions_are_pinned_to_a_version() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", name)] == []


@pytest.mark.parametrize(
    "words",
    [
        words
        for step in STEPS
        for words in re.findall(r"^(?:sudo )?make ([^#&\n]+)", step.get("run", ""))
    ],
)
def test_make_has_the_targets(words: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {word for word in re.sub(r"-o \w+", "", words).split() if "=" not in word}
    assert asked and asked <= targets


def test_every_python_that_is_promised_is_tried() -> None:
    assert JOBS["rootless"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert JOBS["emulated"]["strategy"]["matrix"]["image"] == ["debian:12", "debian:13"]


def test_what_users_set_on_makes_command_line_has_one_meaning() -> None:
    """A variable with a default (``PART ?=``) is assigned nowhere else: its own value would take
    the default's place, and the user's would change other recipes."""
    assigned = re.findall(r"^([A-Z_]+) *([?:]?=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    settable = {name for name, sign in assigned if sign == "?="}
    assert settable and {name for name, sign in assigned if sign != "?="} & settable == set()
