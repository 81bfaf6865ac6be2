"""What the package and the source archive hold is what the tree holds, and what the versions of a
release are. Builds no wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("topologies", "agents", "testbed", "scenarios", "mrcbed")
BUILT = (".so", ".pyc", ".bpf.o")
NOT_IN_THE_ARCHIVE = (
    ".github/",
    ".ci/",
    ".gitignore",
    ".git-blame-ignore-revs",
    ".pre-commit-config.yaml",
)
"""What git has for repository hosts and their users alone."""


def setup_py(*words: str, **settings: str) -> None:
    environment = {**os.environ, "MRCBED_NO_COMPILE": "1", **settings}
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def files_below(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(BUILT)
    }


def pins(file: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / file).read_text(), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Metadata of the package as a wheel has it."""
    place = tmp_path_factory.mktemp("info")
    setup_py("egg_info", "--egg-base", str(place))
    return place / "mrcbed.egg-info"


def test_every_file_of_the_rooms_is_in_the_package(tmp_path: Path) -> None:
    """Whatever the code opens beside itself: scenarios, fabrics, templates, pages, scripts, C."""
    setup_py(
        "egg_info", "--egg-base", str(tmp_path), "build_py", "--build-lib", str(tmp_path / "lib")
    )
    tree = {f"{room}/{name}" for room in ROOMS for name in files_below(ROOT / room)}
    assert files_below(tmp_path / "lib") == tree
    assert {
        "testbed/bench/blaster.c",
        "testbed/wireshark/mrc.lua",
        "scenarios/smoke.toml",
        "testbed/view/static/view.html",
    } <= tree


def test_the_archive_holds_what_git_holds(info: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no clone")
    words = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    tracked = subprocess.run(
        words, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    expected = {
        name
        for name in tracked
        if name and not name.startswith(NOT_IN_THE_ARCHIVE) and (ROOT / name).exists()
    }
    assert expected - set((info / "SOURCES.txt").read_text().splitlines()) == set()


def test_what_the_wheel_requires_is_pinned_once(info: Path) -> None:
    text, _, extras = (info / "requires.txt").read_text().partition("[ryu]")
    extra, _, of_sweep = extras.partition("[sweep]")
    required = dict(line.lower().replace("_", "-").split("==") for line in text.split())
    of_ryu = dict(line.split("==") for line in extra.split())
    assert dict(line.lower().replace("_", "-").split("==") for line in of_sweep.split()) == pins(
        "requirements/sweep.txt"
    )
    pinned = pins("requirements/run.txt")
    assert set(of_ryu) == {"ryu", "tinyrpc"}
    assert required == {
        name: version for name, version in pinned.items() if name not in of_ryu
    } | pins("requirements/os-ken.txt")
    assert "librt" in required, "compiled code needs it when it runs"


def test_make_install_keeps_ryu(tmp_path: Path) -> None:
    setup_py("egg_info", "--egg-base", str(tmp_path), MRCBED_WITH_RYU="1")
    required = (tmp_path / "mrcbed.egg-info/requires.txt").read_text().partition("[")[0].split()
    assert {line.partition("==")[0] for line in required} >= {"ryu", "eventlet"}
    assert not any(line.startswith("os-ken") for line in required)


def test_a_wheel_is_built_with_the_versions_that_make_install_builds_with() -> None:
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    pinned = pins("requirements/run.txt") | pins("requirements/build.txt")
    for requirement in requires:
        name, version = requirement.lower().replace("_", "-").split("==")
        # Ryu needs an old setuptools
        assert name == "setuptools" or pinned[name] == version, requirement


def test_the_version_stands_in_one_place(info: Path) -> None:
    version = (ROOT / "VERSION").read_text().strip()
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version)
    assert f"\nVersion: {version}\n" in (info / "PKG-INFO").read_text()
    assert version not in (ROOT / "setup.py").read_text()
    assert f"mrcbed {version}" in (ROOT / "docs/reference/mrcbed.1").read_text()
