"""Are deliberate bugs in the MRC engine caught? ``python -m tests.mutations [NAME...] [--jobs N]``,
`make mutations`.

Each bug of catalogue.py goes into a copy of the tree of its own, and the tests of the endpoint run
there on the engine's source: those that guard it first, then all of tests/agents. A bug is caught
by a test that fails with it and passes without it. Exit status 1 if a bug survives, 2 if one cannot
be tried. Never touches the tree that it is started from.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.catalogue import MUTATIONS, ROOT, Mutation

COPIED = ("agents", "mrcbed", "topologies", "tests", "testbed", "scenarios", "pyproject.toml")
"""What tests/agents import; no environment, no results, no compiled engine."""
UNSHRUNK = """from hypothesis import Phase, settings

settings.register_profile("unshrunk", phases=[Phase.explicit, Phase.generate], database=None)
settings.load_profile("unshrunk")
"""
"""Put beside the tests of a copy: that an example fails is enough, and to find the smallest one
takes minutes."""
ALL = ("tests/agents",)
HANGS = 300
"""Seconds after which a test that a bug keeps from ending counts as failed [ours]: a hundred times
what the slowest one takes."""
_PASSED, _FAILED = 0, 1  # pytest's exit statuses; any other means that no verdict was reached


@dataclass(frozen=True)
class Verdict:
    """What became of a bug: the test that caught it, "" if none did, or why that cannot be said."""

    mutation: Mutation
    caught_by: str = ""
    trouble: str = ""


def copy_tree(to: Path) -> None:
    """The sources, as they are now, under ``to``."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, to / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.o")
            )
        else:
            shutil.copy2(ROOT / name, to / name)
    (to / "conftest.py").write_text(UNSHRUNK)


def _failed(said: str) -> list[str]:
    """The tests that pytest's summary calls failed; a parameter in a name may hold blanks."""
    return [
        line.removeprefix("FAILED ").partition(" - ")[0]
        for line in said.splitlines()
        if line.startswith("FAILED ")
    ]


def run_tests(tree: Path, what: Iterable[str]) -> tuple[int, str, str]:
    """pytest's exit status in a copy, the first test that failed ("" for none), and all that it
    said."""
    command = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-x",
        "-q",
        "--tb=no",
        "-rfE",
        "-m",
        "not soak",
        "--hypothesis-seed=0",
        "--timeout",
        str(HANGS),
        "-p",
        "no:cacheprovider",
        *what,
    ]
    # not the tree that `pip install -e` names
    environment = {**os.environ, "MRCBED_INTERPRETED": "1", "PYTHONPATH": str(tree)}
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    return done.returncode, next(iter(_failed(said)), ""), said


def try_one(mutation: Mutation) -> Verdict:
    """Put one bug into a copy and see which test fails."""
    with tempfile.TemporaryDirectory(prefix="mrcbed-mutation-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        source = (tree / mutation.file).read_text()
        try:
            (tree / mutation.file).write_text(mutation.mutated(source))
        except ValueError as error:
            return Verdict(mutation, trouble=str(error))
        for what in (mutation.first, ALL):
            status, failed, said = run_tests(tree, what)
            if status == _PASSED:
                continue
            if status != _FAILED or not failed:
                last = (said.strip().splitlines() or ["it said nothing"])[-1]
                return Verdict(
                    mutation, trouble=f"pytest reached no verdict (exit status {status}): {last}"
                )
            (tree / mutation.file).write_text(source)
            status, _, said = run_tests(tree, [failed])
            if status != _PASSED:
                return Verdict(mutation, trouble=f"{failed} fails without the bug, too")
            return Verdict(mutation, caught_by=failed)
    return Verdict(mutation)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations",
        description="Are deliberate bugs in the MRC engine caught?",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="only bugs whose name contains this; all without"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="how many at once; %(default)s"
    )
    asked = parser.parse_args(arguments)
    chosen = [
        m for m in MUTATIONS if not asked.names or any(name in m.name for name in asked.names)
    ]
    if not chosen:
        parser.error(f"no bug is called so; there are: {', '.join(m.name for m in MUTATIONS)}")
    verdicts = []
    with ThreadPoolExecutor(max(1, asked.jobs)) as pool:
        for v in pool.map(try_one, chosen):
            verdicts.append(v)
            print(f"{v.mutation.name}: {v.caught_by or v.trouble or 'SURVIVES'}", flush=True)
    survivors = [v for v in verdicts if not v.caught_by and not v.trouble]
    troubled = [v for v in verdicts if v.trouble]
    caught = len(verdicts) - len(survivors) - len(troubled)
    print(
        f"\n{len(verdicts)} bugs: {caught} caught, {len(survivors)} survive, {len(troubled)} not "
        "tried"
    )
    return 2 if troubled else 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
