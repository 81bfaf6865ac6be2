"""Measures the engine through the emulated fabric, beside a bare sender on the same paths, and how
long fabrics take to come and go."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from testbed.bench.bare import blast
from testbed.dataplane import layout
from testbed.emulated import netlink
from testbed.emulated.cluster import Cluster
from testbed.errors import UserError
from topologies import load_fabric
from topologies.clos import Fabric
from topologies.fabrics import usual_dilation
from topologies.units import US

BENCH, DILATION = (
    Fabric("bench", planes=8, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1, delay_ps=20 * US),
    100.0,
)
"""Rates are above what this path can carry, so that the processor is the limit. At the default
delay a wake-up would be longer than a base RTT, and no window could be filled."""
ENGINE_OPTIONS = {"mpr": 4096, "timeout": 12}


def stream(
    cluster: Cluster, seconds: float, congestion: str, size: int = 1 << 20, posted: int = 8
) -> dict[str, float]:
    """Return data packets/s placed, WRITEs/s, and us of CPU time a WRITE at either end. ``posted``
    WRITEs of ``size`` bytes are under way from h0 to h1."""
    ends = []
    for host, role in ((0, "send"), (1, "receive")):
        config = {
            "fabric": cluster.fabric.to_dict(),
            "clock": cluster.clock.to_dict(),
            "host": host,
            "peer": 1 - host,
            "role": role,
            "seconds": seconds,
            "bytes": size,
            "posted": posted,
            "options": {**ENGINE_OPTIONS, "congestion": congestion},
        }
        argv = [sys.executable, "-m", "testbed.bench.stream", json.dumps(config)]
        ends.append(
            cluster.net[f"h{host}"].popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
    qp_lines = [e.stdout.readline() for e in ends]
    if not all(qp_lines):
        raise UserError(
            "the stream's ends did not start: "
            f"{''.join(e.communicate()[1] or '' for e in ends)[-200:]}"
        )
    for end, peer_line in zip(ends, reversed(qp_lines), strict=True):
        end.stdin.write(peer_line)
        end.stdin.flush()
    result = [json.loads(e.stdout.readline()) for e in ends]
    for end in ends:
        end.wait(10)
    if "error" in result[0]:
        raise UserError(f"the stream failed: {result[0]['error']}")
    sender, receiver = result
    return {
        "packets_per_second": receiver["counters"]["data_rx"] / sender["seconds"],
        "writes_per_second": sender["messages"] / sender["seconds"],
        "goodput_bps": sender["messages"] * size * 8 / sender["seconds"],
        "sender_us": sender["cpu"] * 1e6 / sender["messages"],
        "receiver_us": receiver["cpu"] * 1e6 / sender["messages"],
        "retransmitted": sender["counters"]["retransmitted"],
    }


def engine_ratio(rounds: int, seconds: float, progress: Any) -> dict[str, dict[str, object]]:
    """Let a ``bare`` sender and the ``engine``, under NSCC and with a fixed window, take turns.
    Returns medians, their ratios, every round."""
    measurements: list[dict[str, dict[str, float]]] = []
    with Cluster(BENCH, dilation=DILATION, controller=False) as cluster:
        for k in range(rounds):
            progress(f"bare sender and engine, round {k + 1} of {rounds}", k / rounds)
            bare = blast(cluster, {0: 1}, seconds)
            measurements.append(
                {
                    "bare": bare,
                    "engine": stream(cluster, seconds, "nscc"),
                    "fixed": stream(cluster, seconds, "fixed"),
                }
            )

    def median(kind: str, figure: str = "packets_per_second") -> float:
        return float(statistics.median(m[kind][figure] for m in measurements))

    sender, engine, fixed = median("bare"), median("engine"), median("fixed")
    return {
        "bare": {
            "packets_per_second": sender,
            "cpu_us_per_packet": median("bare", "cpu_us_per_packet"),
        },
        "engine": {
            "packets_per_second": engine,
            "ratio": engine / sender,
            "fixed_packets_per_second": fixed,
            "fixed_ratio": fixed / sender,
            "nscc_cost": 1 - engine / fixed,
            "rounds": measurements,
        },
    }


def bring_up(names: tuple[str, ...], rounds: int, progress: Any) -> list[dict[str, object]]:
    """Measure seconds: ``up_s`` until every link carries packets, ``agents_s`` from there until
    every agent answers, ``down_s`` until the kernel has removed all."""
    rows = []
    for n, name in enumerate(names):
        fabric, dilation = load_fabric(name), usual_dilation(name)
        seconds: dict[str, list[float]] = {"up_s": [], "agents_s": [], "down_s": []}
        for k in range(rounds):
            progress(
                f"{name} up and down, round {k + 1} of {rounds}", (n + k / rounds) / len(names)
            )
            with (
                tempfile.TemporaryDirectory(prefix="mrcbed-bench-") as logs,
                Cluster(fabric, dilation=dilation) as cluster,
            ):
                seconds["up_s"].append(cluster.booted_ns / 1e9)
                started = time.monotonic()
                cluster.start_agents("mrc", {}, Path(logs), 1, alone=False)
                seconds["agents_s"].append(time.monotonic() - started)
                # its NIC ports go when the switches' namespace is really gone
                watcher = netlink.LinkSocket(cluster.net.namespaces["h0"])
                started = time.monotonic()
                cluster.stop()
                while (
                    any(state.ifindex >= layout.PORT_BASE for state in watcher.dump().values())
                    and time.monotonic() - started < 10
                ):
                    time.sleep(0.002)
                seconds["down_s"].append(time.monotonic() - started)
                watcher.close()
        rows.append(
            {
                "fabric": name,
                "links": len(fabric.links),
                **{key: statistics.median(values) for key, values in seconds.items()},
            }
        )
    return rows
