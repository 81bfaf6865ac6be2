"""`make quick`: which tests are near to a change, and in what order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite import budgets, quick


@pytest.mark.parametrize(
    ("file", "first"),
    [
        # the twin
        ("agents/mrc/receiver/responder.py", "tests/agents/mrc/receiver/test_responder.py"),
        ("tests/agents/mrc/test_wire.py", "tests/agents/mrc/test_wire.py"),  # a test itself
        # by the table
        ("scenarios/sets/validation/ring.toml", "tests/scenarios/sets/test_validation.py"),
        ("scenarios/smoke.toml", "tests/docs/test_keys.py"),
        ("testbed/view/live.js", "tests/browser/test_live_page.py"),
        ("docs/start/lessons/1-planes.md", "tests/scenarios/lessons/test_lessons.py"),
        ("requirements/run.txt", "tests/docs/test_dependencies.py"),
        ("requirements/apt-packages", "tests/docs/test_architecture.py"),  # the last pattern
    ],
)
def test_the_nearest_test_comes_first(file: str, first: str) -> None:
    assert quick.nearest([file])[0] == first


def test_then_come_imports_the_shorter_way_first_deferred_and_made_up_names_included() -> None:
    near = quick.nearest(["agents/mrc/receiver/responder.py"])
    engine, network = (
        near.index("tests/agents/mrc/test_wire.py"),
        near.index("tests/simulated/test_network.py"),
    )
    assert 0 < engine < network  # the simulated network loads agents.mrc.endpoint by its name
    assert "tests/mrcbed/cli/test_export.py" in quick.nearest(
        ["mrcbed/cli/results/export.py", "scenarios/show/export/__init__.py"]
    )
    assert "tests/topologies/test_ecmp.py" not in near


@pytest.mark.parametrize("plugin", ["tests.suite.quick", ""])
def test_files_run_in_the_order_that_was_chosen_not_the_dearest_first(plugin: str) -> None:
    files = ["tests/suite/test_makefile.py", "tests/forms/test_ranges.py"]
    costs = budgets.budgets()
    assert costs.get(files[0], budgets.USUAL_S) < costs[files[1]]
    words = [sys.executable, "-m", "pytest", "--collect-only", *files]
    ran = subprocess.run(
        words + (["-p", plugin] if plugin else []),
        cwd=quick.ROOT,
        env=os.environ | {quick.BEGUN: "0"},
        capture_output=True,
        text=True,
    )
    found = [line.partition("::")[0] for line in ran.stdout.splitlines() if "::" in line]
    assert list(dict.fromkeys(found)) == (files if plugin else files[::-1]), ran.stdout


def test_names_made_at_run_time_are_all_in_the_table() -> None:
    """Who imports by a name: from outside (a user's congestion control, a framework) nothing of
    ours can be meant."""
    outside = {
        "mrcbed",
        "agents.mrc.sender.congestion.choice",
        "testbed.conform.targets",
        "testbed.controller.framework",
    }
    found = {
        quick.module_of(str(path.relative_to(quick.ROOT)))
        for room in quick.ROOMS
        for path in (quick.ROOT / room).rglob("*.py")
        if "import_module(" in path.read_text()
    }
    assert found == quick.BY_NAME.keys() | outside


def test_what_fits_is_taken_in_order_and_the_nearest_always() -> None:
    costs = {"a": 500.0, "b": 100.0, "c": 60.0, "d": 1.0}
    assert quick.chosen(["a", "b", "d"], costs) == ["a"]
    # e: as a file without a line
    assert quick.chosen(["b", "c", "d", "e"], costs) == ["b", "d", "e"]
    assert quick.chosen([], costs) == []


def test_a_change_is_what_differs_from_the_branch_point_new_files_included(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e", *words],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    git("init", "-b", "main")
    for name in ("kept", "gone", "edited"):
        (tmp_path / name).write_text(name)
    git("add", "."), git("commit", "-m", "first")
    git("checkout", "-b", "mine")
    (tmp_path / "gone").unlink()
    git("commit", "-a", "-m", "second")
    git("checkout", "main")
    (tmp_path / "kept").write_text("main went on, which is no change of mine")
    git("commit", "-a", "-m", "third")
    git("checkout", "mine")
    (tmp_path / "edited").write_text("now")
    (tmp_path / "new").write_text("now")
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    assert quick.default_base() == "main" and quick.changed("main") == ["edited", "gone", "new"]
    with pytest.raises(SystemExit) as ended:
        quick.main(["--base", "nothing"])
    assert ended.value.code == 2


def test_a_test_that_is_going_ends_with_the_time_and_none_starts_afterwards(tmp_path: Path) -> None:
    """As `make quick` runs pytest; nothing is left of the time, but a tenth of a second for what
    has begun."""
    going = (
        "import threading\nfrom tests.suite import quick\ndef test_a():\n"
        "    quick.STARTS_S = -1\n    threading.Event().wait(200)\n"
    )
    (tmp_path / "test_long.py").write_text(f"{going}def test_b(): assert False\n")
    program = (
        "import os, sys, time, pytest\nfrom tests.suite import quick\n"
        "os.environ[quick.BEGUN], quick.STARTS_S, quick.STOPS_S = str(time.monotonic()), 1e9, "
        "0\nsys.exit(pytest.main(['-p', 'tests.suite.quick', '-rs', '-c', '/dev/null', "
        f"'--rootdir', {str(tmp_path)!r}, {str(tmp_path)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=quick.ROOT, capture_output=True, text=True, check=False
    )
    assert (
        done.returncode == 0 and "2 skipped" in done.stdout and quick.OUT_OF_TIME in done.stdout
    ), done.stdout + done.stderr
