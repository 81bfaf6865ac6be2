"""Memory that the agent maps: what the program mapped as shared, and with MRCBED_VERBS_SHARE=1 its
private pages, too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.testbed.verbs.running import HERE, compiled, needs_the_library, under_agent

pytestmark = needs_the_library()
ON_REQUEST = ["ends in mid-page", "inside of it", "once more", "heap", "given back", "of a parent"]
ALWAYS = ["a sealed file"]
NEVER = ["over its end", "stack", "read-only", "a file that may shrink"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(HERE / "share.c", tmp_path_factory.mktemp("share") / "share", "-libverbs")


@pytest.mark.parametrize("wanted", [None, "0", "1"])
def test_which_regions_become_files(library: Path, program: Path, wanted: str | None) -> None:
    environment = {} if wanted is None else {"MRCBED_VERBS_SHARE": wanted}
    done = under_agent(program, library=library, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    said = dict(
        re.findall(
            r"^([a-z -]+): (agent: region \d+ is a file\n(?:agent: region \d+ is a file\n)*)?done$",
            done.stdout,
            re.MULTILINE,
        )
    )
    assert set(said) == {*ON_REQUEST, *ALWAYS, *NEVER, "two at a time"}
    files = {name for name, file in said.items() if file}
    assert files - {"two at a time"} == {*ALWAYS, *(ON_REQUEST if wanted == "1" else [])}
    assert said["two at a time"].count("file") == (400 if wanted == "1" else 0)
