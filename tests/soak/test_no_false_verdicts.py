"""A healthy fabric at full load for a minute: no path is ever given up, no plane suspected, no port
or peer blamed, nothing lost.

MRCBED_SOAK_S: how long each kind of load lasts, seconds, if less than 60.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents.collectives.steer import connect, wait_for_all
from scenarios.run.watch import Watch
from testbed.emulated.cluster import Cluster
from testbed.terminal import duration
from tests.emulated.ring import Ring, logged, paths, wait_until
from tests.soak.looks import imbalance, machine
from topologies import load_fabric
from topologies.fabrics import DILATION
from topologies.units import BYTE, NS

pytestmark = [pytest.mark.soak, pytest.mark.sandbox, pytest.mark.timeout(0)]
SECONDS = min(60.0, float(os.environ.get("MRCBED_SOAK_S", "60")))
STEP_BYTES = 1 << 22
"""Of a ring: much more than is under way on the longest lap of `wide`, so that steps are made of
sending and not of waiting."""
STEPS = 5
"""Of a ring, about 2 s each at full rate, before it is looked at whether the time is over."""
FLOW_BYTES = 64_000
LATEST_S = 30.0
"""Whatever is under way when the time is over ends sooner than this, also on a busy machine [our
own choice]."""

LEAST_SHARE = 0.6
"""Of line rate that hosts must have sent on the whole, or the load was none; a ring pauses between
goes [our own choice]."""

Load = Callable[[Cluster], int]
"""Puts a load on for SECONDS; returns how many results were right."""


def ring(placement: str) -> Load:
    def load(cluster: Cluster) -> int:
        made = Ring(cluster, placement)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            assert made.run(STEPS, size=STEP_BYTES, timeout=SECONDS + LATEST_S), (
                made.failures or "no end"
            )
        assert made.all_right(), f"{made.wrong} wrong elements, {made.failures}"
        return len(made.ends)

    return load


def both_ways(cluster: Cluster) -> int:
    """Every host sends to one under another T0, which sends to it as well, both at line rate."""
    hosts, clock = list(range(cluster.fabric.host_count)), cluster.clock
    flows: list[dict[str, Any]] = []
    for src in hosts:
        dst = (src + len(hosts) // 2) % len(hosts)
        flows.append(
            {"name": f"h{src}-h{dst}", "src": src, "dst": dst, "for_ps": clock.patience(SECONDS)}
        )
    notes: list[dict[str, Any]] = []
    connect(cluster.agents, hosts, "flows", 1, 4, flows)
    at = clock.now() + clock.patience(0.1)
    for agent in cluster.agents:
        agent.call(
            "start", collective="flows", message_bytes=FLOW_BYTES, seed=3, outstanding=8, at=at
        )
    longest = clock.patience(SECONDS + LATEST_S)
    assert wait_for_all(
        cluster.agents, lambda rank, note: notes.append(note), cluster.check, longest, clock
    ), notes[-3:]
    assert sum(note["wrong"] for note in notes if note["event"] == "done") == 0
    return sum(note["messages"] for note in notes if note["event"] == "flow")


LOADS = {
    "ring-interleaved": ring("interleaved"),
    "ring-packed": ring("packed"),
    "flows-both-ways": both_ways,
}


@pytest.mark.parametrize("name", ["demo", "wide"])
@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_nothing_healthy_is_ever_blamed(tmp_path: Path, name: str, load: Load) -> None:
    fabric = load_fabric(name)
    with Cluster(fabric, dilation=DILATION, controller=False) as cluster:
        watch = Watch(cluster.clock)
        before = cluster.counters()
        cluster.start_agents("mrc", {}, tmp_path, seed=1)
        watch.start()
        begun = cluster.clock.now()
        right = load(cluster)
        took = cluster.clock.now() - begun
        watch.stop()
        balanced = wait_until(lambda: imbalance(cluster, before) == [], 5)
        wrong_books = [] if balanced else imbalance(cluster, before)
        rows = paths(cluster)
        counters = Counter[str]()
        for agent in cluster.agents:
            counters.update(agent.call("counters"))
        cluster.stop_agents()
    sent = counters["data_tx"]
    given_up = [line for line in logged(tmp_path, "ev") if line["to"] == "ASSUMED_BAD"]
    blamed = logged(tmp_path, "plane", "endpoint")
    dead = [line for line in logged(tmp_path, "qp") if line["state"] == "ERROR"]
    losses, rtos, spurious = (logged(tmp_path, kind) for kind in ("loss", "rto", "spurious"))
    share = sent * fabric.mtu * BYTE / took / (fabric.host_count * fabric.host_rate)
    said = (
        f"{name}, {duration(took / NS)} at {share:.0%} of line rate, {right} results right, "
        f"{sent} data packets, {counters['trims']} trimmed, {counters['retransmitted']} sent "
        f"again; {len(given_up)} EVs given up, {len(blamed)} planes or endpoints blamed, "
        f"{len(losses)} losses found, {len(spurious)} of them wrongly, {len(rtos)} timeouts, "
        f"{len(dead)} queue pairs in ERROR\n{machine(watch, logged(tmp_path, 'loop'), cluster)}"
    )
    print(said)
    first = "".join(
        f"\n{line}"
        for line in sorted(
            [*given_up, *blamed, *losses, *spurious, *rtos], key=lambda line: int(line["t"])
        )[:12]
    )
    assert share > LEAST_SHARE, said
    assert not given_up and not blamed and not dead, f"{said}{first}"
    assert not losses and not spurious and not rtos, f"{said}{first}"
    assert {row["state"] for row in rows} <= {"GOOD", "SKIP"} and {
        row["plane_state"] for row in rows
    } == {"USED"}, said
    assert wrong_books == [], f"{said}\n{wrong_books}"
