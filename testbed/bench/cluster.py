"""Measures what a data packet costs on a whole fabric, by ring all-reduces on all hosts of
``demo``."""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from agents.collectives.steer import connect, wait_for_all
from testbed.bench.bare import blast, cpu_us
from testbed.emulated.cluster import Cluster
from testbed.errors import UserError
from testbed.machine.awake import kept_awake
from testbed.machine.load import read_work
from testbed.machine.quota import usable_cores
from testbed.machine.slowness import patient, remark, slowness
from topologies import load_fabric
from topologies.fabrics import usual_dilation
from topologies.theory import bus_bandwidth, collective_step_ns, place_ranks
from topologies.units import NS, wire_time

RING = "ring-allreduce"
MESSAGE = 1280 << 10
SLICES = 8
CORES = 2
SLOW = 4.0


def memory_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise UserError(
        f"/proc/{pid}/smaps_rollup has no Pss: this kernel does not account for shared memory"
    )


def ring_cluster() -> Cluster:
    """Return a cluster that runs slower on a slow machine or under a CPU quota: otherwise lateness
    and its retransmissions would be measured."""
    slower = slowness() * max(1.0, CORES / usable_cores())
    return Cluster(
        load_fabric("demo"), dilation=usual_dilation("demo") * (slower if slower >= SLOW else 1.0)
    )


class Cost(TypedDict):
    fabric: str
    cpu_us_per_data_packet: float
    agents_cpu_us_per_data_packet: float
    wakeups_per_data_packet: float
    memory_bytes_per_host: int
    rounds: list[dict[str, float]]


def cluster_cost(rounds: int, seconds: float, progress: Callable[[str, float], None]) -> Cost:
    rings: list[dict[str, float]] = []
    with (
        tempfile.TemporaryDirectory(prefix="mrcbed-bench-") as logs,
        ring_cluster() as cluster,
        kept_awake(),
    ):
        fabric, clock = cluster.fabric, cluster.clock
        hosts = place_ranks(fabric, "interleaved")
        ideal_ns = collective_step_ns(RING, len(hosts), MESSAGE, bus_bandwidth(fabric, RING, hosts))
        steps = max(2, math.ceil(clock.patience(seconds) / (ideal_ns * NS)))
        cluster.start_agents("mrc", {}, Path(logs), 1, alone=False)
        agents = [cluster.agents[host] for host in hosts]
        pids = [pid for name, pid in cluster.processes().items() if name in fabric.hosts]
        connect(agents, hosts, RING, slices=SLICES)

        def packets() -> int:
            return sum(int(agent.call("counters")["data_rx"]) for agent in agents)

        def agents_us() -> float:
            return sum(work.cpu_ns / 1e3 for pid in pids if (work := read_work(pid)) is not None)

        for k in range(rounds):
            progress(f"ring on {fabric.name}, round {k + 1} of {rounds}", k / rounds)
            before = packets(), cpu_us(), agents_us()
            for agent in agents:
                agent.call("start", collective=RING, message_bytes=MESSAGE, steps=steps, seed=k)
            if not wait_for_all(
                agents,
                lambda rank, note: None,
                cluster.check,
                clock.patience(patient(60 + 10 * seconds)),
                clock,
            ):
                notes = json.dumps([agent.notifications() for agent in agents])[:200]
                raise UserError(f"the ring on {fabric.name} did not end: {notes}{remark()}")
            after = packets(), cpu_us(), agents_us()
            n, machine, agent_time = (b - a for a, b in zip(before, after, strict=True))
            rings.append(
                {
                    "data_packets": n,
                    "cpu_us_per_data_packet": machine / n,
                    "agents_cpu_us_per_data_packet": agent_time / n,
                }
            )
        memory = sum(memory_bytes(pid) for pid in pids) // len(agents)
        cluster.stop_agents()
        wakeups = sum(map(wakeups_in, Path(logs).glob("h*.jsonl")))
    return {
        "fabric": fabric.name,
        "cpu_us_per_data_packet": statistics.median(
            ring["cpu_us_per_data_packet"] for ring in rings
        ),
        "agents_cpu_us_per_data_packet": statistics.median(
            ring["agents_cpu_us_per_data_packet"] for ring in rings
        ),
        "wakeups_per_data_packet": wakeups / sum(ring["data_packets"] for ring in rings),
        "memory_bytes_per_host": memory,
        "rounds": rings,
    }


def paced_cost(rounds: int, seconds: float, progress: Callable[[str, float], None]) -> float:
    """Let every host send bare frames at line rate to its neighbour. Returns the median of
    ``rounds``, us of the machine's CPU time per frame."""
    costs = []
    with ring_cluster() as cluster, kept_awake():
        fabric = cluster.fabric
        hosts = place_ranks(fabric, "interleaved")
        neighbours = dict(zip(hosts, hosts[1:] + hosts[:1], strict=True))
        wall_gap_ns = cluster.clock.wall_ns(wire_time(fabric.frame_bytes, fabric.host_rate))
        for k in range(rounds):
            progress(
                f"bare senders at the pace of {fabric.name}, round {k + 1} of {rounds}", k / rounds
            )
            costs.append(blast(cluster, neighbours, seconds, wall_gap_ns)["cpu_us_per_packet"])
    return statistics.median(costs)


def wakeups_in(path: Path) -> int:
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return sum(int(line["wakeups"]) for line in lines if line["kind"] == "loop")
