"""`make quick`: lint, and the tests nearest to a change, in under a minute. ``python -m
tests.suite.quick [--base COMMIT]``, without root.

The change is what differs from the main branch, files that git does not know yet included. Nearest:
a test file that changed itself, or is the twin of a changed module; then what imports a changed
module, at one remove, two removes, and so on (an import inside of a function counts as any other);
then the tests that a table names for files that are not Python. Files start in this order until the
time is used, and a test that is still going then is left out. The last line says what was left out.
The exit status is 1 if lint or a test failed.
"""

from __future__ import annotations

import argparse
import ast
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import filter as fnmatch_filter
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import grimp
import pytest

from tests.suite import budgets

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("agents", "mrcbed", "scenarios", "testbed", "topologies")
STARTS_S, STOPS_S, ENDS_S = 42, 50, 56
"""Until when tests start, and when a test or lint that is going is left out, s after the beginning
[ours]: ends take some seconds."""
NEAR_S = 150.0
"""CPU seconds, by the budgets, of the files that are tried: more than two cores do until then,
should budgets be too high."""
ROOT_ONLY = ("tests/emulated/", "tests/soak/")
"""Tests that need root, or hours."""
BY_NAME = {
    "agents.collectives.registry": "agents.collectives.*",
    "agents.nic.device": "agents.*.endpoint",
    "mrcbed.cli": "mrcbed.cli.*",
    "scenarios.show.plots": "scenarios.show.plots.*",
    "testbed.faults.kinds": "testbed.faults.kinds.*",
}
"""Modules that import others by a name made at run time, which no reader of imports sees."""
OTHERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("docs/start/lessons/*", ("tests/scenarios/lessons",)),
    ("docs/examples/*", ("tests/scenarios/figures/test_results.py",)),
    ("docs/guests/*", ("tests/docs/test_guests.py", "tests/vm/test_guest.py")),
    ("*.md", ("tests/docs/test_check.py", "tests/docs/test_keys.py", "tests/docs/test_man.py")),
    ("docs/*", ("tests/docs",)),
    ("scenarios/sets/validation/*", ("tests/scenarios/sets/test_validation.py",)),
    (
        "scenarios/sets/paper/*",
        ("tests/scenarios/sets/test_paper.py", "tests/scenarios/sets/test_paper_series.py"),
    ),
    ("scenarios/sets/tables/*", ("tests/scenarios/sets/test_reference.py",)),
    ("scenarios/sets/fingerprint/*", ("tests/scenarios/sets/test_provenance.py",)),
    ("scenarios/show/*", ("tests/scenarios/show/test_html_report.py",)),
    (
        "scenarios/*.toml",
        (
            "tests/scenarios/schema/test_schema.py",
            "tests/scenarios/schema/test_dilation.py",
            "tests/docs/test_keys.py",
        ),
    ),
    ("topologies/*", ("tests/topologies",)),
    ("testbed/view/*", ("tests/testbed/view", "tests/browser")),
    ("testbed/wireshark/*", ("tests/testbed/wireshark",)),
    ("testbed/dataplane/*", ("tests/emulated/test_dataplane.py", "tests/emulated/test_queue.py")),
    ("tests/fuzz/corpus/*", ("tests/fuzz/test_corpus.py",)),
    ("results/reference/*", ("tests/scenarios/sets/test_reference.py", "tests/docs")),
    ("requirements/*.txt", ("tests/docs/test_dependencies.py",)),
    ("pyproject.toml", ("tests/docs", "tests/wheel")),
    (".github/*", ("tests/docs/test_workflow.py",)),
    ("Makefile", ("tests/docs/test_workflow.py",)),
    ("*", ("tests/docs", "tests/wheel")),
)
"""What tests a file that is not Python: the first pattern that fits."""


def git(*words: str) -> list[str]:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def default_base() -> str:
    """The main branch, as the clone's origin has it if there is one. On the main branch itself that
    leaves what was not pushed yet."""
    known = set(git("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes"))
    return next(
        (name for name in ("origin/main", "main", "origin/master", "master") if name in known),
        "HEAD",
    )


