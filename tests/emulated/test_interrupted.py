"""A suite like this one that is interrupted, or dies, leaves nothing: as after the runs of
test_cleanup.py."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulated.chaos import machine
from tests.emulated.command import ROOT
from tests.emulated.remains import assert_gone, remains
from tests.emulated.ring import PATIENCE_S, wait_until

pytestmark = pytest.mark.sandbox

TEST = """
import json, os, time
from pathlib import Path
from testbed.emulated.cluster import Cluster
from testbed.machine.sandbox import RUN_MARK
from tests.emulated.holder import programs
from topologies.fabrics import DILATION
from topologies import load_fabric

def test_waits(tmp_path):
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        cluster.start_agents("mrc", {}, tmp_path, 1)
        spaces = [os.fstat(fd).st_ino for fd in cluster.net.namespaces.values()]
        note = [os.environ[RUN_MARK], [os.stat("/proc/self/ns/pid").st_ino], spaces, programs()]
        half = Path(__file__).with_name("half")
        half.write_text(json.dumps(note))
        half.rename(half.with_name("note"))
        time.sleep(1000)
"""


class Suite:
    """One worker, in the middle of a test with a whole fabric."""

    def __init__(self, folder: Path) -> None:
        self.note, self.said = folder / "note", folder / "said"
        folder.mkdir()
        (folder / "test_one.py").write_text(TEST)
        sandbox = f"popen//python={sys.executable} -m testbed.machine.sandbox -- {sys.executable}"
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        with self.said.open("wb") as said:
            self.master = subprocess.Popen(
                [
                    *words,
                    "--rootdir",
                    folder,
                    "--basetemp",
                    folder / "base",
                    "--tx",
                    sandbox,
                    "--dist",
                    "loadfile",
                    folder / "test_one.py",
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def left(self) -> list[str]:
        return remains(*json.loads(self.note.read_text()))


def test_an_interrupted_suite_leaves_nothing(tmp_path: Path) -> None:
    """Its workers notice within a quarter of a minute if it dies; so three suites end at once, each
    by another signal."""
    before = machine()
    suites = {
        number: Suite(tmp_path / number.name)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    }
    try:
        for suite in suites.values():
            assert wait_until(
                lambda s=suite: s.note.exists() or s.master.poll() is not None, 4 * PATIENCE_S
            )  # type: ignore[misc]
            assert suite.master.poll() is None and suite.left(), suite.said.read_text()
        for number, suite in suites.items():
            suite.master.send_signal(number)
        for suite in suites.values():
            assert_gone(suite.master, suite.left)  # type: ignore[arg-type]
    finally:
        for suite in suites.values():
            suite.master.kill()
            suite.master.wait()
    assert machine() == before
