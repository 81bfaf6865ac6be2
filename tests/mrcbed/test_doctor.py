"""The doctor says what is lacking, and never dies of what it finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mrcbed import doctor
from mrcbed.doctor import Check
from testbed.machine import probes

ROOT = Path(__file__).resolve().parents[2]
AS = """
import contextlib, io, os, sys, mrcbed.cli
if sys.argv[1] == "nobody" and os.geteuid() == 0:
    with contextlib.redirect_stdout(io.StringIO()):
        mrcbed.cli.execute(["doctor", *sys.argv[2:]])  # with root's eyes: from a clone under /root, nobody can import nothing more
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(mrcbed.cli.execute(["doctor", *sys.argv[2:]]))
"""  # noqa: E501


def diagnose(
    who: str = "me", *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AS, who, *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def checks_of(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    assert done.stderr == ""
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


@pytest.fixture(scope="module")
def mine() -> dict[str, dict[str, Any]]:
    """What it finds as whoever runs the tests."""
    return checks_of(diagnose("me", "--json"))


def test_without_root_it_says_so_and_goes_on() -> None:
    done = diagnose("nobody", "--json")
    checks = checks_of(done)
    assert done.returncode == 2 and "(check failed)" not in checks
    assert (checks["root"]["status"], checks["HTB"]["status"]) == ("missing", "unknown")
    done = diagnose("nobody")  # the table for people
    assert done.returncode == 2 and "Traceback" not in done.stdout + done.stderr
    assert "Not ready: root" in done.stdout and "fix: use sudo" in done.stdout


def test_an_empty_path(mine: dict[str, dict[str, Any]]) -> None:
    """Tools in Debian's standard directories are found all the same: users' PATH lacks half of
    them."""
    without = checks_of(diagnose("me", "--json", PATH=""))
    assert "(check failed)" not in without
    standard = [
        n
        for n in doctor.TOOLS
        if str(mine[n]["found"]).startswith(("/usr/sbin", "/usr/bin", "/sbin", "/bin"))
    ]
    assert all(without[name]["status"] == "ok" for name in standard)


def test_no_tools_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PATH", "/nowhere")
    checks = {check.name: check for check in doctor.tools()}
    assert checks["mnexec"].status == "missing"
    assert "apt-get install mininet" in checks["mnexec"].fix
    assert checks["clang"].status == "limited"
    assert checks["ovs-vswitchd"].status == "optional"
    assert not doctor.well(list(checks.values()))


@pytest.mark.parametrize(
    ("limit", "status", "found"),
    [(0.5, "limited", "8, of which a CPU quota allows 0.5"), (float("inf"), "ok", "8")],
)
def test_a_cpu_quota_is_seen(
    limit: float, status: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "quota_cores", lambda: limit)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    cpus = next(check for check in doctor.machine() if check.name == "CPUs")
    assert (cpus.status, cpus.found) == (status, found) and ("--cpus" in cpus.fix) == (
        status == "limited"
    )


def test_what_is_lacking_and_not_needed_is_no_failure() -> None:
    checks = [
        Check("g", "a", "optional", "", ""),
        Check("g", "b", "limited", "", ""),
        Check("g", "c", "unknown", "", ""),
    ]
    assert doctor.well(checks)
    assert not doctor.well([*checks, Check("g", "d", "missing", "", "")])


def test_a_check_that_fails_itself_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[Check]:
        yield Check("x", "first", "ok", "", "")
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr(doctor, "GROUPS", (broken,))
    (failed,) = [check for check in doctor.examine() if check.status == "unknown"]
    assert failed.found == "ZeroDivisionError: of all things"


def test_a_package_at_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_pins", lambda: iter([("click", "0.1"), ("no-such-package", "1")]))
    checks = {check.name: check for check in doctor.packages()}
    assert checks["no-such-package"].status == "missing"
    assert checks["versions"].status == "limited"
    assert "tested: 0.1" in checks["versions"].found


def test_pins_are_exact() -> None:
    names = [name for name, _ in doctor._pins()]
    assert {"ryu", "eventlet", "mininet"} <= set(names)
    for file in ROOT.glob("requirements/*.txt"):
        for line in file.read_text().splitlines():
            text = line.split("#")[0].strip()
            assert not text or "==" in text, f"{file.name}: {line}"


def test_every_lack_of_something_needed_has_a_fix() -> None:
    for check in doctor.examine():
        assert check.why
        if check.status in ("missing", "limited"):
            assert check.fix, check.name


def test_interpreted_on_demand() -> None:
    """The same tree runs from source when asked to, whether extension modules are there or not."""
    code = "import agents.mrc.wire as w, sys; sys.exit(not w.__file__.endswith('.py'))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "MRCBED_INTERPRETED": "1"},
            check=False,
        ).returncode
        == 0
    )


def test_extensions_older_than_their_source_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "agents/mrc").mkdir(parents=True)
    (tmp_path / "agents/__init__.py").write_text((ROOT / "agents/__init__.py").read_text())
    (tmp_path / "agents/mrc/__init__.py").write_text("")
    source, extension = (
        tmp_path / "agents/mrc/engine.py",
        tmp_path / f"agents/mrc/engine{sysconfig.get_config_var('EXT_SUFFIX')}",
    )
    source.write_text("")
    clone = tmp_path / "setup.py"
    clone.touch()
    extension.write_bytes(b"not a library: importing it would fail")
    environment = {
        name: value for name, value in os.environ.items() if name != "MRCBED_INTERPRETED"
    }
    for age, stale in ((10, True), (-10, False)):
        os.utime(extension, (source.stat().st_mtime - age,) * 2)
        code = "import agents.mrc.engine"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) is stale, done.stderr
        assert ("older than its source" in done.stderr) is stale
    os.utime(extension, (source.stat().st_mtime - 10,) * 2)
    clone.unlink()  # as pip installs files: with times of no meaning
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "file too short" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try the kernel")
def test_probing_leaves_nothing() -> None:
    def state() -> tuple[list[str], list[str], str]:
        return (
            sorted(os.listdir("/sys/class/net")),
            sorted(os.listdir("/tmp")),
            Path("/proc/mounts").read_text(),
        )

    before = state()[0], state()[2]
    checks = checks_of(diagnose("me", "--json"))
    assert checks["veth"]["status"] == "ok"
    assert (state()[0], state()[2]) == before
    assert not [name for name in state()[1] if name.startswith("mrcbed-probe")]


CHROOT = """
mount --make-rprivate / && mount -t tmpfs root "$0" || exit 1
for entry in /*; do
  if [ -L "$entry" ]; then cp -d "$entry" "$0/"; elif [ -d "$entry" ]; then mkdir "$0$entry"; mount --rbind "$entry" "$0$entry"; fi
done
exec chroot "$0" sh -c 'cd "$0" && exec "$@"' "$@"
"""  # noqa: E501
"""All of this machine's folders under another root directory."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the root directory")
def test_a_plain_chroot_is_named(mine: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    doctor_in_it = (sys.executable, "-m", "mrcbed", "doctor", "--json")
    command = ["unshare", "--mount", "sh", "-c", CHROOT, str(root), str(ROOT), *doctor_in_it]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    check = checks_of(done)["root directory"]
    assert done.returncode == 2
    assert (check["status"], check["found"]) == (
        "missing",
        "a plain chroot, which every host would leave",
    )
    assert "pivot_root" in check["fix"]
    assert mine["root directory"]["status"] == "ok"


def test_what_was_only_looked_up_is_not_said_to_work(monkeypatch: pytest.MonkeyPatch) -> None:
    # modules, none of them loaded
    monkeypatch.setattr(probes.os.path, "isdir", lambda path: str(path).startswith("/lib/modules/"))
    for complaint, verdict in (("", probes.NOT_TRIED), ("exit status 1", "no such module")):
        monkeypatch.setattr(probes, "run", lambda command, said=complaint: said)
        assert probes.optional_module("netem") == verdict
    assert probes.optional_module("HTB") is None
    monkeypatch.setattr(probes.os.path, "isdir", lambda path: True)  # loaded: trying loads nothing
    assert probes.optional_module("netem") is None