def changed(base: str) -> list[str]:
    """Files that differ from where this branch left ``base``, deleted ones too. Raises
    CalledProcessError if git knows no such commit."""
    left = git("merge-base", "HEAD", base)[0]
    return sorted(
        {*git("diff", "--name-only", left), *git("ls-files", "--others", "--exclude-standard")}
    )


def test_files() -> list[str]:
    """All test files, below the root."""
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py"))


def module_of(file: str) -> str:
    """``agents.mrc`` of agents/mrc/__init__.py."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def twins(file: str, tests: Iterable[str]) -> list[str]:
    """Tests of the same path: test_queue.py and test_queue_overload.py of queue.py; a folder's of
    its ``__init__`` and of helpers."""
    path = Path(file.removeprefix("tests/"))
    folder = Path("tests", path.parent)
    if path.name == "conftest.py":
        return [test for test in tests if test.startswith(f"{folder}/")]
    if path.stem == "__init__" or file.startswith("tests/"):
        return [test for test in tests if Path(test).parent == folder]
    exact = [test for test in tests if Path(test) == folder / f"test_{path.stem}.py"]
    return exact + [test for test in tests if Path(test).match(f"{folder}/test_{path.stem}_*.py")]


@cache
def imports_of(file: str) -> frozenset[str]:
    """The modules that a Python file names in imports, wherever these stand, and what it takes out
    of packages."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_bytes())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
    return frozenset(found)


@cache
def graph() -> grimp.ImportGraph:
    """Who imports whom in the source."""
    sources = grimp.build_graph(*ROOMS, cache_dir=None)
    for importer, pattern in BY_NAME.items():
        for imported in fnmatch_filter(sources.modules - {importer}, pattern):
            sources.add_import(importer=importer, imported=imported)
    return sources


def removes(modules: set[str], tests: list[str]) -> dict[str, int]:
    """By how many imports a test file is away from the nearest of ``modules``; files that do not
    reach one are left out."""
    sources = graph()
    helpers = {
        module_of(str(path.relative_to(ROOT))): str(path.relative_to(ROOT))
        for path in ROOT.glob("tests/**/*.py")
    }
    away = dict.fromkeys(modules, 0)
    ring, far = set(modules), 0
    while ring:
        far += 1
        upstream = {
            user
            for module in ring
            if module in sources.modules
            for user in sources.find_modules_that_directly_import(module)
        }
        upstream |= {
            helper for helper, file in helpers.items() if not ring.isdisjoint(imports_of(file))
        }
        ring = upstream - away.keys()
        away |= dict.fromkeys(ring, far)
    return {test: away[module_of(test)] for test in tests if module_of(test) in away}


def nearest(files: list[str]) -> list[str]:
    """Test files, the nearest to a change of ``files`` first."""
    tests = test_files()
    python = [file for file in files if file.endswith(".py")]
    found = [file for file in files if file in tests]
    found += [test for file in python if file not in tests for test in twins(file, tests)]
    away = removes({module_of(file) for file in python if file not in tests}, tests)
    costs = budgets.budgets()
    # of one remove the cheap ones first: more of them
    found += sorted(away, key=lambda test: (away[test], costs.get(test, 0), test))
    for file in files:
        if file not in python:
            named = next(names for pattern, names in OTHERS if fnmatch(file, pattern))
            found += [
                test
                for test in tests
                if any(test == name or test.startswith(f"{name}/") for name in named)
            ]
    return list(dict.fromkeys(found))


def chosen(tests: list[str], costs: dict[str, float], most_s: float = NEAR_S) -> list[str]:
    """Of ``tests``, in their order, as many as fit into so many CPU seconds, and at least one."""
    taken, used = [], 0.0
    for test in tests:
        cost = costs.get(test, budgets.USUAL_S)
        if taken and used + cost > most_s:
            continue
        taken.append(test)
        used += cost
    return taken


class TimeUp(BaseException):
    """The time of `make quick` is used: a test that is still going ends, and is left out."""


