"""How fast the simulated world goes on one core: packet-hops, frames that took one link, per second of the machine's time."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from agents.collectives.registry import FLOWS
from agents.collectives.steer import connect
from testbed.simulated.cluster import SimulatedCluster
from topologies import load_fabric

STEP_S = 0.05
"""Of virtual time, between two looks at the clock."""
MESSAGE = 256 << 10


def simulated_rates(seconds: float = 1.0) -> dict[str, Any]:
    """MRC on all hosts of `demo`, each sending as fast as it can to a host under the other T0. ``slowdown``: seconds that one of virtual
    time takes."""
    fabric = load_fabric("demo")
    hosts = list(range(fabric.host_count))
    half = fabric.hosts_per_t0
    flows = [
        {"name": f"h{a}", "src": a, "dst": (a + half) % len(hosts), "start_ns": 0, "for_ns": 3600 * 10**9, "messages": None} for a in hosts
    ]
    with tempfile.TemporaryDirectory(prefix="mrcbed-bench-") as directory, SimulatedCluster(fabric) as cluster:
        cluster.start_agents("mrc", {}, Path(directory), 1)
        connect(cluster.agents, hosts, FLOWS, flows=flows)
        for agent in cluster.agents:
            agent.call("start", collective=FLOWS, message_bytes=MESSAGE, flows=flows, outstanding=4, at=cluster.clock.now())
        cluster.clock.sleep(4 * fabric.base_rtt_ns / 1e9)  # windows are full
        hops, virtual = cluster.network.hops, cluster.clock.now()
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            cluster.clock.sleep(STEP_S)
        took = time.perf_counter() - started
        hops, virtual = cluster.network.hops - hops, cluster.clock.now() - virtual
    return {"fabric": fabric.name, "hops": hops, "packet_hops_per_second": float(hops) / took, "slowdown": took * 1e9 / virtual}
