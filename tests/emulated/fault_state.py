"""Everything that a fault can change of a living cluster, to compare before and after. For
test_faults.py and the long runs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from testbed.emulated.cluster import Cluster


def classes(cluster: Cluster) -> list[str]:
    """Rates and ceilings of every HTB class of the fabric, as tc says them."""
    said = []
    for node in sorted(cluster.net.namespaces):
        ports = [
            p.name
            for p in cluster.fabric.ports
            if p.node == node or (not node and p.node not in cluster.fabric.hosts)
        ]
        lines = "".join(f"class show dev {name}\n" for name in ports)
        command = ["nsenter", f"--net={cluster.net.path_of(node)}", "--", "tc", "-batch", "-"]
        said += subprocess.run(
            command, input=lines, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    return said


def agent_state(cluster: Cluster, host: int) -> str:
    """Of its process: S sleeping, R running, T stopped."""
    return Path(f"/proc/{cluster._agents[host].pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def state(cluster: Cluster) -> dict[str, Any]:
    """Everything that a fault can change."""
    packets, counters = cluster.injections.packets, cluster.net.counters
    return {
        "links": cluster.link_states(),
        "gates": counters._gate.tolist(),
        "switches": counters._switch_down.tolist(),
        "ports": {i: w for i, w in enumerate(packets._words) if w},
        "paths": list(packets._paths.items()),
        "classes": classes(cluster),
        "stopped": [h for h in range(cluster.fabric.host_count) if agent_state(cluster, h) == "T"],
    }
