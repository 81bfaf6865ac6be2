"""The Makefile runs every test: the files that it names exist, and every test file is in a folder
that it hands to pytest."""

from __future__ import annotations

import re

from tests.suite.quick import ROOT


def test_the_files_that_begin_first_exist_and_no_test_lies_outside_the_folders() -> None:
    text = (ROOT / "Makefile").read_text()
    longest = re.search(
        r"^LONGEST := \$\(patsubst %,tests/emulated/test_%\.py,(.*)\)$", text, re.MULTILINE
    )
    engines = re.search(
        r"^WHOLE_ENGINES := \$\(addprefix tests/agents/,(.*?)\) \$\(addprefix "
        r"tests/simulated/,(.*?)\)$",
        text,
        re.M | re.S,
    )
    assert longest and engines and "$(wildcard tests/*/)" in text
    named = [f"tests/emulated/test_{name}.py" for name in longest[1].split()]
    named += [
        f"tests/{room}/{name}"
        for room, names in zip(("agents", "simulated"), engines.groups(), strict=True)
        for name in names.replace("\\", " ").split()
    ]
    assert len(named) > 15 and [name for name in named if not (ROOT / name).is_file()] == []
    assert list((ROOT / "tests").glob("test_*.py")) == []
