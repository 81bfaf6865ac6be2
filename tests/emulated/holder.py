"""Holds a cluster for test_cleanup.py and test_cluster.py, as a program of its own: ``python -m
tests.emulated.holder NOTES [OPTION...]``.

Appends to NOTES, as JSON lines, what exists so far at every stage of bring-up, and "ready" in the
end; then sleeps without looking after anything, so that what happens next happens unaided. Options:
controller, agents, pcap, user (a program of a user in a host), ovs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from testbed.dataplane import loader
from testbed.emulated.cluster import Cluster
from testbed.machine import sandbox
from topologies import load_fabric
from topologies.fabrics import DILATION


def programs() -> list[int]:
    """Ids of our loaded programs, as long as they are pinned."""
    found = []
    for pin in (loader.INGRESS, loader.EGRESS):
        if pin.exists():
            text = subprocess.run(
                ["bpftool", "-j", "prog", "show", "pinned", str(pin)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            found.append(int(json.loads(text)["id"]))
    return found


def main(notes: str, *options: str) -> int:
    cluster: Cluster | None = None

    def note(stage: str, share: float = 0.0) -> None:
        named: dict[str, Any] = {}
        spaces: list[int] = []
        if cluster is not None:
            spaces = [os.fstat(fd).st_ino for fd in cluster.net.namespaces.values()]
            named = {
                "shell": cluster.net.hosts[0].pid if cluster.net.hosts else 0,
                "controller": cluster.controller_pid,
            }
            named["agent"] = cluster._agents[-1].pid if cluster._agents else 0
            named |= (
                {what: process.pid for what, process in cluster.net.ovs.processes}
                if cluster.net.ovs
                else {}
            )
            named["capture"] = cluster.captures[0].process.pid if cluster.captures else 0
        with open(notes, "a") as out:
            entry = {
                "stage": stage,
                "pid_ns": os.stat("/proc/self/ns/pid").st_ino,
                "worker": os.getpid(),
            }
            out.write(
                json.dumps({**entry, "spaces": spaces, "programs": programs(), **named}) + "\n"
            )

    fabric = load_fabric("tiny")
    pcap = [fabric.links[0].name] if "pcap" in options else []
    switch = "ovs" if "ovs" in options else "ebpf"
    cluster = Cluster(
        fabric,
        dilation=DILATION,
        controller="controller" in options,
        switch=switch,
        pcap_links=pcap,
        pcap_dir=Path(notes).parent,
        progress=note,
    )
    with cluster:
        if "agents" in options:
            cluster.start_agents("mrc", {}, Path(notes).parent / "log", 1)
        if "user" in options:
            cluster.net["h0"].cmd("nohup setsid sleep 1000 >/dev/null 2>&1 &")
        note("ready")
        while True:
            time.sleep(1)


if __name__ == "__main__":
    sys.exit(sandbox.run(lambda: main(*sys.argv[1:])))
