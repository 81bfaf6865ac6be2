"""The verbs library alone: every public function against an agent without a fabric, under gcc's
sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.verbs import build
from tests.testbed.verbs.running import HERE, compiled, needs_the_library, under_agent

pytestmark = needs_the_library()
SANITIZED = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-fno-omit-frame-pointer",
)
OPTIONS = "verify_asan_link_order=0:detect_leaks=1"
PARTS = (
    "names",
    "device",
    "memory",
    "queues",
    "states",
    "posts",
    "builders",
    "completions",
    "child",
    "threads",
)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The library, and the program that calls all of it."""
    folder = tmp_path_factory.mktemp("sanitized")
    library = folder / "libmrcbed-verbs.so"
    build.compile_library(library, ("-g", *SANITIZED))
    return library, compiled(HERE / "every.c", folder / "every", *SANITIZED, "-libverbs")


@pytest.mark.dear("compiles the library with sanitizers")
@pytest.mark.parametrize("words", ["", "deaf", "slow"])
@pytest.mark.parametrize("part", PARTS)
def test_every_function(sanitized: tuple[Path, Path], part: str, words: str) -> None:
    library, program = sanitized
    done = under_agent(program, part, library=library, words=words, ASAN_OPTIONS=OPTIONS)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    said = done.stderr.splitlines()
    assert all(line.startswith("mrcbed: ") for line in said), done.stderr
    assert len(said) == len(set(said))  # each operation that there is not is named once


def test_an_agent_that_goes(sanitized: tuple[Path, Path]) -> None:
    library, program = sanitized
    done = under_agent(
        program, "orphaned", library=library, words="deaf die-on-post", ASAN_OPTIONS=OPTIONS
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_mrc_does_not_have_is_said_once(sanitized: tuple[Path, Path]) -> None:
    library, program = sanitized
    done = under_agent(program, "posts", library=library, ASAN_OPTIONS=OPTIONS)  # hundreds of posts
    operations = (
        "SEND",
        "SEND with immediate",
        "RDMA READ",
        "atomic compare and swap",
        "atomic fetch and add",
        "local invalidate",
        "bind of a memory window",
        "SEND with invalidate",
        "segmentation offload",
        "this operation",
        "atomic write",
    )
    end = "RDMA WRITE and WRITE with immediate alone; see docs/how/verbs.md"
    assert sorted(done.stderr.splitlines()) == sorted(
        f"mrcbed: {name}: MRC has {end}" for name in operations
    )
    done = under_agent(program, "posts", library=library, words="roce", ASAN_OPTIONS=OPTIONS)
    assert f"mrcbed: SEND: programs on emulated hosts have {end}" in done.stderr.splitlines()
