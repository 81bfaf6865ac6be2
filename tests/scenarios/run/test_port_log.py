"""Ports over time: what a line holds, how often there is one, and that a sample makes nothing else
late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agents.clock import WallClock
from agents.transport import LONG_AGO
from scenarios.run.one_run import OneRun, Spec
from scenarios.run.port_log import EVERY_S, PORTS, PortLog
from testbed.simulated.cluster import SimulatedCluster
from tests.scenarios.small import small
from topologies import Fabric
from topologies.fabrics import load_fabric

CLOCK = WallClock(10_000)
EVERY = CLOCK.patience(EVERY_S)


class World:
    """A fabric whose ports say what a test puts there."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self.clock = fabric, CLOCK
        self.ports = [(0, 0, 0, 0, 0)] * len(fabric.ports)

    def loads(self) -> NDArray[np.int64]:
        return np.array(self.ports)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_line_has_the_ports_that_did_anything_since_the_line_before(tmp_path: Path) -> None:
    world = World(load_fabric("tiny"))
    log = PortLog(world, tmp_path / "ports.jsonl")  # type: ignore[arg-type]
    world.ports[3] = (1000, 0, 5, 0, 0)
    log.tick(50)
    world.ports[3], world.ports[5] = (1700, 40, 6, 2, 1), (0, 9, 0, 0, 0)
    log.tick(50 + EVERY - 1)  # not due yet
    log.tick(50 + EVERY)
    world.ports[3], world.ports[5] = (1700, 0, 6, 2, 1), (0, 0, 0, 0, 0)
    log.sample(60 + EVERY)
    assert lines(tmp_path / "ports.jsonl") == [
        {
            "t": 50 + EVERY,
            "kind": "ports",
            "span_ps": EVERY,
            "rows": [[3, 700, 40, 1, 2, 1], [5, 0, 9, 0, 0, 0]],
        },
        {"t": 60 + EVERY, "kind": "ports", "span_ps": 10, "rows": []},
    ]


@pytest.mark.parametrize("name", ["tiny", "wide", "pod64"])
def test_a_log_grows_no_faster_on_a_large_fabric(name: str, tmp_path: Path) -> None:
    fabric = load_fabric(name)
    interval = PortLog(World(fabric), tmp_path / "ports.jsonl").interval_ps  # type: ignore[arg-type]
    assert (
        interval >= EVERY
        and interval >= fabric.base_rtt_ps // 2
        and len(fabric.ports) / interval <= PORTS / EVERY
    )


@pytest.mark.parametrize("before", [0.0, 0.5, 0.99, 1.0, 2.0, 50.0])
def test_a_sample_never_makes_what_is_due_late(before: float, tmp_path: Path) -> None:
    """A wake-up less than a pause before the next one would put that one off by a pause."""
    scenario = small(tmp_path, transports=["mrc"])
    with SimulatedCluster(scenario.transports[0].fabric) as cluster:
        run = OneRun(
            cluster,
            Spec(scenario, scenario.transports[0], "interleaved", 1),
            tmp_path / "run",
            lambda share, trouble: None,
        )
        run.tick()
        # the clock stands still
        run.due.check, run.due.rest = run.clock.now() + 200 * run.pause, LONG_AGO
        run.port_log.due_ps = run.due.check - round(before * run.pause)
        assert run.tick() == 200 * run.pause - (round(before * run.pause) if before >= 1 else 0)