class Deadline:
    """In each worker of pytest: no test starts after ``STARTS_S``, and none goes on after
    ``STOPS_S``."""

    def __init__(self, begun: float) -> None:
        self.begun = begun

    @contextmanager
    def limited(self) -> Iterator[None]:
        """For one phase of a test, outside of which nobody would catch it."""
        if time.monotonic() > self.begun + STARTS_S:
            pytest.skip(OUT_OF_TIME)
        signal.signal(signal.SIGALRM, _time_is_up)
        signal.setitimer(signal.ITIMER_REAL, max(0.1, self.begun + STOPS_S - time.monotonic()))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        with self.limited():
            yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        with self.limited():
            yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        report = yield
        if call.excinfo is not None and call.excinfo.errisinstance(TimeUp):
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, OUT_OF_TIME)
        return report


OUT_OF_TIME = "the time of make quick is used"
BEGUN = "MRCBED_QUICK_BEGUN"


def _time_is_up(*_: object) -> None:
    raise TimeUp


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin (``-p tests.suite.quick``) in pytest and its workers."""
    config.pluginmanager.register(Deadline(float(os.environ[BEGUN])), budgets.DEADLINE)


def _lint() -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["make", "--no-print-directory", "lint"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _ended(lint: subprocess.Popen[str], begun: float) -> tuple[str, str]:
    """*passed*, *FAILED* or *not finished*, and what it said."""
    try:
        said, _ = lint.communicate(timeout=max(1.0, begun + ENDS_S - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(lint.pid, signal.SIGTERM)
        return "not finished", lint.communicate()[0]
    return ("FAILED" if lint.returncode else "passed"), said


def main(arguments: list[str]) -> int:
    begun = time.monotonic()
    parser = argparse.ArgumentParser(
        prog="python -m tests.suite.quick", description="Lint, and the tests nearest to a change."
    )
    parser.add_argument(
        "--base", default=default_base(), help="what the change is compared with; %(default)s"
    )
    parser.add_argument(
        "--list", action="store_true", help="print the test files, nearest first, and run nothing"
    )
    asked = parser.parse_args(arguments)
    try:
        files = changed(asked.base)
    except (subprocess.CalledProcessError, IndexError):
        parser.error(
            f"git knows no common commit of HEAD and {asked.base!r}: name another --base (make "
            "quick BASE=...)"
        )
    if asked.list:
        print("\n".join(nearest(files)))
        return 0
    lint = _lint()
    found = nearest(files)
    rootless = [test for test in found if not test.startswith(ROOT_ONLY)]
    taken = chosen(rootless, budgets.budgets())
    print(
        f"{len(files)} files differ from {asked.base}; {len(found)} test files are near, "
        f"{len(taken)} are tried",
        flush=True,
    )
    status, skipped = 0, 0
    if taken:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.suite.quick",
            "-n",
            str(os.cpu_count() or 1),
            "--dist",
            "loadfile",
        ]
        command += ["--no-loadscope-reorder", "-m", "not soak", "-rs", "--no-header", *taken]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {BEGUN: str(begun)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        shown = [line for line in done.stdout.splitlines() if OUT_OF_TIME not in line]
        skipped = sum(
            int(line.partition("[")[2].partition("]")[0])
            for line in done.stdout.splitlines()
            if OUT_OF_TIME in line
        )
        print("\n".join(shown))
        status = int(done.returncode not in (0, 5))  # 5: no test was left after -m
    verdict, said = _ended(lint, begun)
    print(said if verdict != "passed" else "lint passed")
    status |= verdict == "FAILED"
    left = [(skipped, "tests of these"), (len(rootless) - len(taken), "files further away")]
    left += [
        (len(found) - len(rootless), "files that need root or hours"),
        (len(test_files()) - len(found), "files that the change does not reach"),
    ]
    omitted = [f"{number} {what}" for number, what in left if number] + (
        ["lint"] if verdict == "not finished" else []
    )
    word, took = "FAILED" if status else "passed", time.monotonic() - begun
    print(
        f"make quick: {word} in {took:.0f} s; left out: {', '.join(omitted) or 'nothing'}; `sudo "
        "make test` runs all"
    )
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
