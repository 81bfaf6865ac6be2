"""The usual way to a machine: a real sshd on each of two, with keys of its own, and ``mrcbed tools
machine`` behind it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulated.command import MRCBED, ROOT
from tests.emulated.machines import Machine, machines
from tests.emulated.ring import PATIENCE_S, wait_until

SSHD = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin")
pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="needs ssh and sshd"),
]
PORT = 2222


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Machine], Path]]:
    """The second machine and the third have an sshd; the first has the coordinator."""
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
        )
    shutil.copy(folder / "user.pub", folder / "authorized")
    (folder / "run").mkdir()
    settings = {
        "Port": PORT,
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized",
        "PidFile": "none",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "yes",
        "StrictModes": "no",
    }
    (folder / "config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    running = []
    with machines(3) as places:
        for place in places[1:]:
            sshd = [
                *place.prefix,
                "unshare",
                "--mount",
                "sh",
                "-c",
                'mount -t tmpfs none /run && mkdir /run/sshd /run/mrcbed && exec "$@"',
                "sh",
            ]
            log = (folder / f"log{place.number}").open("wb")
            running.append(
                subprocess.Popen(
                    [*sshd, SSHD or "", "-D", "-e", "-f", str(folder / "config")], stderr=log
                )
            )
        assert wait_until(
            lambda: all("listening" in (folder / f"log{n}").read_text() for n in (1, 2))
        )
        yield places, folder
        for process in running:
            process.kill()
            process.wait()


def test_up_over_ssh(daemons: tuple[list[Machine], Path]) -> None:
    (first, *others), folder = daemons
    options = (
        "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i "
        f"{folder}/user -p {PORT}"
    )
    reach = f"ssh -F none -T -o BatchMode=yes {options} root@{{host}} {MRCBED} machine"
    on = ",".join(place.address for place in others)
    done = subprocess.run(
        [*first.prefix, MRCBED, "up", "tiny", "--on", on, "--reach", reach],
        cwd=ROOT,
        input="pingall\nallreduce steps=2 bytes=65536\n",
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "0% dropped (12/12 received)" in done.stderr
    assert "every sum right" in " ".join(done.stdout.split())
