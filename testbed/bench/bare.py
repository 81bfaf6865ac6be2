"""Bare senders, in C and without any protocol: they show what the fabric itself costs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from agents.packets import dscp, headers
from testbed.emulated.cluster import Cluster
from testbed.errors import UserError
from testbed.machine import sandbox
from testbed.machine.load import read_cpu
from topologies.addressing import inner_address, path_address
from topologies.clos import Fabric
from topologies.paths import path_evs


def cpu_us() -> float:
    """CPU time since boot, us, without what a hypervisor gave to others."""
    cpu = read_cpu()
    return (cpu.busy - cpu.steal) * 1e6 / os.sysconf("SC_CLK_TCK")


def blast(
    cluster: Cluster, peer_of: Mapping[int, int], seconds: float, wall_gap_ns: int = 0
) -> dict[str, float]:
    """Send full-size frames from every host of ``peer_of`` to its peer, over every EV in turn: one
    each ``wall_gap_ns``, with 0 as fast as it can. Returns frames/s that arrived, and the machine's
    CPU time for each frame sent."""
    compiler = shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        raise UserError("the benchmark's bare sender needs a C compiler: apt-get install gcc")
    fabric = cluster.fabric
    with tempfile.TemporaryDirectory(dir=sandbox.RUN_DIR) as scratch:
        program = Path(scratch, "blaster")
        subprocess.run(
            [compiler, "-O2", "-o", str(program), str(Path(__file__).with_name("blaster.c"))],
            check=True,
        )
        commands = {}
        for host, peer in peer_of.items():
            data = Path(scratch, f"frames-h{host}")
            data.write_bytes(frames(fabric, host, peer))
            ports = [f"h{host}-p{plane}" for plane in range(fabric.planes)]
            commands[host] = [
                str(program),
                str(seconds),
                str(fabric.frame_bytes),
                str(data),
                str(wall_gap_ns),
                *ports,
            ]
        before, cpu_before = arrived(cluster), cpu_us()
        senders = [cluster.net[f"h{host}"].popen(command) for host, command in commands.items()]
        lines = [
            list(map(int, sender.communicate(timeout=seconds + 30)[0].split()))
            for sender in senders
        ]
        time.sleep(0.2)
        received, cpu = arrived(cluster) - before, cpu_us() - cpu_before
    sent = sum(line[0] for line in lines)
    return {
        "packets_per_second": received / (max(line[2] for line in lines) / 1e9),
        "cpu_us_per_packet": cpu / sent,
        "lost": sent - received,
        "refused": sum(line[1] for line in lines),
    }


def frames(fabric: Fabric, host: int, peer: int) -> bytes:
    me, you = inner_address(host), inner_address(peer)
    evs = sorted(path_evs(fabric, host, peer), key=lambda e: (e & 0xFFFF, e >> 16))
    after = fabric.frame_bytes - headers.HEAD
    return b"".join(
        # An unused UDP port, in the data class: switches treat it as data, the far end's kernel
        # drops it.
        headers.head(
            (me, path_address(fabric, host, peer, e)), (me, you), e, dscp.NO_TRIM, 0, after
        ).ljust(fabric.frame_bytes, b"\0")
        for e in evs
    )


def arrived(cluster: Cluster) -> int:
    return sum(
        r["arrived_packets"] for r in cluster.counters() if r["node"] in cluster.fabric.hosts
    )
