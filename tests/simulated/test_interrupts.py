"""Ctrl-C and SIGTERM find a simulation between two events: the process lives, and what went on
afterwards has the bytes of a quiet run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from agents.collectives.steer import connect
from testbed.simulated.cluster import SimulatedCluster
from testbed.simulated.interrupts import breathe, uninterrupted
from topologies import load_fabric
from topologies.units import NS

TREE = Path(__file__).parents[2]
SLICE = 200 * NS
STEPS = 40


def play(logs: Path, disturbed: bool) -> int:
    """Run steps whose packets are marked by draws, products of large integers. Returns how often
    SIGINT was heard in the simulation; ``disturbed``: it comes all the time."""
    cluster = SimulatedCluster(load_fabric("tiny"))
    cluster.start_agents("mrc", {}, logs, seed=1)
    connect(cluster.agents, list(range(cluster.fabric.host_count)), "ring-allreduce")
    size = {"message_bytes": 1 << 18, "dtype": "float32", "steps": STEPS, "warmup": 0}
    for agent in cluster.agents:
        agent.call("start", collective="ring-allreduce", seed=1, **size)
    left, heard, over = len(cluster.agents), 0, threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        # it has waited for a breath of the simulation, or for its end; the others found this loop,
        # and are not meant
        if frame is None:
            raise KeyboardInterrupt

    def disturb() -> None:
        while not over.wait(0.005):
            os.kill(os.getpid(), signal.SIGINT)

    disturber = threading.Thread(target=disturb)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        if disturbed:
            disturber.start()
        until = cluster.network.time + SLICE
        while left:
            try:
                if cluster.network.run(until):
                    until += SLICE
            except KeyboardInterrupt:
                heard += 1
            for agent in cluster.agents:
                notes, agent.host.notes = agent.host.notes, []
                left -= sum(note["event"] == "done" for note in notes)
    finally:
        over.set()
        if disturbed:
            disturber.join()
        signal.signal(signal.SIGINT, before)
    cluster.stop()
    return heard


PROGRAM = """
import sys
from pathlib import Path
from tests.simulated.test_interrupts import play
print(play(Path(sys.argv[1]), disturbed=True))
"""


@pytest.mark.dear(
    "a run that signals disturb all the time, in a process, and the same run undisturbed"
)
def test_an_interrupted_simulation_is_whole(tmp_path: Path) -> None:
    for name in ("quiet", "disturbed"):
        (tmp_path / name).mkdir()
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "disturbed")]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=TREE)
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
    assert int(ran.stdout) > 5, "it was disturbed"
    assert play(tmp_path / "quiet", disturbed=False) == 0
    quiet = {path.name: path.read_bytes() for path in (tmp_path / "quiet").iterdir()}
    assert quiet == {
        path.name: path.read_bytes() for path in (tmp_path / "disturbed").iterdir()
    } and all(quiet.values())


def test_a_handler_waits_for_the_end_or_for_a_breath() -> None:
    before = signal.getsignal(signal.SIGTERM)
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with uninterrupted():
            with uninterrupted():
                signal.raise_signal(signal.SIGTERM)
            assert heard == []
            breathe()
            assert heard == [signal.SIGTERM]
            signal.raise_signal(signal.SIGTERM)
            assert heard == [signal.SIGTERM]
        assert heard == [signal.SIGTERM] * 2
        signal.raise_signal(signal.SIGTERM)  # outside it is called at once
        assert heard == [signal.SIGTERM] * 3
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            heard.clear()
        assert heard == []
    finally:
        signal.signal(signal.SIGTERM, before)
