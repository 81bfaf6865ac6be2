"""Measures the simulated world on one core, in packet-hops (frames that took one link) per second of wall time."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TypedDict

from agents.collectives.flows import FlowTable
from agents.collectives.registry import FLOWS
from agents.collectives.steer import connect
from testbed.simulated.cluster import SimulatedCluster
from topologies import load_fabric
from topologies.units import S

MESSAGE = 256 << 10
LARGE, PROCESSES = "pod64", 2


class Rates(TypedDict):
    fabric: str
    processes: int
    hops: int
    packet_hops_per_second: float
    slowdown: float


def simulated_rates(seconds: float = 1.0, name: str = "demo", split: int = 1) -> Rates:
    fabric = load_fabric(name)
    hosts = list(range(fabric.host_count))
    half = len(hosts) // 2
    flows: list[FlowTable] = [
        {"name": f"h{a}", "src": a, "dst": (a + half) % len(hosts), "start_ps": 0, "for_ps": S, "messages": None} for a in hosts
    ]
    with tempfile.TemporaryDirectory(prefix="mrcbed-bench-") as directory, SimulatedCluster(fabric, split=split) as cluster:
        cluster.start_agents("mrc", {}, Path(directory), 1)
        connect(cluster.agents, hosts, FLOWS, flows=flows)
        for agent in cluster.agents:
            agent.call("start", collective=FLOWS, message_bytes=MESSAGE, flows=flows, outstanding=4, at=cluster.clock.now())
        cluster.clock.sleep(4 * fabric.base_rtt_ps)  # windows are full
        hops, virtual = cluster.hops(), cluster.clock.now()
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            cluster.clock.sleep(fabric.base_rtt_ps)
        took = time.perf_counter() - started
        hops, virtual = cluster.hops() - hops, cluster.clock.now() - virtual
    rate = float(hops) / took
    return {"fabric": fabric.name, "processes": split, "hops": hops, "packet_hops_per_second": rate, "slowdown": took * S / virtual}


def shared_rates(seconds: float = 1.0) -> dict[str, object]:
    alone, shared = (simulated_rates(seconds, LARGE, split) for split in (1, PROCESSES))
    return {**shared, "alone": alone, "speedup": shared["packet_hops_per_second"] / alone["packet_hops_per_second"]}
