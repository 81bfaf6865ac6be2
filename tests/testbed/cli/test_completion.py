"""The completion scripts offer what there is, in a shell that runs them, and fast: without Python."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from scenarios.schema.scenario import named_scenarios
from testbed import cli
from testbed.cli import completion
from testbed.machine.slowness import patient
from topologies import named_fabrics

FOUND = completion.commands()
TOP = {name for name in cli.COMMANDS if (Path(cli.__file__).parent / f"{name}.py").is_file()}
BASH = shutil.which("bash") or "bash"
MOST_US = 150_000
"""A TAB's time that people do not wait for."""
TRY = """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
before=${EPOCHREALTIME/[.,]/}; _mrcbed; after=${EPOCHREALTIME/[.,]/}
echo $((after - before)); printf '%s\\n' "${COMPREPLY[@]}"
"""


def in_bash(line: str, where: Path) -> tuple[int, set[str]]:
    """(microseconds of a TAB at the end of ``line``, what it offers)."""
    (where / "script").write_text(completion.bash(FOUND) + TRY)
    shell = [BASH, "--norc", str(where / "script"), *line.split(" ")]
    out = subprocess.run(shell, cwd=where, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=True)
    assert out.stderr == ""
    time, *words = out.stdout.splitlines()
    return int(time), set(words) - {""}


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("mrcbed ", TOP),
        ("mrcbed ex", {"explain", "export"} & TOP),
        ("mrcbed run ", {*named_scenarios(), "mine.toml", "folder"}),
        ("mrcbed run --world simulated sm", {"smoke"}),
        ("mrcbed run demo --world ", {"emulated", "simulated", "fluid"}),
        ("mrcbed run demo --fabric ", {*named_fabrics(), "mine.toml", "folder"}),
        ("mrcbed run demo --resu", {"--resume"}),
        ("mrcbed run demo -t ", {"mrc", "roce", "tcp", "mptcp"}),
        ("mrcbed run demo --set workload.st", {"workload.steps="}),
        ("mrcbed run --set workload.steps = 3 smo", {"smoke"}),  # as bash splits workload.steps=3
        ("mrcbed run demo --out fo", {"folder"}),
        ("mrcbed check pod", {"pod128", "pod256", "pod32", "pod512", "pod512-tree", "pod64", "pod64-incast", "pod64-ring"}),
        ("mrcbed graph ti", {"tiny"}),
        ("mrcbed list ", {"scenarios", "fabrics", "faults", "collectives", "transports"}),
        ("mrcbed explain fault.du", {"fault.duty"}),
        ("mrcbed denylist ", {"add", "list", "remove", "token"}),
        ("mrcbed denylist add --r", {"--reason"}),
        ("mrcbed perf all_reduce cluster-", {"cluster-b", "cluster-d"}),
        ("mrcbed run --jobs ", set()),
    ],
)
def test_bash(line: str, offers: set[str], tmp_path: Path) -> None:
    (tmp_path / "mine.toml").touch()
    (tmp_path / "folder").mkdir()
    tries = [in_bash(line, tmp_path) for _ in range(3)]
    assert all(words == offers for _, words in tries)
    assert min(took_us for took_us, _ in tries) < patient(MOST_US)  # the others: other work took the core meanwhile


def test_every_option_of_every_command_is_offered(tmp_path: Path) -> None:
    for command in FOUND:
        if not command.commands:
            _, words = in_bash(f"mrcbed {command.path} -", tmp_path)
            assert words == {name for option in command.options for name in option.names}, command.path


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_is_one(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    assert cli.execute(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    checked = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed here")
@pytest.mark.parametrize(
    ("line", "offers"),
    [("graph ti", {"tiny"}), ("check mi", {"mine.toml"}), ("denylist to", {"token"}), ("run demo --world s", {"simulated"})],
)
def test_fish(line: str, offers: set[str], tmp_path: Path) -> None:
    (tmp_path / "script").write_text(completion.fish(FOUND))
    (tmp_path / "mine.toml").touch()
    shell = ["fish", "--no-config", "-c", f"source script; complete -C 'mrcbed {line}'"]
    out = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert {row.partition("\t")[0] for row in out.splitlines()} == offers
