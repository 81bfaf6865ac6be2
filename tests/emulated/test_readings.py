"""Both readings of what sources leave open, on the kernel: another UDP port, retransmissions in the
high class, a shared receive window."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.dataplane.counters import totals
from testbed.emulated.cluster import Cluster
from tests.emulated.ring import Ring
from topologies import load_fabric
from topologies.fabrics import DILATION

pytestmark = pytest.mark.sandbox
LATER = load_fabric("tiny").with_(udp_port=4971)
OPTIONS = {"retransmit_class": "high", "mpr_pool": 1024, "out_of_window": "drop"}


@pytest.mark.parametrize("kind", ["mrc", "roce"])
def test_a_ring_over_another_udp_port_with_a_lossy_cable(kind: str, tmp_path: Path) -> None:
    """The switches' programs are compiled for the port; a host's kernel must not answer what is not
    for it."""
    with Cluster(LATER, dilation=DILATION, controller=False) as cluster:
        cluster.start_agents(kind, OPTIONS if kind == "mrc" else {}, tmp_path, 1)
        cluster.inject("loss", "p0-t0-0:p0-t1-0", probability=0.05)
        ring = Ring(cluster)
        ring.run(4)
        assert not ring.failures and ring.wrong == 0 and len(ring.ends) == 4 * LATER.host_count
        counters = [agent.call("counters") for agent in cluster.agents]
        if kind == "mrc":  # it takes every path, RoCE's queue pairs may all take others
            assert totals(cluster.counters())["drop_fault_loss"] > 0
            assert sum(c["retransmitted"] for c in counters) > 0
        assert sum(c.get("rx_foreign", 0) + c.get("rx_beyond_window", 0) for c in counters) == 0
