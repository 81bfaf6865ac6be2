"""The wheel and the source archive in dist/, installed into empty environments and run there: by
nobody, and by root. `make dist-test`.

A copy that pip installed has no clone around it: whatever it opens must have come with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65_534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
pytestmark = pytest.mark.soak


class Installed:
    """An environment with nothing but the package and what it requires, and an empty folder to work
    in."""

    def __init__(self, place: Path, archive: Path, **settings: str) -> None:
        self.place, self.work = place, place / "work"
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MRCBED", "PYTHON", "VIRTUAL"))
        }
        subprocess.run([sys.executable, "-m", "venv", place / "env"], check=True)
        pip = [
            place / "env/bin/python",
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            archive,
        ]
        subprocess.run(pip, cwd=place, check=True, env={**self.environment, **settings})
        self.work.mkdir()
        if os.geteuid() == 0:
            os.chown(self.work, NOBODY, NOBODY)

    def mrcbed(self, *words: str, root: bool = False, **settings: str) -> str:
        """Its output; as nobody unless ``root``. Fails with what it says if it does."""
        become = (
            []
            if root or os.geteuid() != 0
            else ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        )
        environment = {**self.environment, "HOME": str(self.work), **settings}
        command = [*become, str(self.place / "env/bin/mrcbed"), *words]
        done = subprocess.run(
            command, cwd=self.work, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, 3 if root else 0), (
            f"{words}: {done.returncode}: {done.stdout[-500:]}{done.stderr[-2000:]}"
        )
        return done.stdout


def archive(pattern: str) -> Path:
    found = sorted((ROOT / "dist").glob(pattern))
    if len(found) != 1:
        pytest.fail(f"dist/ holds {len(found)} of {pattern}: make dist")
    return found[0]


@pytest.fixture
def place() -> Iterator[Path]:
    # pytest's own folders are closed to nobody
    folder = Path(tempfile.mkdtemp(prefix="mrcbed-dist-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_the_wheel_runs(place: Path) -> None:
    """One test, since an environment takes a minute to make: the commands that a clone's user has,
    without a clone."""
    wheel = archive("*.whl")
    installed = Installed(place, wheel)
    version = (ROOT / "VERSION").read_text().strip()
    assert installed.mrcbed("--version").strip() == f"mrcbed, version {version}"

    installed.mrcbed("run", "smoke", "--world", "simulated", "--out", "smoke")
    manifest = json.loads((installed.work / "smoke/manifest.json").read_text())
    compiled = any(name.endswith(".so") for name in zipfile.ZipFile(wheel).namelist())
    assert manifest["engine"] == ("compiled" if compiled else "interpreted")
    assert (installed.work / "smoke/report.html").stat().st_size > 10_000
    installed.mrcbed(
        "run", "smoke", "--world", "simulated", "--pcap", "h0:p0-t0-0", "--out", "captured"
    )
    assert "WRITE" in installed.mrcbed("results", "packets", "captured/pcap/tiny/h0_p0-t0-0.pcap")
    for words in (
        ["plot", "smoke"],
        ["report", "smoke"],
        ["view", "smoke"],
        ["compare", "smoke", "captured"],
    ):
        installed.mrcbed("results", *words)
    assert "docs/start/lessons/1-planes.md" in installed.mrcbed("lesson")
    assert "Run first:" in installed.mrcbed("lesson", "1")
    installed.mrcbed("train", "--world", "simulated", "--steps", "8", "-t", "mrc", "--out", "train")
    for words in (
        "list scenarios",
        "explain workload.steps",
        "tools schema scenario",
        "fabric graph demo",
        "tools completion bash",
    ):
        assert len(installed.mrcbed(*words.split())) > 100, words
    prefix = place / "env"
    assert (prefix / "share/doc/mrcbed/docs/start/lessons/1-planes.md").is_file()
    assert (prefix / "share/man/man1/mrcbed.1").is_file()
    licences = [
        path.name
        for path in prefix.glob("lib/python3*/site-packages/mrcbed-*.dist-info/**/*")
        if path.is_file()
    ]
    assert {"LICENSE", "NOTICE"} <= set(licences)
    if os.geteuid() == 0:
        emulated(installed)


def emulated(installed: Installed) -> None:
    """As root, over os-ken, with the switches' program compiled for the run; on Open vSwitch
    too."""
    checks = {
        check["name"]: check
        for check in json.loads(installed.mrcbed("doctor", "--json", root=True))["checks"]
    }
    assert (
        checks["eBPF object"]["status"]
        == checks["versions"]["status"]
        == checks["data plane loads"]["status"]
        == "ok"
    )
    for name, words in {"ebpf": [], "ovs": ["--switch", "ovs"]}.items():
        installed.mrcbed("run", "smoke", *words, "--out", name, root=True)
        (run,) = json.loads((installed.work / name / "summary.json").read_text())["runs"]
        assert (run["wrong"], run["packets"]["unexplained"]) == (0, 0)
        versions = json.loads((installed.work / name / "manifest.json").read_text())["versions"]
        assert versions["os-ken"] and not versions.get("ryu")
    assert not list(installed.place.rglob("fabric.bpf.o"))


def test_the_source_archive_runs_without_a_compiler(place: Path) -> None:
    installed = Installed(place, archive("*.tar.gz"), MRCBED_NO_COMPILE="1")
    installed.mrcbed("run", "smoke", "--world", "simulated", "--out", "smoke")
    assert (
        json.loads((installed.work / "smoke/manifest.json").read_text())["engine"] == "interpreted"
    )
