"""The files of docs/guests/ hold together: Vagrant, Lima and `make vm-test` provision by one
script, which a shell can read."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.vm import image
from tests.vm.guest import STEPS

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "docs/guests/provision.sh"


def test_the_vagrantfile_and_lima_call_the_script() -> None:
    assert image.provisioning() == f"/vagrant/{SCRIPT} /vagrant vagrant"
    lima = (ROOT / "docs/guests/lima.yaml").read_text()
    assert re.search(rf'exec sh (\S+)/{SCRIPT} \1 "{{{{\.User}}}}"', lima)
    assert subprocess.run(["sh", "-n", str(ROOT / SCRIPT)], check=False).returncode == 0


def test_the_vagrantfile_leaves_out_what_the_script_leaves_alone() -> None:
    """What is built is neither copied into the guest nor deleted there."""
    excluded = re.search(r"rsync__exclude: \[(.*)\]", (ROOT / "Vagrantfile").read_text())
    assert excluded is not None
    script = (ROOT / SCRIPT).read_text()
    for name in (".venv", "build", "*.so", "*.bpf.o", "results/*-20*"):
        assert re.search(rf'"{re.escape(name)}/?"', excluded[1])
        assert re.search(rf"--exclude '?/?{re.escape(name)}'?", script)


def test_the_devcontainer_is_privileged_and_its_file_is_there() -> None:
    folder = ROOT / ".devcontainer"
    settings = json.loads(
        re.sub(r"^//.*$", "", (folder / "devcontainer.json").read_text(), flags=re.MULTILINE)
    )
    assert settings["privileged"] is True
    assert (folder / settings["build"]["dockerfile"]).is_file()


def test_steps_of_guests_have_names_of_their_own_and_tests_that_exist() -> None:
    labels = [step.label for step in STEPS]
    assert len(set(labels)) == len(labels)
    files = [word for step in STEPS if step.tests for word in step.command if word.endswith(".py")]
    assert files and all((ROOT / file).is_file() for file in files)
