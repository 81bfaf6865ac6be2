"""Makes ``mrc0`` on every host: an interface whose packets travel over the agents' transport."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from agents import ip, tun
from testbed.errors import UserError
from testbed.machine.slowness import patient
from testbed.world import Program, Programs

if TYPE_CHECKING:
    from testbed.emulated.cluster import Cluster

PROGRAM = Path(ip.__file__)
NICE = 5
"""Niceness of the programs that carry packets: after the agents, before what uses the interface
[ours]."""
READY_S = 20.0


def bring_up(cluster: Cluster) -> Programs:
    """The caller ends the programs before the agents. Raises :class:`UserError`."""
    if not tun.available():
        raise UserError(
            f"{ip.NAME} needs TUN, which this kernel does not give us: modprobe tun, or run "
            "without --ip"
        )
    for number, name in enumerate(cluster.fabric.hosts):
        host = cluster.net[name]
        for words in (
            ("tuntap", "add", "dev", ip.NAME, "mode", "tun"),
            ("addr", "add", f"{ip.address(number)}/16", "dev", ip.NAME),
            (
                "link",
                "set",
                ip.NAME,
                "addrgenmode",
                "none",
                "mtu",
                str(ip.MTU),
                "txqueuelen",
                "100",
                "up",
            ),
        ):
            said, error, status = host.pexec(["ip", *words])
            if status:
                raise UserError(
                    f"{ip.NAME} on {name}: ip {' '.join(words)}: {(error or said).strip()}"
                )
    programs = cluster.programs(
        Program((str(PROGRAM),), nice=NICE), range(cluster.fabric.host_count)
    )
    waiting = set(range(cluster.fabric.host_count))
    until = time.monotonic() + patient(READY_S)
    while waiting:
        if time.monotonic() > until:
            programs.end()
            raise UserError(
                f"{ip.NAME} is not ready on {', '.join(f'h{host}' for host in sorted(waiting))} "
                f"after {READY_S:g} s"
            )
        for host, agent in enumerate(cluster.agents):
            if any(note.get("note") == {"ip": ip.NAME} for note in agent.notifications()):
                waiting.discard(host)
        cluster.check()
        time.sleep(0.02)
    return programs
