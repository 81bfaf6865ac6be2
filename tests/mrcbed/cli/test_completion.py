"""What a shell offers at a TAB is what there is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from mrcbed import cli
from mrcbed.cli.tools import completion
from scenarios.schema.scenario import named_scenarios
from testbed import options
from topologies import named_fabrics


def offered(line: str) -> set[str]:
    """At the end of a line after ``mrcbed``; ``<file>`` and ``<dir>`` are left to the shell."""
    *words, incomplete = line.split(" ")
    items = BashComplete(cli.group, {}, "mrcbed", completion.VARIABLE).get_completions(
        words, incomplete
    )
    return {item.value if item.type == "plain" else f"<{item.type}>" for item in items}


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("", set(cli.group.entries)),
        ("ex", {"explain"}),
        ("fabric ", {"links", "paths", "denylist", "events", "graph", "size", "fluid"}),
        ("results ex", {"export"}),
        ("run ", {*named_scenarios(), "<file>"}),
        ("run --world simulated smo", {"smoke", "<file>"}),
        ("run demo --world ", {"emulated", "simulated"}),
        ("run demo --fabric ", {*named_fabrics(), "<file>"}),
        ("run demo --resu", {"--resume"}),
        ("run demo -t ", {"mrc", "roce", "tcp", "mptcp"}),
        ("run demo --set workload.st", {"workload.stagger=", "workload.steps="}),
        ("run demo --out fo", {"<dir>"}),
        ("results report ", {"<dir>"}),
        ("results packets ", {"<file>"}),
        ("check pod12", {"pod128", "<file>"}),
        ("fabric graph ti", {"tiny", "<file>"}),
        ("list ", {"scenarios", "fabrics", "faults", "collectives", "transports"}),
        ("explain fault.du", {"fault.duty"}),
        ("fabric denylist ", {"add", "list", "remove", "token"}),
        ("fabric denylist add --r", {"--reason"}),
        ("perf all_reduce cluster-", {"cluster-b", "cluster-d", "<file>"}),
        ("tools bench seeds smo", {"smoke", "<file>"}),
        ("run --jobs ", set()),
        ("plot ", set(cli.group.entries)),
    ],
)
def test_a_tab(line: str, offers: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "offers", [completion.offers])
    assert offered(line) == offers


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_is_one(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    assert cli.execute(["tools", "completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    checked = subprocess.run(
        [shell, "-n", str(script)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_asks_this_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["tools", "completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "mrcbed").write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from mrcbed.start import main; main()' \"$@\"\n"
    )
    (tmp_path / "mrcbed").chmod(0o755)
    press = (
        "source ./script; COMP_WORDS=(mrcbed run demo --world s); COMP_CWORD=4; "
        '_mrcbed_completion ./mrcbed; echo "${COMPREPLY[@]}"'
    )
    root = str(Path(cli.__file__).parents[2])
    done = subprocess.run(
        ["bash", "--norc", "-c", press],
        cwd=tmp_path,
        env={"PYTHONPATH": root, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("simulated\n", "")
