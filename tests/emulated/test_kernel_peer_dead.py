"""An agent that dies takes its kernel connections along: its neighbours say whom they lost."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from testbed.dataplane import loader
from testbed.dataplane.maps import BpfMap
from testbed.emulated import netlink
from testbed.emulated.cluster import Cluster
from tests.emulated.ring import PATIENCE_S, Ring, logged, wait_until
from topologies import load_fabric
from topologies.fabrics import DILATION

pytestmark = pytest.mark.sandbox


def gate(cluster: Cluster, host: int, closed: bool) -> None:
    """Whether all that a host sends is lost."""
    gates = BpfMap(loader.PINS / "port_gate")
    for port in cluster.fabric.ports:
        if port.node == f"h{host}":
            gates.update(struct.pack("=I", port.number), struct.pack("=Q", closed))
    gates.close()


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("lost", [False, True], ids=["", "last words lost"])
def test_a_dead_peer_is_named(tmp_path: Path, lost: bool) -> None:
    """``lost``: what its kernel says of the end does not arrive, as in a full queue: an RST is sent
    once, a FIN a few times. Then the neighbours must ask: one by the data that it sends again, the
    other, which only receives, by keepalive; and the kernel must answer."""
    killed: list[float] = []
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        # A kernel that has lost its agent sends what was under way again, for a minute. Once will
        # do here.
        for host in cluster.fabric.hosts if lost else ():
            netlink.write_sysctls(
                cluster.net.namespaces[host], {"net/ipv4/tcp_orphan_retries": "1"}
            )
        cluster.start_agents("tcp", {}, tmp_path, 1)
        ring = Ring(cluster)
        victim = ring.hosts[2]
        at = time.monotonic() + 0.4

        def kill() -> None:
            if not killed and time.monotonic() > at:
                killed.append(time.monotonic())
                if lost:
                    gate(cluster, victim, True)
                cluster.inject("kill", f"h{victim}")

        assert not ring.go(50, kill, 1 << 18, 2 * PATIENCE_S)
        if lost:
            sockets = Path(f"/proc/{cluster.net[f'h{victim}'].pid}/net/tcp6")
            assert wait_until(lambda: len(sockets.read_text().splitlines()) == 1), (
                "its kernel gives up, and knows of no connection"
            )
            gate(cluster, victim, False)
        alive = [agent for rank, agent in enumerate(ring.agents) if rank != 2]
        failures = list(ring.failures)

        def all_told() -> bool:
            failures.extend(
                note
                for agent in alive
                for note in agent.notifications()
                if note["event"] == "failed"
            )
            return len({note["rank"] for note in failures}) == 2

        assert wait_until(all_told)
        cluster.stop_agents()
    # Both neighbours hold a connection to it; the rank opposite learns it from nobody.
    assert {(note["rank"], note["peer_rank"]) for note in failures} == {(1, 2), (3, 2)}
    assert all(note["reason"] in ("retries exhausted", "flushed") for note in failures)
    causes = {line["cause"] for line in logged(tmp_path, "qp") if line["peer"] == victim}
    # On a busy machine the victim's kernel may take longer to give up than the neighbours wait for
    # progress.
    known = (
        "Connection reset by peer",
        "Broken pipe",
        "the peer has closed the connection",
        *(("no progress for",) if lost else ()),
    )
    assert causes and all(cause.startswith(known) for cause in causes)
